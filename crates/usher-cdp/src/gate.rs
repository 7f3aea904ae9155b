//! What becomes of a command.
//!
//! A session's owner may do with the browser what the browser can do, but for what reaches beyond
//! it: files of the machine, another way to the network, the process itself. Such commands are
//! refused or lose what reaches out. A client that may only look has a short list of what it may
//! ask, and everything else is refused, what is new to us as well.

use serde_json::{Map, Value};

use crate::message::Command;

/// The words for a client that may only look.
pub const READONLY: &str = "not allowed on a read-only connection";

/// What a navigation that is not allowed is answered with.
pub const NAVIGATION: &str = "Cannot navigate to this URL";

/// What one connection may do.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Only look. Default: no.
    pub readonly: bool,
    /// The folder of the session's downloads, as the browser sees it. Default `None`: downloads
    /// are denied.
    pub downloads: Option<String>,
    /// The folder from which the session's pages may be given files, as the browser sees it.
    /// Default `None`: there are none.
    pub uploads: Option<String>,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// It passes as it is.
    Pass,
    /// It passes with these parameters.
    Params(String),
    /// It passes, and the command line is taken out of its answer.
    HideCommandLine,
    /// It is answered with a fault.
    Refuse(i32, &'static str),
    /// It is answered with this result.
    Answer(&'static str),
    /// The session ends.
    Close,
    /// It is of the domain that whoever runs the session answers.
    Service,
}

use Judged::{Answer, Close, HideCommandLine, Params, Pass, Refuse, Service};

/// What a read-only client may ask, beside the getters of two domains.
const LOOKS: [&str; 21] = [
    "Accessibility.enable",
    "Browser.getVersion",
    "CSS.enable",
    "DOM.describeNode",
    "DOM.enable",
    "DOM.getDocument",
    "DOM.requestChildNodes",
    "Log.enable",
    "Network.enable",
    "Overlay.hideHighlight",
    "Page.captureScreenshot",
    "Page.enable",
    "Page.getFrameTree",
    "Page.getLayoutMetrics",
    "Page.screencastFrameAck",
    "Page.startScreencast",
    "Page.stopScreencast",
    "Runtime.enable",
    "Target.attachToTarget",
    "Target.detachFromTarget",
    "Target.getTargets",
];

/// What a read-only client may ask too, though it does something: it says what it wants to hear of.
const LISTENS: [&str; 1] = ["Target.setAutoAttach"];

/// Commands whose parameters are looked at. They pass with the parameters that were judged, written
/// anew: a name that stands there twice cannot mean one thing here and another to the browser.
const LOOKED_AT: [&str; 13] = [
    "Browser.setDownloadBehavior",
    "DOM.setFileInputFiles",
    "Fetch.continueRequest",
    "Input.dispatchDragEvent",
    "Network.continueInterceptedRequest",
    "Network.loadNetworkResource",
    "Page.handleFileChooser",
    "Page.navigate",
    "Page.setDownloadBehavior",
    "Target.createBrowserContext",
    "Target.createTarget",
    "Target.sendMessageToTarget",
    "Tracing.start",
];

/// What is about the machine and not about pages: programs put into the browser, ports of it, what
/// is near it.
const OUTSIDE: [&str; 4] = ["Cast.", "Extensions.", "PWA.", "Tethering."];

impl Gate {
    /// Judges a command, which is part of `text`.
    #[must_use]
    pub fn judge(&self, command: &Command<'_>, text: &str) -> Judged {
        let method = command.method;
        if self.readonly && !looks(method) {
            return Refuse(-32000, READONLY);
        }
        if LOOKED_AT.contains(&method) {
            let Some(at) = &command.params_at else {
                return Pass;
            };
            let Ok(mut params) = serde_json::from_str(&text[at.clone()]) else {
                return wrong_params();
            };
            return match self.look(method, &mut params) {
                Ok(()) => Params(Value::Object(params).to_string()),
                Err(refused) => refused,
            };
        }
        match method {
            "Browser.close" => Close,
            "Browser.getBrowserCommandLine" => Answer(r#"{"arguments":[]}"#),
            "SystemInfo.getInfo" => HideCommandLine,
            // With the last of these a page would speak to the browser past this gate.
            "Browser.crash"
            | "Browser.crashGpuProcess"
            | "Browser.executeBrowserCommand"
            | "Target.openDevTools"
            | "Target.setRemoteLocations"
            | "Target.exposeDevToolsProtocol" => missing(),
            _ if method.starts_with("Cloudflare.") => Service,
            _ if OUTSIDE.iter().any(|domain| method.starts_with(domain)) => missing(),
            _ => Pass,
        }
    }

    fn look(&self, method: &str, params: &mut Map<String, Value>) -> Result<(), Judged> {
        match method {
            // The last three fetch on behalf of a page, and some of them whatever they are given.
            "Page.navigate"
            | "Target.createTarget"
            | "Fetch.continueRequest"
            | "Network.continueInterceptedRequest"
            | "Network.loadNetworkResource" => match params.get("url").and_then(Value::as_str) {
                Some(url) if !may_navigate(url) => Err(Refuse(-32000, NAVIGATION)),
                _ => Ok(()),
            },
            "Browser.setDownloadBehavior" | "Page.setDownloadBehavior" => {
                self.downloads(params);
                Ok(())
            }
            "DOM.setFileInputFiles" | "Page.handleFileChooser" => self.files(params.get("files")),
            "Input.dispatchDragEvent" => {
                self.files(params.get("data").and_then(|data| data.get("files")))
            }
            "Target.createBrowserContext" => {
                // The network that it would lead to is not there anyway.
                params.remove("proxyServer");
                params.remove("proxyBypassList");
                Ok(())
            }
            "Tracing.start" if params.contains_key("perfettoConfig") => {
                let text = "a configuration of one's own is not allowed here";
                Err(Refuse(-32000, text))
            }
            "Target.sendMessageToTarget" => {
                let inner = params.get("message").and_then(Value::as_str);
                let inner = self.nested(inner.ok_or_else(wrong_params)?)?;
                params.insert("message".to_owned(), inner.into());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A command inside a command, as older clients send them to parts of the browser.
    fn nested(&self, text: &str) -> Result<String, Judged> {
        let command = Command::read(text).map_err(|_| wrong_params())?;
        match self.judge(&command, text) {
            Pass => Ok(text.to_owned()),
            Params(params) => Ok(command.with_params(text, &params)),
            refused @ Refuse(..) => Err(refused),
            HideCommandLine | Answer(_) | Close | Service => {
                let text = "not possible inside Target.sendMessageToTarget";
                Err(Refuse(-32000, text))
            }
        }
    }

    fn downloads(&self, params: &mut Map<String, Value>) {
        let behavior = params.get("behavior").and_then(Value::as_str);
        if !matches!(behavior, Some("allow" | "allowAndName")) {
            params.remove("downloadPath");
            return;
        }
        match &self.downloads {
            Some(folder) => {
                params.insert("downloadPath".to_owned(), folder.clone().into());
            }
            None => {
                params.insert("behavior".to_owned(), "deny".into());
                params.remove("downloadPath");
            }
        }
    }

    fn files(&self, files: Option<&Value>) -> Result<(), Judged> {
        let Some(files) = files else { return Ok(()) };
        let within = |file: &Value| {
            let (Some(file), Some(folder)) = (file.as_str(), &self.uploads) else {
                return false;
            };
            let inside = file.strip_prefix(folder.as_str());
            let inside = inside.and_then(|inside| inside.strip_prefix('/'));
            inside.is_some_and(|path| path.split('/').all(|name| !matches!(name, "" | "." | "..")))
        };
        match files.as_array() {
            Some(files) if files.iter().all(within) => Ok(()),
            _ => Err(Refuse(-32000, "a file is not among this session's uploads")),
        }
    }
}

fn missing() -> Judged {
    Refuse(-32601, "this method is not available here")
}

fn wrong_params() -> Judged {
    Refuse(-32602, "Invalid parameters")
}

fn looks(method: &str) -> bool {
    let getter = |domain: &str| {
        let rest = method.strip_prefix(domain);
        rest.is_some_and(|rest| rest.starts_with("get"))
    };
    LOOKS.contains(&method)
        || LISTENS.contains(&method)
        || getter("CSS.")
        || getter("Accessibility.")
}

/// Whether a browser may be sent to `url`. A URL without a scheme is for the browser to refuse.
#[must_use]
pub fn may_navigate(url: &str) -> bool {
    // As browsers read it: control characters and spaces around it do not count, nor tabs and
    // line feeds inside.
    let url = url.trim_matches(|c: char| c <= ' ');
    let url: String = url
        .chars()
        .filter(|c| !matches!(c, '\t' | '\n' | '\r'))
        .collect();
    let Some((scheme, rest)) = url.split_once(':') else {
        return true;
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return true;
    }
    match &*scheme.to_ascii_lowercase() {
        "http" | "https" | "data" | "blob" => true,
        "about" => {
            let page = rest.split(['?', '#']).next().unwrap_or_default();
            matches!(&*page.to_ascii_lowercase(), "blank" | "srcdoc")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(gate: &Gate, method: &str, params: &str) -> Judged {
        let text = format!(r#"{{"id":1,"method":"{method}","params":{params}}}"#);
        let command = Command::read(&text).expect(&text);
        gate.judge(&command, &text)
    }

    #[test]
    fn only_what_belongs_on_a_page_is_navigated_to() {
        for url in [
            "http://a",
            "HTTPS://a",
            "about:blank",
            "about:blank#x",
            "ABOUT:Blank",
            "about:srcdoc",
            "data:,x",
            "blob:http://a/1",
            "",
            "example.com",
            "/a:b",
            " http://a",
            "//a:80/",
        ] {
            assert!(may_navigate(url), "{url}");
        }
        for url in [
            "file:///etc/passwd",
            "FILE:///etc/passwd",
            " file:/etc",
            "fi\nle:///etc",
            "\u{1}file:/",
            "file://host/x",
            "chrome://version",
            "chrome-untrusted://x",
            "devtools://x",
            "view-source:http://a",
            "filesystem:http://a",
            "ftp://a",
            "javascript:1",
            "java\tscript:1",
            "intent:x",
            "externalfile:x",
            "about:version",
            "about:",
            "ws://a",
            "mailto:a",
        ] {
            assert!(!may_navigate(url), "{url}");
            let params = serde_json::json!({"url": url}).to_string();
            for method in [
                "Page.navigate",
                "Target.createTarget",
                "Fetch.continueRequest",
                "Network.continueInterceptedRequest",
                "Network.loadNetworkResource",
            ] {
                assert_eq!(
                    judged(&Gate::default(), method, &params),
                    Refuse(-32000, NAVIGATION)
                );
            }
        }
        let twice = r#"{"url":"file:///etc","url":"http://a"}"#;
        let once = Params(r#"{"url":"http://a"}"#.to_owned());
        assert_eq!(judged(&Gate::default(), "Page.navigate", twice), once);
        let twice = r#"{"url":"http://a","\u0075rl":"file:///etc"}"#;
        assert_eq!(
            judged(&Gate::default(), "Page.navigate", twice),
            Refuse(-32000, NAVIGATION)
        );
        assert_eq!(
            judged(&Gate::default(), "Page.navigate", "[]"),
            Refuse(-32602, "Invalid parameters")
        );
    }

    #[test]
    fn files_stay_in_their_folders() {
        let gate = Gate {
            downloads: Some("/downloads".to_owned()),
            uploads: Some("/uploads".to_owned()),
            ..Gate::default()
        };
        let asked = r#"{"behavior":"allowAndName","browserContextId":"C","downloadPath":"/etc"}"#;
        let Params(params) = judged(&gate, "Browser.setDownloadBehavior", asked) else {
            panic!("it is changed");
        };
        assert_eq!(
            params,
            r#"{"behavior":"allowAndName","browserContextId":"C","downloadPath":"/downloads"}"#
        );
        let Params(params) = judged(&Gate::default(), "Page.setDownloadBehavior", asked) else {
            panic!("it is changed");
        };
        assert_eq!(params, r#"{"behavior":"deny","browserContextId":"C"}"#);
        let deny = r#"{"behavior":"deny"}"#;
        assert_eq!(
            judged(&gate, "Browser.setDownloadBehavior", deny),
            Params(deny.to_owned())
        );
        for (files, passes) in [
            (r#"["/uploads/a","/uploads/b/c"]"#, true),
            ("[]", true),
            (r#"["/uploads/../etc/passwd"]"#, false),
            (r#"["/uploads/./a"]"#, false),
            (r#"["/uploads/"]"#, false),
            (r#"["/uploads"]"#, false),
            (r#"["/uploads2/a"]"#, false),
            (r#"["/uploads/a","/etc/passwd"]"#, false),
            (r#"["etc/passwd"]"#, false),
            (r#""/uploads/a""#, false),
            ("[7]", false),
        ] {
            for (method, params) in [
                ("DOM.setFileInputFiles", format!(r#"{{"files":{files}}}"#)),
                ("Page.handleFileChooser", format!(r#"{{"files":{files}}}"#)),
                (
                    "Input.dispatchDragEvent",
                    format!(r#"{{"data":{{"files":{files}}}}}"#),
                ),
            ] {
                let judged = judged(&gate, method, &params);
                let same = Params(params);
                assert_eq!(judged == same, passes, "{method} {files}: {judged:?}");
                assert_eq!(
                    matches!(judged, Refuse(-32000, _)),
                    !passes,
                    "{method} {files}"
                );
            }
        }
        let drop = r#"{"type":"drop","x":1.5}"#;
        assert_eq!(
            judged(&Gate::default(), "Input.dispatchDragEvent", drop),
            Params(drop.to_owned())
        );
        let files = r#"{"files":["/uploads/a"]}"#;
        let refused = judged(&Gate::default(), "DOM.setFileInputFiles", files);
        assert!(matches!(refused, Refuse(-32000, _)), "{refused:?}");
    }

    #[test]
    fn what_reaches_out_of_the_browser_is_refused_or_taken_away() {
        let gate = Gate::default();
        for method in [
            "Browser.crash",
            "Browser.crashGpuProcess",
            "Browser.executeBrowserCommand",
            "Cast.enable",
            "Extensions.loadUnpacked",
            "PWA.install",
            "Target.openDevTools",
            "Target.setRemoteLocations",
            "Tethering.bind",
            "Target.exposeDevToolsProtocol",
        ] {
            assert!(
                matches!(judged(&gate, method, "{}"), Refuse(-32601, _)),
                "{method}"
            );
            let nested =
                serde_json::json!({"message": format!(r#"{{"id":1,"method":"{method}"}}"#)});
            let nested = judged(&gate, "Target.sendMessageToTarget", &nested.to_string());
            assert!(matches!(nested, Refuse(-32601, _)), "{method}");
        }
        let proxied = r#"{"disposeOnDetach":true,"proxyServer":"http://a","proxyBypassList":"b"}"#;
        let bare = Params(r#"{"disposeOnDetach":true}"#.to_owned());
        assert_eq!(judged(&gate, "Target.createBrowserContext", proxied), bare);
        assert_eq!(
            judged(&gate, "Target.createBrowserContext", "{}"),
            Params("{}".to_owned())
        );
        assert_eq!(judged(&gate, "Browser.close", "{}"), Close);
        assert_eq!(judged(&gate, "Cloudflare.getSessionId", "{}"), Service);
        assert_eq!(judged(&gate, "SystemInfo.getInfo", "{}"), HideCommandLine);
        assert_eq!(judged(&gate, "Page.enable", "{}"), Pass);
        let inner = |text: &str| {
            let params = serde_json::json!({"sessionId": "S", "message": text}).to_string();
            judged(&gate, "Target.sendMessageToTarget", &params)
        };
        for (text, passes) in [
            (
                r#"{"id":1,"method":"Page.enable"}"#,
                r#"{"id":1,"method":"Page.enable"}"#,
            ),
            (
                r#"{"id":1,"method":"Target.createBrowserContext","params":{"proxyServer":"a"},"sessionId":"S"}"#,
                r#"{"id":1,"method":"Target.createBrowserContext","params":{},"sessionId":"S"}"#,
            ),
        ] {
            let params = serde_json::json!({"sessionId": "S", "message": passes}).to_string();
            assert_eq!(inner(text), Params(params));
        }
        assert!(matches!(
            inner(r#"{"id":1,"method":"Page.navigate","params":{"url":"file:///"}}"#),
            Refuse(-32000, _)
        ));
        assert!(matches!(
            inner(r#"{"id":1,"method":"Browser.close"}"#),
            Refuse(-32000, _)
        ));
        assert!(matches!(inner("{"), Refuse(-32602, _)));
    }

    #[test]
    fn who_may_only_look_does_nothing_else() {
        let gate = Gate {
            readonly: true,
            ..Gate::default()
        };
        for method in LOOKS
            .iter()
            .chain(&LISTENS)
            .chain(&["CSS.getComputedStyleForNode", "Accessibility.getFullAXTree"])
        {
            assert_eq!(judged(&gate, method, "{}"), Pass, "{method}");
        }
        for method in [
            "Runtime.evaluate",
            "Page.navigate",
            "Input.dispatchMouseEvent",
            "Browser.close",
            "CSS.setStyleTexts",
            "Cloudflare.handoffComplete",
            "Target.createTarget",
            "Target.sendMessageToTarget",
            "Nothing.weKnow",
            "CSSX.getAll",
            "Page.enablex",
        ] {
            assert_eq!(
                judged(&gate, method, "{}"),
                Refuse(-32000, READONLY),
                "{method}"
            );
        }
    }
}
