//! What a browser is told on its command line.
//!
//! Everybody on the machine can read a command line, so there is nothing secret in it. What is not
//! said is as much a choice: no TCP port for debugging, nothing that turns a sandbox, site isolation
//! or web security off.
//!
//! Source: browser specification 12.5, 12.6, 13.

use std::ffi::OsString;
use std::path::Path;

/// What every browser is told.
const ALWAYS: [&str; 38] = [
    "--remote-debugging-pipe",
    // The network: all of it goes by the proxy, that to the machine itself too.
    "--proxy-bypass-list=<-loopback>",
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy",
    "--dns-prefetch-disable",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    // Nothing of a vendor's services.
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    // Programs drive it: nobody waits in front of it, and nothing is slowed for being unseen.
    "--disable-hang-monitor",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-ipc-flooding-protection",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--mute-audio",
    "--enable-automation",
    "--allow-pre-commit-input",
    // Pictures and documents are the same on every machine.
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--export-tagged-pdf",
    "--generate-pdf-document-outline",
    "--disable-gpu",
    "--disable-vulkan",
    "--disable-features=Translate,AcceptCHFrame,MediaRouter,OptimizationHints,WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    "--lang=en-US",
];

/// The arguments of `chromium` for a browser with its profile in `profile` and its proxy on
/// `proxy_port` of the loopback address.
#[must_use]
pub fn arguments(chromium: &Path, profile: &Path, proxy_port: u16) -> Vec<OsString> {
    let name = chromium.file_name().and_then(|name| name.to_str());
    let is_shell = name.is_some_and(|name| name.contains("headless"));
    let mut arguments: Vec<OsString> = Vec::with_capacity(ALWAYS.len() + 4);
    arguments.push(
        if is_shell {
            "--headless"
        } else {
            "--headless=new"
        }
        .into(),
    );
    let mut folder = OsString::from("--user-data-dir=");
    folder.push(profile);
    arguments.push(folder);
    arguments.push(format!("--proxy-server=http://127.0.0.1:{proxy_port}").into());
    arguments.extend(ALWAYS.map(OsString::from));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_opens_what_has_to_stay_closed() {
        let shell = arguments(
            Path::new("/x/chromium-headless-shell"),
            Path::new("/p"),
            3128,
        );
        let all: Vec<&str> = shell
            .iter()
            .filter_map(|argument| argument.to_str())
            .collect();
        for never in [
            "--no-sandbox",
            "--single-process",
            "--disable-web-security",
            "--remote-debugging-port",
            "--remote-allow-origins",
            "--disable-site-isolation-trials",
            "--disable-gpu-sandbox",
        ] {
            assert!(
                !all.iter().any(|argument| argument.starts_with(never)),
                "{never}"
            );
        }
        assert_eq!(all[0], "--headless");
        let full = arguments(Path::new("/x/chromium"), Path::new("/p"), 3128);
        assert_eq!(full[0], "--headless=new");
    }
}
