//! Sessions come and go in every way there is, while browsers and their host are killed: in the end
//! everything is as it was. With `USHER_SOAK=1` 5,000 of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::browsers::PATIENCE_OF_BROWSERS;
use crate::support::eventually_within;
use crate::support::hosts::{Host, kill};
use crate::support::{Config, Usher};

const BROWSERS: usize = 3;

/// What is held of the machine.
#[derive(Debug)]
struct Standing {
    /// Processes of browsers.
    members: usize,
    /// Descriptors of the node, and of the host.
    files: [usize; 2],
    /// Entries of the host's folder for browsers.
    folders: usize,
    /// Control groups of browsers.
    groups: usize,
}

impl Standing {
    /// Once all browsers are ready.
    fn of(usher: &Usher, host: &Host) -> Standing {
        host.until("ready", BROWSERS);
        let pid = host.process().unwrap().pid();
        let files = |pid: u32| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
            open.map_or(0, Iterator::count)
        };
        let folder = usher.path("var/browsers/WEU/browsers");
        Standing {
            members: host.members().len(),
            files: [files(usher.pid()), files(pid)],
            folders: std::fs::read_dir(folder).map_or(0, Iterator::count),
            groups: host.groups(),
        }
    }
}

/// One visit: a browser, a page drawn, and an end; whether it went well, which it need not while
/// others kill.
fn visit(usher: &Usher, number: usize) -> bool {
    let Some(session) = usher.acquire() else {
        return false;
    };
    let Ok(mut client) = usher.try_devtools(&session) else {
        return false;
    };
    let drawn = client.try_draw("data:text/html,<h1>churn</h1>");
    match number % 4 {
        0 => {
            client.tell(None, "Browser.close", json!({}));
            client.last_words();
        }
        // It goes away without a word.
        1 => {
            drop(client);
            close(usher, &session);
        }
        2 => close(usher, &session),
        _ => {
            close(usher, &session);
            client.last_words();
        }
    }
    drawn
}

fn close(usher: &Usher, session: &str) {
    let closed = usher.binding(&format!("DELETE /devtools/browser/{session}"));
    assert_eq!(closed.status(), 200, "{closed:?}");
}

#[test]
fn everything_is_as_it_was_after_many_sessions_and_kills() {
    let soak = std::env::var_os("USHER_SOAK").is_some_and(|value| value == "1");
    let (visits, kill_every) = if soak { (5_000, 40) } else { (12, 4) };
    let pool = json!({"min_ready": BROWSERS, "max": BROWSERS});
    let config = Config::new().browsers();
    let usher = Usher::start(&config.set(&["browsers", "pools", "WEU"], pool));
    // One, so that whatever is made once is made.
    let Some(first) = usher.acquire() else {
        return;
    };
    usher.devtools(&first).version();
    close(&usher, &first);
    let host = Host::of(&usher, "WEU");
    let before = Standing::of(&usher, &host);
    let began = Instant::now();
    let (done, drawn, killed) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let visiting: Vec<_> = (0..BROWSERS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = done.fetch_add(1, Ordering::Relaxed);
                        if number >= visits {
                            return;
                        }
                        if visit(&usher, number) {
                            drawn.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut next = kill_every;
            while !over.load(Ordering::Acquire) {
                if done.load(Ordering::Relaxed) < next {
                    thread::park_timeout(Duration::from_millis(20));
                    continue;
                }
                next += kill_every;
                // Every third time all of them go with their host.
                let count = killed.fetch_add(1, Ordering::Relaxed);
                if count % 3 == 1 {
                    if let Some(process) = host.process() {
                        process.signal(Signal::KILL);
                    }
                } else if host.process().is_some()
                    && let Some(&pid) = host.browsers().first()
                {
                    kill(pid);
                }
            }
        });
        for visiting in visiting {
            visiting.join().unwrap();
        }
        over.store(true, Ordering::Release);
    });
    let (drawn, killed) = (drawn.into_inner(), killed.into_inner());
    println!(
        "{visits} sessions, {drawn} drew, {killed} kills | {:.0} s",
        began.elapsed().as_secs_f64()
    );
    assert!(drawn * 2 > visits, "{drawn} of {visits} drew");
    eventually_within("no session that counts", 2 * PATIENCE_OF_BROWSERS, || {
        let nothing =
            |path, name: &str| usher.binding_get(path)[name].as_array().unwrap().is_empty();
        (nothing("/sessions", "sessions") && nothing("/limits", "activeSessions")).then_some(())
    });
    let what = format!("everything as before: {before:?}");
    eventually_within(&what, PATIENCE_OF_BROWSERS, || {
        let now = Standing::of(&usher, &host);
        let few = |now: usize, before: usize| now <= before + 4;
        let back = few(now.members, before.members)
            && few(now.files[0], before.files[0])
            && few(now.files[1], before.files[1])
            && now.folders == before.folders
            && now.groups <= before.groups;
        println!("now: {now:?}");
        back.then_some(())
    });
}
