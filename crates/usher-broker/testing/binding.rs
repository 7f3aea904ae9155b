//! Browsers and the binding in front of them, for tests that speak to it over sockets.
//!
//! `listen` is what the host runs in a browser's network; `host FOLDER` is the host; `serve FOLDER
//! SECRET` starts one, keeps its pool in the same folder, and says `listening ADDRESS`. It runs
//! until its standard input ends. Pages reach what is public, and this machine at 127.0.0.1.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use usher_broker::wire::binding::Binding;
use usher_broker::wire::{Account, Front};
use usher_broker::{Agent, Broker, Hosts, Region, Sessions, Settings, reap};
use usher_browsers::browser::Launcher;
use usher_browsers::host;
use usher_core::id::{Id, Kind};
use usher_core::lease::Stock;
use usher_core::lease::bucket::Rate;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_egress::{Deadlines, Egress};
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Pool};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["listen"] => usher_browsers::listen(),
        ["host", folder] => runtime().and_then(|runtime| runtime.block_on(run_host(folder))),
        ["serve", folder, secret] => {
            runtime().and_then(|runtime| runtime.block_on(serve(Path::new(folder), secret)))
        }
        _ => Err(io::Error::other(
            "usage: binding-under-test listen | host FOLDER | serve FOLDER SECRET",
        )),
    };
    if let Err(error) = done {
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(1);
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn run_host(folder: &str) -> io::Result<()> {
    let listen = vec![std::env::current_exe()?.into(), "listen".into()];
    let mut settings = usher_browsers::settings::Settings::new(folder.into(), listen);
    settings.slots = 3;
    settings.launches_max = 1;
    let launcher = Launcher::prepare(settings, Box::new(Egress::new(Deadlines::default())))
        .await
        .map_err(io::Error::other)?;
    let host = host::run(launcher, input_ends());
    tokio::pin!(host);
    let mut said = false;
    // The socket is made at the first poll.
    std::future::poll_fn(|context| {
        let polled = host.as_mut().poll(context);
        if !std::mem::replace(&mut said, true) {
            say("ready");
        }
        polled
    })
    .await
}

async fn serve(folder: &Path, secret: &str) -> io::Result<()> {
    let (_host, socket) = start_host(folder).await?;
    let file = folder.join("pool.db");
    let pool = Sqlite::open(
        &file,
        usher_pool::Settings::default(),
        Clock::system(),
        Duration::from_secs(5),
    );
    let pool: Arc<dyn Pool> = Arc::new(pool.await.map_err(io::Error::other)?);
    let hosts = Arc::new(Hosts::default());
    let agent = Agent {
        pool: Arc::clone(&pool),
        region: 0,
        hosts: Arc::clone(&hosts),
        name: "here".to_owned(),
        socket,
        stock: Stock::default(),
        ready: watch::channel(1).1,
    };
    tokio::spawn(agent.run());
    tokio::spawn(reap(Arc::clone(&pool), 0, Arc::clone(&hosts)));
    let region = Region {
        pool: Arc::clone(&pool),
        client_to_broker: Duration::ZERO,
        broker_to_node: Duration::ZERO,
    };
    let broker = Broker::new(vec![region], Settings { ready_wanted: 1 });
    let broker = broker.ok_or_else(|| io::Error::other("no region"))?;
    let sessions = Sessions::new(vec![pool], hosts);
    let front = Arc::new(Front::new(broker, sessions));
    let limits = Limits {
        concurrent: 3,
        ..Limits::of(AccountKind::Paygo).with_browsers(Rate::per_second(50.0, 50))
    };
    let account = |name: &str, secret: String| Account {
        id: Id::derive("default", Kind::Account, name),
        limits,
        weight: 1,
        secret: Some(secret),
        allow_private: vec!["127.0.0.1/32".to_owned()],
    };
    let accounts = vec![
        account("one", secret.to_owned()),
        account("other", format!("{secret}-of-another")),
    ];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(&format!("listening {}", listener.local_addr()?));
    Binding::new(front, accounts)
        .serve(listener, input_ends())
        .await;
    Ok(())
}

/// Whoever started this is gone.
async fn input_ends() {
    let (ended, ends) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::stdin().read(&mut [0]);
        let _ = ended.send(());
    });
    let _ = ends.await;
}

async fn start_host(folder: &Path) -> io::Result<(Child, PathBuf)> {
    let place = folder.join("host");
    let mut host = Command::new(std::env::current_exe()?)
        .arg("host")
        .arg(&place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(host.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).lines();
    match lines.next_line().await? {
        Some(_) => Ok((host, place.join("socket"))),
        None => Err(io::Error::other("the host did not start")),
    }
}

fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
    let _ = io::stdout().flush();
}
