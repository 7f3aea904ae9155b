//! Browsers, their hosts and the process in front of them are killed or stopped: what clients see,
//! who gets what afterwards, and how long it takes. Each line of what is printed is an event, what
//! was seen of it, the time it took and the time it may take.
//!
//! Where the machine refuses namespaces these say so and do nothing.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::browsers::{Devtools, PATIENCE_OF_BROWSERS};
use crate::support::eventually_within;
use crate::support::hosts::{Host, are_gone, kill};
use crate::support::process::Process;
use crate::support::{Config, Usher};

/// Regions, each with a host of its own that has room for one browser.
const REGIONS: [&str; 3] = ["WEU", "EEU", "ENAM"];

/// What nobody waits for on purpose: the machine may be slow.
const SOON: Duration = Duration::from_secs(10);

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Says how long something took, and insists on the limit.
fn tell(event: &str, seen: &str, since: Instant, limit: Duration) {
    let took = since.elapsed();
    println!(
        "{event} | {seen} | {:.1} s | {} s",
        took.as_secs_f64(),
        limit.as_secs()
    );
    assert!(
        took <= limit,
        "{event}: {seen} after {took:?}, not {limit:?}"
    );
}

/// A process that stands still until this is dropped.
struct Still(Process);

impl Still {
    fn of(process: Process) -> Still {
        process.signal(Signal::STOP);
        Still(process)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

/// A session, who is connected to it, a page of it, and its host.
struct Held {
    session: String,
    client: Devtools,
    page: String,
    region: &'static str,
}

impl Held {
    /// `None` where there can be no browsers. `still` is the region whose host answers nobody.
    fn new(usher: &Usher, keep_alive: Duration, still: Option<&str>) -> Option<Held> {
        let in_use = |region: &str| match still {
            Some(still) if still == region => 0,
            _ => Host::of(usher, region).count("in_use").unwrap_or(0),
        };
        let before = REGIONS.map(in_use);
        let session = usher.acquire_for(keep_alive)?;
        let at = eventually_within("a host that has it", PATIENCE_OF_BROWSERS, || {
            REGIONS
                .iter()
                .zip(before)
                .position(|(region, before)| in_use(region) > before)
        });
        let mut client = usher.devtools(&session);
        let page = open_page(&mut client);
        Some(Held {
            session,
            client,
            page,
            region: REGIONS[at],
        })
    }

    /// A command that the page never answers; its number.
    fn hang(&mut self) -> u64 {
        let never = json!({"expression": "new Promise(() => {})", "awaitPromise": true});
        self.client
            .tell(Some(&self.page), "Runtime.evaluate", never)
    }

    /// What it is told at the end: the answer to the command that hangs, and the close frame.
    fn ends(&mut self, hanging: u64) -> (Value, Option<(u16, String)>) {
        let (messages, end) = self.client.last_words();
        let answer = messages
            .into_iter()
            .find(|message| message["id"] == hanging);
        (answer.unwrap_or_default(), end)
    }

    /// It ends as `reason` says: an error for what hangs, 1011, and nobody finds it any more.
    fn ends_badly(&mut self, usher: &Usher, hanging: u64, reason: &str) {
        let (answer, end) = self.ends(hanging);
        let message = format!("Browser closed: {reason}");
        let error = json!({"code": -32000, "message": message});
        assert_eq!(answer["error"], error, "{answer}");
        assert_eq!(end, Some((1011, reason.to_owned())));
        let again = usher.try_devtools(&self.session).err();
        assert!(again.is_some_and(|fault| fault.contains("404")));
    }

    /// `sessions`, `limits` and `history` agree that it has ended.
    fn is_over(&self, usher: &Usher, reason: &str, within: Duration) {
        eventually_within("an end that all agree on", within, || {
            let live = usher.binding_get("/sessions")["sessions"].to_string();
            let counted = usher.binding_get("/limits")["activeSessions"].to_string();
            let history = usher.binding_get("/history");
            let mut past = history["history"].as_array().unwrap().iter();
            let mine = past.find(|one| one["sessionId"] == self.session.as_str())?;
            let over = !live.contains(&self.session) && !counted.contains(&self.session);
            (over && mine["closeReasonText"] == reason).then_some(())
        });
    }
}

fn open_page(client: &mut Devtools) -> String {
    let made = client.ask(
        None,
        "Target.createTarget",
        json!({"url": "about:blank#kept"}),
    );
    let attach = json!({"targetId": made["targetId"], "flatten": true});
    let attached = client.ask(None, "Target.attachToTarget", attach);
    attached["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn what_dies_is_noticed_on_time_and_nothing_is_left() {
    let one = json!({"min_ready": 1, "max": 1});
    let pools = REGIONS.map(|region| (region.to_owned(), one.clone()));
    let pools: serde_json::Map<String, Value> = pools.into_iter().collect();
    let config = Config::new().browsers();
    let mut usher = Usher::start(&config.set(&["browsers", "pools"], pools.into()));
    let long = secs(600);
    let Some(mut first) = Held::new(&usher, long, None) else {
        return;
    };
    let mut second = Held::new(&usher, long, None).unwrap();
    let mut third = Held::new(&usher, long, None).unwrap();
    assert_ne!(first.region, second.region);
    assert_ne!(first.region, third.region);
    assert_ne!(second.region, third.region);

    // The host of the third stands still; the rest happens meanwhile.
    let third_hangs = third.hang();
    let sleeper = Host::of(&usher, third.region);
    let of_sleeper = sleeper.members();
    let (slept, still) = (Instant::now(), Still::of(sleeper.process().unwrap()));

    page_crash(&mut first);
    browser_killed(&usher, &mut first);
    host_killed(&usher, &mut second);
    let asleep = Some(third.region);
    let mut first = Held::new(&usher, long, asleep).unwrap();
    let second = Held::new(&usher, long, asleep).unwrap();

    third.ends_badly(&usher, third_hangs, "ConnectionError");
    tell(
        "host stands still (SIGSTOP)",
        "error reply, 1011 ConnectionError, 404",
        slept,
        secs(30),
    );
    third.is_over(&usher, "ConnectionError", SOON);
    tell(
        "host stands still (SIGSTOP)",
        "session and slot are free",
        slept,
        secs(90),
    );
    let woke = Instant::now();
    drop(still);
    are_gone(&of_sleeper, secs(60));
    tell(
        "host wakes up",
        "what it had is ended, not served",
        woke,
        secs(60),
    );
    let fresh = Held::new(&usher, long, None).unwrap();
    assert_eq!(fresh.region, third.region, "the only one with room");
    tell("host wakes up", "it gives browsers again", woke, secs(90));

    close(&usher, fresh);
    // One that may be idle for 10 s, and that nobody will come back to.
    let idle = Held::new(&usher, secs(10), None).unwrap();
    usher = broker_killed(usher, idle, &mut first);
    close(&usher, second);
    broker_stands_still(&usher, &mut first);
}

fn close(usher: &Usher, held: Held) {
    let line = format!("DELETE /devtools/browser/{}", held.session);
    assert_eq!(usher.binding(&line).status(), 200);
}

fn page_crash(held: &mut Held) {
    let client = &mut held.client;
    client.ask(None, "Target.setDiscoverTargets", json!({"discover": true}));
    client.ask(Some(&held.page), "Inspector.enable", json!({}));
    let since = Instant::now();
    client.tell(Some(&held.page), "Page.crash", json!({}));
    let (mut of_page, mut of_browser) = (false, false);
    while !(of_page && of_browser) {
        let said = client.until(|message| message["method"].is_string());
        of_page |= said["method"] == "Inspector.targetCrashed" && said["sessionId"] == held.page;
        of_browser |= said["method"] == "Target.targetCrashed";
    }
    client.version();
    tell(
        "page crash",
        "Inspector.targetCrashed, Target.targetCrashed, session lives",
        since,
        SOON,
    );
    held.page = open_page(&mut held.client);
    let refused = held.client.tell(
        Some(&held.page),
        "Page.navigate",
        json!({"url": "chrome://crash"}),
    );
    let answer = held.client.until(|message| message["id"] == refused);
    assert!(answer["error"].is_object(), "{answer}");
    held.client.version();
}

fn browser_killed(usher: &Usher, held: &mut Held) {
    let host = Host::of(usher, held.region);
    let members = host.members();
    let hangs = held.hang();
    let since = Instant::now();
    for pid in host.browsers() {
        kill(pid);
    }
    held.ends_badly(usher, hangs, "ChromiumCrashed");
    tell(
        "kill -9 of a browser",
        "error reply, 1011 ChromiumCrashed, 404",
        since,
        SOON,
    );
    are_gone(&members, SOON);
    tell("kill -9 of a browser", "no process is left", since, SOON);
    held.is_over(usher, "ChromiumCrashed", SOON);
    tell(
        "kill -9 of a browser",
        "sessions, limits and history agree",
        since,
        secs(90),
    );
    host.until("ready", 1);
    tell(
        "kill -9 of a browser",
        "another one is ready",
        since,
        PATIENCE_OF_BROWSERS,
    );
}

fn host_killed(usher: &Usher, held: &mut Held) {
    let host = Host::of(usher, held.region);
    let members = host.members();
    let hangs = held.hang();
    let since = Instant::now();
    host.process().unwrap().signal(Signal::KILL);
    held.ends_badly(usher, hangs, "ConnectionError");
    tell(
        "kill -9 of a host",
        "error reply, 1011 ConnectionError, 404",
        since,
        secs(30),
    );
    are_gone(&members, SOON);
    tell(
        "kill -9 of a host",
        "no process of its browsers is left",
        since,
        SOON,
    );
    held.is_over(usher, "ConnectionError", secs(90));
    tell(
        "kill -9 of a host",
        "sessions, limits and history agree, slot free",
        since,
        secs(90),
    );
    host.until("ready", 1);
    tell(
        "kill -9 of a host",
        "a new host has a browser ready",
        since,
        PATIENCE_OF_BROWSERS,
    );
    let files = usher.path(&format!("var/browsers/{}/browsers", held.region));
    let left = std::fs::read_dir(files).map_or(0, Iterator::count);
    assert_eq!(left, 0, "files of browsers");
}

fn broker_killed(usher: Usher, idle: Held, held: &mut Held) -> Usher {
    let of_idle = Host::of(&usher, idle.region).members();
    held.client.version();
    let since = Instant::now();
    let folder = usher.kill();
    let (_, end) = held.client.last_words();
    assert_eq!(end, None, "nobody was there to say goodbye");
    tell("kill -9 of the broker", "connections are cut", since, SOON);
    are_gone(&of_idle, secs(30));
    tell(
        "kill -9 of the broker",
        "a browser that nobody comes back to is freed",
        since,
        secs(30),
    );
    let started = Instant::now();
    let usher = Usher::start_in(folder);
    held.client = usher.devtools(&held.session);
    let targets = held.client.ask(None, "Target.getTargets", json!({}));
    assert!(
        targets.to_string().contains("about:blank#kept"),
        "{targets}"
    );
    tell(
        "start after kill -9",
        "the session is connected to and has its page",
        started,
        SOON,
    );
    idle.is_over(&usher, "BrowserIdle", secs(90));
    tell(
        "start after kill -9",
        "the slot of the idle one is free",
        started,
        secs(90),
    );
    usher
}

/// Longer than a browser is promised, shorter than a session goes on alone: what it began may come
/// to nothing, and what was there goes on.
fn broker_stands_still(usher: &Usher, held: &mut Held) {
    let before = usher.binding_get("/sessions")["sessions"].to_string();
    let mut asked = usher.begin_acquire();
    let since = Instant::now();
    let still = Still::of(Process::numbered(usher.pid()));
    // Nothing tells of the time that passes for somebody who stands still.
    let until = since + secs(7);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
    drop(still);
    let answer = asked.response();
    match answer.status() {
        200 => {
            let told: Value = serde_json::from_slice(&answer.body).unwrap();
            let session = told["sessionId"].as_str().unwrap();
            assert!(!before.contains(session));
            usher.devtools(session).version();
        }
        503 => {}
        _ => panic!("{answer:?}"),
    }
    held.client.version();
    tell(
        "broker stands still for 7 s (SIGSTOP)",
        "sessions go on, the request is answered",
        since,
        secs(30),
    );
}
