//! Who gets a browser when there are fewer than wishes, and where one is taken: in line, by limits,
//! and from the nearest of two regions.
//!
//! Where the machine refuses namespaces, tests with real browsers say so and do nothing. Tests of
//! limits have a stand-in for browsers, as memory has no room for as many real ones.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::browsers::{PATIENCE_OF_BROWSERS, SECRET};
use crate::support::eventually_within;
use crate::support::hosts::{Host, Started, delayed};
use crate::support::message::Message;
use crate::support::process::Folder;
use crate::support::wire::Wire;
use crate::support::{Config, Usher};

const NONE: &str = "No browser available. Please try again in a few minutes.";
const OTHER: &str = "binding-secret-of-another";

/// What stands in for Chromium where there are too many.
const STAND_IN: &str = include_str!("../support/stand_in_browser.py");

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A request of a client of its own, not yet answered.
fn wish(address: SocketAddr, secret: &str, line: &str) -> Wire {
    let (method, path) = line.split_once(' ').unwrap();
    let mut wire = Wire::connect(address).patient();
    wire.send(format!(
        "{method} /v1{path} HTTP/1.1\r\nHost: fake.host\r\nusher-binding: {secret}\r\n\
         Connection: close\r\nContent-Length: 0\r\n\r\n"
    ));
    wire
}

fn session(answer: &Message) -> String {
    let told: Value = serde_json::from_slice(&answer.body).unwrap();
    told["sessionId"].as_str().unwrap().to_owned()
}

/// A browser, asked for again while none becomes ready in time: the machine may be slow. It may be
/// idle for longer than any test takes.
fn given(address: SocketAddr, secret: &str) -> Message {
    let began = Instant::now();
    loop {
        let answer = wish(address, secret, "GET /acquire?wait=20s&keep_alive=1200000").response();
        if answer.status() != 503 || began.elapsed() > 2 * PATIENCE_OF_BROWSERS {
            assert_eq!(answer.status(), 200, "{answer:?}");
            return answer;
        }
    }
}

/// The exact word that all browsers are taken.
fn is_capacity(answer: &Message) {
    assert_eq!((answer.status(), answer.text().as_str()), (503, NONE));
    let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((5..=30).contains(&wait), "{answer:?}");
}

fn in_use(usher: &Usher) -> usize {
    Host::of(usher, "WEU").count("in_use").unwrap_or(usize::MAX)
}

fn number(answer: &Message, field: &str) -> Option<u64> {
    Some(answer.field(field)?.parse().unwrap())
}

/// Fifty at once, ten of whom hang up, and four browsers: four different ones are given, and all
/// others get the word that there is none.
#[test]
fn fifty_at_once_get_different_browsers_or_the_refusal() {
    let pool = json!({"min_ready": 4, "max": 4});
    let config = Config::new().browsers();
    let usher = Usher::start(&config.set(&["browsers", "pools", "WEU"], pool));
    // Where there can be none it says so.
    let Some(first) = usher.acquire() else {
        return;
    };
    let closed = usher.binding(&format!("DELETE /devtools/browser/{first}"));
    assert_eq!(closed.status(), 200);
    Host::of(&usher, "WEU").until("ready", 4);
    let address = usher.address("binding");
    let start = Barrier::new(50);
    let began = Instant::now();
    let answers: Vec<Message> = thread::scope(|scope| {
        let asking: Vec<_> = (0..50)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let mut wish = wish(address, SECRET, "POST /devtools/browser");
                    if number % 5 == 4 {
                        wish.reset();
                        return None;
                    }
                    Some(wish.response())
                })
            })
            .collect();
        let answered = asking.into_iter().map(|asked| asked.join().unwrap());
        answered.flatten().collect()
    });
    let took = began.elapsed();
    assert_eq!(answers.len(), 40);
    let (given, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status() == 200);
    refused.into_iter().for_each(is_capacity);
    // A browser that was taken for one who hung up is ended, and the next may take its time.
    assert!((1..=8).contains(&given.len()), "{} given", given.len());
    println!(
        "50 acquires at once, 10 hang up, 4 browsers | {} given, {} times 503 | {:.1} s",
        given.len(),
        40 - given.len(),
        took.as_secs_f64()
    );
    // Each has its own: no page of one is seen by another.
    let sessions: Vec<String> = given.into_iter().map(session).collect();
    let mut clients: Vec<_> = sessions.iter().map(|it| usher.devtools(it)).collect();
    for (client, session) in clients.iter_mut().zip(&sessions) {
        let url = format!("about:blank#{session}");
        client.ask(None, "Target.createTarget", json!({"url": url}));
    }
    for (client, own) in clients.iter_mut().zip(&sessions) {
        let targets = client.ask(None, "Target.getTargets", json!({})).to_string();
        let seen: Vec<_> = sessions.iter().filter(|it| targets.contains(*it)).collect();
        assert_eq!(seen, [own]);
    }
    // Who hung up has nothing.
    eventually_within(
        "only sessions of those who were told",
        PATIENCE_OF_BROWSERS,
        || {
            let live = usher.binding_get("/sessions");
            let counted = usher.binding_get("/limits");
            let live = live["sessions"].as_array()?.len();
            let counted = counted["activeSessions"].as_array()?.len();
            (live == sessions.len() && counted == live && in_use(&usher) == live).then_some(())
        },
    );
}

