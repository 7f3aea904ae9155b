//! Browsers of the demonstration, where the machine has what they need.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use usher_api::wire::reader::{ACCOUNT, declared};
use usher_browsers::lacks;
use usher_browsers::settings::Settings;
use usher_core::id::Kind;

/// What a Worker shows at the binding; it is on loopback, and printed.
const SECRET: &str = "usher-demo-binding";

/// How long the host of the browsers may take to end before its folder is left behind.
const END_MAX: Duration = Duration::from_secs(5);

/// Why there are none here, in one line that says what to install.
pub(super) fn lacking() -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let looked = runtime.map(|runtime| {
        let settings = Settings::new(PathBuf::new(), Vec::new());
        runtime.block_on(lacks::check(&settings))
    });
    match looked {
        Ok(Ok(_)) => None,
        Ok(Err(lacks)) => Some(lacks.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// What the file says of them. Pages may reach this machine, for the demonstration's are there.
pub(super) fn configuration(binding: SocketAddr) -> String {
    format!(
        r#"browsers:
  listen: "{binding}"
  pools: {{WEU: {{min_ready: 1, max: 2}}}}
accounts:
  {ACCOUNT}: {{binding_secret: {SECRET}, allow_private: ["127.0.0.0/8"]}}
"#
    )
}

/// A folder of its own for what browsers need on disk: the next demonstration begins anew.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("usher-demo-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    /// The host was told to end; it is another process, and its socket goes last.
    fn drop(&mut self) {
        let socket = self.0.join("browsers/WEU/socket");
        let deadline = Instant::now() + END_MAX;
        while socket.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        // What is left in a folder for temporary files is the system's to remove.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What to try, as (line, what it is).
pub(super) fn tries(
    api: SocketAddr,
    binding: SocketAddr,
    page: SocketAddr,
    token: &str,
) -> Vec<(String, &'static str)> {
    let account = declared(Kind::Account, ACCOUNT);
    let rest = format!("{api}/client/v4/accounts/{account}/browser-rendering");
    vec![
        (
            format!(
                "curl -o demo.png -H 'Authorization: Bearer {token}' --json '{{\"url\": \"http://{page}/\"}}' http://{rest}/screenshot"
            ),
            "a picture of blue, by a browser that nobody had before",
        ),
        (
            format!("curl -H 'usher-binding: {SECRET}' http://{binding}/v1/limits"),
            "what a Worker sees",
        ),
        (
            format!("ws://{rest}/devtools/browser"),
            "for Puppeteer and Playwright, with the same Authorization",
        ),
    ]
}
