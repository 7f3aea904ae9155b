//! Browsers and the binding in front of them, for tests that speak to it over sockets.
//!
//! `listen` is what the host runs in a browser's network; `host FOLDER OWN READY` is the host, and
//! nothing opens the address OWN to a page; `serve FOLDER SECRET` starts one, keeps its pool in the
//! same folder with one browser ready, or as many as a third word says, and says `listening ADDRESS`.
//! It runs until its standard input ends.
//!
//! Pages reach what is public, and this machine at 127.0.0.1; those of the other account reach all
//! that can be opened. Names below `usher.test` have the addresses that a test needs.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use usher_broker::wire::binding::Binding;
use usher_broker::wire::{Account, Front};
use usher_broker::{Agent, Broker, Hosts, Region, Sessions, Settings, Want, reap};
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
        ["host", folder, own, ready] => {
            number(ready).and_then(|ready| runtime()?.block_on(run_host(folder, own, ready)))
        }
        ["serve", folder, secret] => {
            runtime().and_then(|runtime| runtime.block_on(serve(Path::new(folder), secret, 1)))
        }
        ["serve", folder, secret, ready] => number(ready)
            .and_then(|ready| runtime()?.block_on(serve(Path::new(folder), secret, ready))),
        _ => Err(io::Error::other(
            "usage: binding-under-test listen | host FOLDER OWN READY | serve FOLDER SECRET [READY]",
        )),
    };
    if let Err(error) = done {
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(1);
    }
}

fn number(word: &str) -> io::Result<u32> {
    word.parse().map_err(io::Error::other)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// The names that tests use, and the system's.
fn egress() -> Egress {
    let asked = Arc::new(AtomicU32::new(0));
    Egress::with(Deadlines::default(), move |host| {
        let asked = Arc::clone(&asked);
        async move {
            let [site, inside] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
            match host.strip_suffix(".usher.test") {
                Some("site") => Ok(vec![site]),
                Some("inside") => Ok(vec![inside]),
                Some("both") => Ok(vec![site, inside]),
                Some("mapped") => Ok(vec!["::ffff:127.0.0.2".parse().map_err(io::Error::other)?]),
                // Another address each time.
                Some("rebind") => match asked.fetch_add(1, Ordering::Relaxed) % 2 {
                    0 => Ok(vec![site]),
                    _ => Ok(vec![inside]),
                },
                Some("metadata") => Ok(vec![[169, 254, 169, 254].into()]),
                Some(_) => Err(io::ErrorKind::NotFound.into()),
                None => {
                    let found = tokio::net::lookup_host((host, 0)).await?;
                    Ok(found.map(|address| address.ip()).collect())
                }
            }
        }
    })
}

async fn run_host(folder: &str, own: &str, ready: u32) -> io::Result<()> {
    let listen = vec![std::env::current_exe()?.into(), "listen".into()];
    let mut settings = usher_browsers::settings::Settings::new(folder.into(), listen);
    settings.slots = ready + 2;
    settings.launches_max = ready;
    let egress = egress();
    egress.own_listeners([own.parse().map_err(io::Error::other)?]);
    let launcher = Launcher::prepare(settings, Box::new(egress))
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

async fn serve(folder: &Path, secret: &str, ready: u32) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let (_host, socket) = start_host(folder, address, ready).await?;
    let file = folder.join("pool.db");
    let pool = Sqlite::open(
        &file,
        usher_pool::Settings::default(),
        Clock::system(),
        Duration::from_secs(5),
    );
    let pool: Arc<dyn Pool> = Arc::new(pool.await.map_err(io::Error::other)?);
    let hosts = Arc::new(Hosts::default());
    let want = Want { ready, most: None };
    let agent = Agent {
        pool: Arc::clone(&pool),
        region: 0,
        hosts: Arc::clone(&hosts),
        name: "here".to_owned(),
        socket,
        stock: Stock::default(),
        want: watch::channel(want).1,
        starts: Arc::default(),
    };
    tokio::spawn(agent.run());
    tokio::spawn(reap(Arc::clone(&pool), 0, Arc::clone(&hosts)));
    let region = Region {
        pool: Arc::clone(&pool),
        client_to_broker: Duration::ZERO,
    };
    let broker = Broker::new(
        vec![region],
        Settings {
            ready_wanted: ready,
        },
    );
    let broker = broker.ok_or_else(|| io::Error::other("no region"))?;
    let sessions = Sessions::new(vec![pool], hosts);
    let front = Arc::new(Front::new(broker, sessions));
    let limits = Limits {
        concurrent: 3,
        ..Limits::of(AccountKind::Paygo).with_browsers(Rate::per_second(50.0, 50))
    };
    let account = |name: &str, secret: String, opened: &[&str], quick_actions| Account {
        id: Id::derive("default", Kind::Account, name),
        name: name.to_owned(),
        limits: Limits {
            quick_actions,
            ..limits
        },
        weight: 1,
        secret: Some(secret),
        allow_private: opened.iter().map(ToString::to_string).collect(),
    };
    let accounts = vec![
        account(
            "one",
            secret.to_owned(),
            &["127.0.0.1/32"],
            Rate::per_second(1_000.0, 1_000),
        ),
        account(
            "other",
            format!("{secret}-of-another"),
            &["0.0.0.0/0", "::/0"],
            // One in 500 s.
            Rate::one_per(Duration::from_secs(500), 1),
        ),
    ];
    say(&format!("listening {address}"));
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

async fn start_host(folder: &Path, own: SocketAddr, ready: u32) -> io::Result<(Child, PathBuf)> {
    let place = folder.join("host");
    let mut host = Command::new(std::env::current_exe()?)
        .arg("host")
        .arg(&place)
        .arg(own.to_string())
        .arg(ready.to_string())
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