/// No more than three are kept ready, so that one is the reserve. Browsers are stand-ins, of which a machine can have many.
fn stand_ins(max: u32, accounts: Value) -> Usher {
    let folder = Folder::new();
    // Browsers of a host that is root are somebody else.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
    let program = folder.write("stand-in-browser", STAND_IN);
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let pool = json!({"backend": "process", "min_ready": 3, "max_ready": 3, "max": max});
    let config = Config::new()
        .browsers()
        .set(&["browsers", "insecure_single_tenant"], json!(true))
        .set(&["browsers", "chromium"], json!(program))
        .set(&["browsers", "pools", "WEU"], pool)
        .set(&["accounts"], accounts);
    folder.write("usher.yaml", config.text());
    Usher::start_in(folder)
}

fn fast(secret: &str) -> Value {
    let limits = json!({"browsers_per_second": 1000, "browsers_burst": 1000});
    json!({"binding_secret": secret, "limits": limits})
}

/// The last ready browser is for an account that has none; who stands in line is told where, and
/// accounts take turns in it.
#[test]
fn one_account_cannot_shut_out_another() {
    let usher = stand_ins(3, json!({"default": fast(SECRET), "other": fast(OTHER)}));
    let host = Host::of(&usher, "WEU");
    let address = usher.address("binding");
    let asks = |secret: &str, line: &str| wish(address, secret, line).response();
    host.until("ready", 3);
    let theirs = given(address, OTHER);
    let closed = asks(
        OTHER,
        &format!("DELETE /devtools/browser/{}", session(&theirs)),
    );
    assert_eq!(closed.status(), 200);
    host.until("ready", 3);
    let mut mine = Vec::new();
    for _ in 0..2 {
        mine.push(session(&given(address, SECRET)));
    }
    let refused = asks(SECRET, "GET /acquire?wait=0s");
    is_capacity(&refused);
    assert_eq!(number(&refused, "usher-wait-place"), Some(1));
    assert_eq!(host.count("ready"), Some(1));
    let theirs = asks(OTHER, "GET /acquire?wait=0s");
    assert_eq!(theirs.status(), 200, "the reserve: {theirs:?}");

    // All three are taken. Six of one account stand in line, then one of the other.
    let waits = "GET /acquire?wait=30s";
    let waiting: Vec<Wire> = (0..6).map(|_| wish(address, SECRET, waits)).collect();
    let place_of_next = || number(&asks(OTHER, "GET /acquire?wait=0s"), "usher-wait-place");
    // One of each in turn: whoever comes next of the other account stands second at most.
    eventually_within("six in line", PATIENCE_OF_BROWSERS, || {
        let mine = number(&asks(SECRET, "GET /acquire?wait=0s"), "usher-wait-place");
        (mine == Some(7)).then_some(())
    });
    let place = place_of_next().unwrap();
    assert!(
        place <= 5,
        "place {place}: behind at most one turn of the other account"
    );
    let one_of_theirs = wish(address, OTHER, waits);
    let served = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let answered = waiting.into_iter().map(|wire| (SECRET, wire));
        for (of, mut wire) in answered.chain([(OTHER, one_of_theirs)]) {
            let served = &served;
            scope.spawn(move || {
                let answer = wire.response();
                assert_eq!(answer.status(), 200, "{answer:?}");
                assert!(number(&answer, "usher-wait-place").is_some(), "{answer:?}");
                served.lock().unwrap().push(of);
                // Given back at once, so that the line moves.
                let line = format!("DELETE /devtools/browser/{}", session(&answer));
                assert_eq!(wish(address, of, &line).response().status(), 200);
            });
        }
        for session in &mine {
            let line = format!("DELETE /devtools/browser/{session}");
            assert_eq!(wish(address, SECRET, &line).response().status(), 200);
        }
    });
    let served = served.into_inner().unwrap();
    println!("order in which a line of 6 and 1 was served: {served:?}");
    assert_eq!(served.len(), 7);
    // Enough have come free to tell how long the next one takes.
    let line = "GET /acquire?wait=0s";
    // One of the other account's is still in use, and the last one that is ready is kept back.
    given(address, SECRET);
    let refused = asks(SECRET, line);
    is_capacity(&refused);
    let estimate = number(&refused, "usher-wait-estimate").expect("an estimate");
    println!("estimate for the first in line: {estimate} ms");
}

