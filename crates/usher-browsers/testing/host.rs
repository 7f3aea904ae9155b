//! A browser host and nothing else, for tests that kill it or run it as somebody else.
//!
//! `listen` is what the host runs in a browser's network; `run FOLDER` is the host, with the words
//! `process` (bare browsers) and `memory=BYTES` behind it. It says `ready` once its socket is there.

use std::io::{self, Write};

use usher_browsers::browser::Launcher;
use usher_browsers::exit::Nowhere;
use usher_browsers::host;
use usher_browsers::settings::{Kind, Settings};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["listen"] => usher_browsers::listen(),
        ["run", folder, options @ ..] => run(folder, options),
        _ => Err(io::Error::other(
            "usage: host-under-test listen | run FOLDER [process] [memory=BYTES]",
        )),
    };
    if let Err(error) = done {
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(1);
    }
}

fn run(folder: &str, options: &[&str]) -> io::Result<()> {
    let listen = vec![std::env::current_exe()?.into(), "listen".into()];
    let mut settings = Settings::new(folder.into(), listen);
    settings.slots = 8;
    settings.launches_max = 2;
    for option in options {
        match option.split_once('=') {
            None if *option == "process" => {
                settings.kind = Kind::Process;
                settings.insecure_single_tenant = true;
            }
            Some(("memory", bytes)) => {
                settings.caps.memory_bytes = bytes.parse().map_err(io::Error::other)?;
            }
            _ => return Err(io::Error::other(format!("unknown option {option}"))),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let launcher = Launcher::prepare(settings, Box::new(Nowhere))
            .await
            .map_err(io::Error::other)?;
        for warning in launcher.warnings() {
            writeln!(io::stderr(), "{warning}")?;
        }
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let host = host::run(launcher, async {
            term.recv().await;
        });
        // The socket is made at the first poll.
        tokio::pin!(host);
        let mut said = false;
        std::future::poll_fn(|context| {
            let polled = host.as_mut().poll(context);
            if !said {
                said = true;
                let _ = writeln!(io::stdout(), "ready");
                let _ = io::stdout().flush();
            }
            polled
        })
        .await
    })
}
