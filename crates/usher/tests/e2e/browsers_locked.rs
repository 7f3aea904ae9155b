//! Another program has the pool's file locked for 20 s while browsers are in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;

use crate::support::eventually_within;
use crate::support::hosts::Host;
use crate::support::{Config, Usher};

const LOCKED: Duration = Duration::from_secs(20);

/// A question that cannot be answered is refused in less: twice what the pool bears, and slack for
/// a slow machine.
const REFUSED_MAX: Duration = Duration::from_secs(12);

#[test]
fn a_pool_that_is_locked_for_a_while_costs_no_session() {
    let pool = json!({"min_ready": 1, "max": 4});
    let config = Config::new().browsers();
    let usher = Usher::start(&config.set(&["browsers", "pools", "WEU"], pool));
    let Some(first) = usher.acquire() else {
        return;
    };
    let sessions = [first, usher.acquire().unwrap()];
    let mut clients = sessions.each_ref().map(|session| usher.devtools(session));
    Host::of(&usher, "WEU").until("ready", 1);
    let file = Connection::open(usher.path("var/browsers/WEU.db")).unwrap();
    file.busy_timeout(Duration::from_secs(5)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let free = AtomicBool::new(false);
    let (relayed, refused) = thread::scope(|scope| {
        let relaying = clients.each_mut().map(|client| {
            let free = &free;
            scope.spawn(move || {
                let (mut count, mut longest) = (0, Duration::ZERO);
                while !free.load(Ordering::Acquire) {
                    let asked = Instant::now();
                    client.version();
                    longest = longest.max(asked.elapsed());
                    count += 1;
                }
                (count, longest)
            })
        });
        let asking = scope.spawn(|| {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while began.elapsed() < LOCKED {
                let asked = Instant::now();
                let answer = usher.binding("GET /acquire?wait=0s");
                // The last one may have been asked when the lock was gone.
                if began.elapsed() < LOCKED {
                    assert_eq!(answer.status(), 503, "{answer:?}");
                    longest = longest.max(asked.elapsed());
                    count += 1;
                }
            }
            (count, longest)
        });
        // A client comes back to its session meanwhile.
        usher.devtools(&sessions[0]).version();
        assert!(began.elapsed() < LOCKED, "it was not locked any more");
        let refused = loop {
            if asking.is_finished() {
                break asking.join().unwrap();
            }
            if began.elapsed() >= LOCKED && !file.is_autocommit() {
                file.execute_batch("ROLLBACK").unwrap();
            }
            thread::park_timeout(Duration::from_millis(20));
        };
        let unlocked = Instant::now();
        let given = usher.acquire().unwrap();
        println!(
            "pool locked for 20 s | a browser is given after it | {:.1} s | 15 s",
            unlocked.elapsed().as_secs_f64()
        );
        assert!(unlocked.elapsed() < Duration::from_secs(15));
        usher.devtools(&given).version();
        free.store(true, Ordering::Release);
        (relaying.map(|relay| relay.join().unwrap()), refused)
    });
    for (count, longest) in relayed {
        println!(
            "pool locked for 20 s | {count} commands of a session answered | longest {longest:?}"
        );
        assert!(count > 20, "{count} commands");
    }
    let (count, longest) = refused;
    println!("pool locked for 20 s | {count} acquires got 503 | longest {longest:?}");
    assert!(count > 0 && longest < REFUSED_MAX);
    // What was late to be said killed nobody, and what was begun counts for nobody.
    for (session, client) in sessions.iter().zip(&mut clients) {
        client.version();
        let live = usher.binding_get("/sessions");
        assert!(live.to_string().contains(session), "{live}");
    }
    eventually_within("three sessions that count", Duration::from_secs(40), || {
        let limits = usher.binding_get("/limits");
        (limits["activeSessions"].as_array()?.len() == 3).then_some(())
    });
}