/// 120 at once for an account and not one more, whoever races for the last.
#[test]
fn an_account_has_a_hundred_and_twenty_at_once() {
    const MOST: usize = 120;
    let usher = stand_ins(124, json!({"default": fast(SECRET), "other": fast(OTHER)}));
    let address = usher.address("binding");
    let began = Instant::now();
    let sessions = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while sessions.lock().unwrap().len() < MOST - 4 {
                    let answer = given(address, SECRET);
                    assert!(sessions.lock().unwrap().insert(session(&answer)));
                }
            });
        }
    });
    let mut sessions = sessions.into_inner().unwrap();
    while sessions.len() < MOST - 1 {
        sessions.insert(session(&given(address, SECRET)));
    }
    println!(
        "{} at once | {:.1} s",
        sessions.len(),
        began.elapsed().as_secs_f64()
    );
    Host::of(&usher, "WEU").until("ready", 3);
    // Eight race for the last one, by both ways of asking; and the other account does not notice.
    let start = Barrier::new(9);
    let race = |secret: &'static str, line: &'static str| {
        start.wait();
        wish(address, secret, line).response()
    };
    let race = &race;
    let (mine, theirs) = thread::scope(|scope| {
        let lines = ["GET /acquire?wait=30s", "POST /devtools/browser?wait=30s"];
        let mine: Vec<_> = (0..8)
            .map(|number| scope.spawn(move || race(SECRET, lines[number % 2])))
            .collect();
        let theirs = scope.spawn(move || race(OTHER, "GET /acquire?wait=30s"));
        let mine: Vec<Message> = mine.into_iter().map(|it| it.join().unwrap()).collect();
        (mine, theirs.join().unwrap())
    });
    assert_eq!(theirs.status(), 200, "{theirs:?}");
    let (first, refused): (Vec<_>, Vec<_>) = mine.iter().partition(|it| it.status() == 200);
    assert_eq!(first.len(), 1);
    for answer in refused {
        assert_eq!(answer.status(), 429);
        assert_eq!(answer.text(), "Too many concurrent browsers: limit is 120");
        assert_eq!(answer.field("retry-after"), Some("5"));
    }
    let limits = usher.binding_get("/limits");
    assert_eq!(limits["activeSessions"].as_array().unwrap().len(), MOST);
    assert_eq!(limits["maxConcurrentSessions"], MOST);
    // One goes, one comes.
    let line = format!("DELETE /devtools/browser/{}", sessions.first().unwrap());
    assert_eq!(wish(address, SECRET, &line).response().status(), 200);
    given(address, SECRET);
    is_over_the_limit(&usher);
}

fn is_over_the_limit(usher: &Usher) {
    let refused = usher.binding("GET /acquire?wait=0s");
    assert_eq!(refused.status(), 429, "{refused:?}");
}

/// One a second, a burst of five, and never more than sixty in any minute.
#[test]
fn an_account_gets_sixty_new_ones_a_minute() {
    let usher = stand_ins(6, json!({"default": {"binding_secret": SECRET}}));
    let address = usher.address("binding");
    Host::of(&usher, "WEU").until("ready", 3);
    let began = Instant::now();
    let mut granted: Vec<(Duration, Duration)> = Vec::new();
    let (mut refused, mut short) = (0, 0);
    while began.elapsed() < Duration::from_secs(66) {
        let asked = began.elapsed();
        let answer = wish(address, SECRET, "GET /acquire?wait=2s").response();
        let pause = match answer.status() {
            200 => {
                granted.push((asked, began.elapsed()));
                let line = format!("DELETE /devtools/browser/{}", session(&answer));
                assert_eq!(wish(address, SECRET, &line).response().status(), 200);
                continue;
            }
            429 => {
                assert_eq!(answer.text(), "Rate limit exceeded");
                let told = number(&answer, "retry-after").unwrap();
                assert!((1..=60).contains(&told), "{answer:?}");
                refused += 1;
                let limits = usher.binding_get("/limits");
                let wait = &limits["timeUntilNextAllowedBrowserAcquisition"];
                assert!(wait.as_u64().unwrap() <= told * 1_000, "{limits}");
                millis(wait.as_u64().unwrap().min(1_000))
            }
            _ => {
                is_capacity(&answer);
                short += 1;
                millis(10)
            }
        };
        thread::park_timeout(pause);
    }
    // A grant lies somewhere between question and answer, so a window that is a question's to the
    // end of an answer less than a minute later holds no more than it.
    for (at, &(_, first)) in granted.iter().enumerate() {
        let inside = granted[at..].iter();
        let inside = inside.filter(|(asked, _)| *asked >= first);
        let minute = first + Duration::from_secs(60);
        let inside = inside.filter(|(_, answered)| *answered < minute);
        assert!(inside.count() <= 60, "from {first:?}: {granted:?}");
    }
    let first = granted.first().unwrap().0;
    let minute = granted
        .iter()
        .filter(|(_, at)| *at < first + Duration::from_secs(60));
    let minute = minute.count();
    println!(
        "new browsers in the first minute | {minute} given, {refused} times 429, {short} times 503"
    );
    assert!(minute <= 60, "{minute} in the first minute");
    // A slow machine may have had none ready now and then.
    assert!(minute + short >= 50, "{minute} in the first minute");
}

/// Two hosts, one of them half a second away: the near one gives until it is empty, then the other;
/// and the other too when the near one is killed.
#[test]
fn the_nearest_of_two_regions_gives() {
    let folder = Folder::new();
    // A host of root has browsers that are somebody else.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
    let Some(far) = Started::new(&folder, "far", &["--max", "2"]) else {
        return;
    };
    let mut near = Started::new(&folder, "near", &["--max", "1"]).unwrap();
    let through = folder.path().join("through");
    delayed(&through, &folder.path().join("far/socket"), millis(250));
    let pool = |socket: &str| json!({"min_ready": 1, "socket": folder.path().join(socket)});
    // The far one comes first by name, so that nothing but the way speaks for the near one.
    let pools = json!({"WNAM": pool("through"), "WEU": pool("near/socket")});
    let config = Config::new().browsers().set(&["browsers", "pools"], pools);
    let usher = Usher::start(&config);
    far.host.until("ready", 1);
    near.host.until("ready", 1);
    let first = usher.acquire().unwrap();
    near.host.until("in_use", 1);
    assert_eq!(far.host.count("in_use"), Some(0));
    // The near one has room for no other.
    let began = Instant::now();
    let second = usher.acquire().unwrap();
    far.host.until("in_use", 1);
    println!(
        "near region empty | the far one gives | {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let (mut here, mut there) = (usher.devtools(&first), usher.devtools(&second));
    let way = |client: &mut crate::support::browsers::Devtools| {
        let began = Instant::now();
        client.version();
        began.elapsed()
    };
    let (by_near, by_far) = (way(&mut here), way(&mut there));
    println!("round trip of a command | near {by_near:?}, far {by_far:?}");
    assert!(by_far >= millis(500));
    far.host.until("ready", 1);
    // The near one has something again, and dies.
    let closed = usher.binding(&format!("DELETE /devtools/browser/{first}"));
    assert_eq!(closed.status(), 200);
    near.host.until("ready", 1);
    let began = Instant::now();
    near.kill();
    let third = usher.acquire().unwrap();
    far.host.until("in_use", 2);
    println!(
        "near host killed | the far one gives | {:.1} s",
        began.elapsed().as_secs_f64()
    );
    usher.devtools(&third).version();
}
