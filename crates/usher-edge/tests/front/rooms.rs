//! Waiting rooms as a visitor meets them: a front, a room with its owner, and an endpoint behind.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use usher_core::admission::{Answer, Claims, Method, Settings, Standing, Visitor};
use usher_core::id::Id;
use usher_core::rules::Condition;
use usher_edge::http::rooms::{Room, Rooms, WaitingPage};
use usher_edge::http::{AccessLog, LogTarget, Plane};
use usher_edge::seal::Keys;
use usher_rooms::clock::Clock;
use usher_rooms::cookie::{Attributes, Jar, SameSite};
use usher_rooms::door::{Door, Json};
use usher_rooms::owner::{Found, OnStoreFailure, Post};
use usher_rooms::route::PrefixMatch;
use usher_rooms::template::{OUTPUT_MAX, Template};
use usher_rooms::words::Language;

use crate::block_on;
use crate::h2_traffic::{connect, read, request};
use crate::kit::{HOST, Origin, PATIENCE, Peer, Setup, Usher, field, status};
use crate::seen::{end, scrape};

const ROOM: Id = Id::from_bytes([7; 16]);
const PATH: &str = "/sale";
const OWN: &str = "/sale/cdn-cgi/waitingroom";
const SECRET: &str = "a secret of these tests, and no other";
/// Nobody's.
const NOBODY: Visitor = Visitor::from_u128(u128::MAX);

/// A room's owner, on a thread of its own like a node's.
struct Owner {
    post: Post,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    fn start(settings: Settings, clock: Clock) -> Owner {
        let (begun, post) = channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            block_on(async {
                let found = Found::unkept();
                let post = found.start(settings, OnStoreFailure::Bounded, clock, 1);
                begun.send(post).expect("the test waits");
                let _ = stopped.await;
            });
        });
        Owner {
            post: post.recv().expect("an owner"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Nobody answers from now on.
    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }

    /// Sets this and waits until everybody can see it, and all that happened before.
    fn set(&self, settings: Settings) {
        block_on(async {
            let set = self.post.set(settings, OnStoreFailure::Bounded).await;
            set.expect("an owner");
            // The answer to the second question comes after the news of the first.
            for _ in 0..2 {
                let asked = self.post.renew(NOBODY, None).expect("an owner");
                assert_eq!(asked.answer().await, Ok(Answer::Ended));
            }
        });
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// A front whose `/sale` is a waiting room.
struct House {
    usher: Usher,
    owner: Owner,
    clock: Clock,
    settings: Settings,
    _origin: Origin,
}

/// What a test wants of its room.
struct Plan {
    settings: Settings,
    setup: Box<dyn Fn(&mut Setup)>,
    room: Box<dyn Fn(&mut Room)>,
}

impl Plan {
    /// A room of so many seats.
    fn of(seats: u64) -> Plan {
        Plan {
            settings: Settings::new(seats, 1000),
            setup: Box::new(|_| {}),
            room: Box::new(|_| {}),
        }
    }

    fn room(mut self, edit: impl Fn(&mut Room) + 'static) -> Plan {
        self.room = Box::new(edit);
        self
    }

    fn open(self) -> House {
        self.before(site())
    }

    fn before(self, origin: Origin) -> House {
        let clock = Clock::start(0);
        let owner = Owner::start(self.settings, clock);
        let mut setup = Setup::to(&[origin.address]);
        (self.setup)(&mut setup);
        let usher = setup.start();
        let mut room = room(owner.post.clone(), clock);
        (self.room)(&mut room);
        let mut rooms = Rooms::new();
        rooms.add(Arc::new(room), [(HOST, PATH)], PrefixMatch::Segments);
        usher.plane.open_rooms(rooms);
        House {
            usher,
            owner,
            clock,
            settings: self.settings,
            _origin: origin,
        }
    }
}

fn room(post: Post, clock: Clock) -> Room {
    Room {
        name: "sale".to_owned(),
        door: Door {
            room: ROOM,
            jar: jar(),
            post,
            clock,
            bypass: Vec::new(),
            on_failure: OnStoreFailure::Bounded,
            revocable: false,
            json: Json::Exact,
            show_position: true,
        },
        page: WaitingPage::BuiltIn,
        language: Language::EnUs,
        negotiate_language: false,
        status: 200,
        json_extensions: false,
        status_stream: true,
    }
}

fn keys(secret: &str) -> Arc<Keys> {
    Arc::new(Keys::new(&[secret]).expect("a good secret"))
}

fn jar() -> Jar {
    jar_of(ROOM, SECRET)
}

fn jar_of(room: Id, secret: &str) -> Jar {
    let attributes = Attributes {
        suffix: String::new(),
        path: PATH.to_owned(),
        domain: None,
        secure: false,
        same_site: SameSite::Lax,
    };
    Jar::new(room, &attributes, keys(secret))
}

/// An endpoint that says what it got, and in its head what the query asks for.
fn site() -> Origin {
    Origin::new(|peer, _, _| {
        while let Some(first) = peer.exactly_or_end(1) {
            let mut head = format!("{}{}", char::from(first[0]), peer.head());
            if let Some(length) = field(&head, "content-length") {
                let body = peer.exactly(length.parse().expect("a length"));
                head += &String::from_utf8(body).expect("text");
            }
            let revoke = if head.contains("revoke") {
                "cf-waiting-room-COMMAND:  revoke \r\n"
            } else {
                ""
            };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\n\
                 Surrogate-Control: max-age=600\r\n{revoke}Content-Length: {}\r\n\r\n{head}",
                head.len()
            ));
        }
    })
}

/// An answer, read.
#[derive(Debug)]
struct Told {
    head: String,
    body: String,
}

impl Told {
    fn status(&self) -> u16 {
        status(&self.head)
    }

    fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The endpoint answered.
    fn is_inside(&self) -> bool {
        self.body.contains("X-Forwarded-For")
    }

    /// The cookie as a browser sends it back.
    fn cookie(&self) -> String {
        let set = self.field("set-cookie").expect("a cookie");
        set.split(';').next().unwrap_or_default().to_owned()
    }

    /// What the cookie says.
    fn claims(&self) -> Claims {
        let cookie = self.cookie();
        let value = cookie.split_once('=').expect("a value").1;
        jar().open_value(value.as_bytes()).expect("claims of ours")
    }

    fn json(&self, key: &str) -> &str {
        let key = format!("\"{key}\":");
        let at = self
            .body
            .find(&key)
            .unwrap_or_else(|| panic!("{key} in {}", self.body));
        let rest = &self.body[at + key.len()..];
        rest.split([',', '}'])
            .next()
            .unwrap_or_default()
            .trim_matches('"')
    }
}

impl House {
    fn ask(&self, method: &str, path: &str, lines: &[(&str, &str)]) -> Told {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n");
        for (name, value) in lines {
            request += &format!("{name}: {value}\r\n");
        }
        let mut client = self.usher.client();
        client.send(request + "\r\n");
        let (head, body) = if method == "HEAD" {
            (client.head(), String::new())
        } else {
            client.message()
        };
        Told { head, body }
    }

    fn visit(&self, cookie: &str) -> Told {
        self.ask("GET", PATH, &[("Cookie", cookie)])
    }

    /// A visitor who was let in: its cookie.
    fn enter(&self) -> String {
        let told = self.ask("GET", PATH, &[]);
        assert!(told.is_inside(), "{told:?}");
        assert_eq!(told.claims().standing, Standing::Active);
        told.cookie()
    }

    /// A visitor who waits: its cookie.
    fn queue(&self) -> String {
        let told = self.ask("GET", PATH, &[]);
        assert!(!told.is_inside(), "{told:?}");
        assert_eq!(told.claims().standing, Standing::Waiting);
        told.cookie()
    }

    /// Until what happened can be seen from outside.
    fn settle(&self) {
        self.owner.set(self.settings);
    }

    fn set(&mut self, edit: impl FnOnce(&mut Settings)) {
        edit(&mut self.settings);
        self.settle();
    }

    fn status_of(&self, query: &str, cookie: &str) -> Told {
        let path = format!("{OWN}/status?room={ROOM}{query}");
        self.ask("GET", &path, &[("Cookie", cookie)])
    }
}

/// These claims, changed, as a cookie of ours.
fn resealed(cookie: &str, edit: impl FnOnce(&mut Claims)) -> String {
    let value = cookie.split_once('=').expect("a value").1;
    let mut claims = jar().open_value(value.as_bytes()).expect("claims of ours");
    edit(&mut claims);
    let set = jar().set(&claims, 60);
    set.split(';').next().unwrap_or_default().to_owned()
}

#[test]
fn who_is_let_in_is_answered_by_the_endpoint_and_keeps_the_seat() {
    let house = Plan::of(1).open();
    let outside = house.ask("GET", "/salesman", &[]);
    assert!(outside.is_inside(), "not the room's path");
    assert_eq!(outside.field("set-cookie"), None);
    assert_eq!(outside.field("cache-control"), Some("public, max-age=60"));
    let first = house.ask("POST", "/sale/buy", &[("Content-Length", "0")]);
    assert!(first.is_inside());
    assert!(first.body.starts_with("POST /sale/buy HTTP/1.1\r\n"));
    // No cache between keeps the cookie of one visitor for another.
    assert_eq!(first.field("cache-control"), Some("private, max-age=60"));
    assert_eq!(first.field("surrogate-control"), None);
    let set = first.field("set-cookie").expect("a cookie");
    assert!(
        set.contains("; Max-Age=310; Path=/sale; HttpOnly; SameSite=Lax"),
        "{set}"
    );
    // Known by its cookie, and given no other before a renewal is due.
    let again = house.visit(&first.cookie());
    assert!(again.is_inside());
    assert_eq!(again.field("set-cookie"), None);
    assert_eq!(again.field("cache-control"), Some("public, max-age=60"));
    // The only seat is taken, by whichever way one comes.
    for path in [
        "/sale",
        "/sale/x",
        "//sale",
        "/%73ale",
        "/a/../sale",
        "/sale?a=b",
    ] {
        assert!(!house.ask("GET", path, &[]).is_inside(), "{path}");
    }
}

#[test]
fn who_waits_gets_a_page_that_nobody_keeps_and_a_place_that_lasts() {
    let house = Plan::of(1).open();
    house.enter();
    let told = house.ask(
        "GET",
        "/sale/a?b=c",
        &[("If-None-Match", "\"x\""), ("Range", "bytes=0-1")],
    );
    assert_eq!(told.status(), 200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "private, no-store, max-age=0"),
        ("cdn-cache-control", "no-store"),
        ("surrogate-control", "no-store"),
        ("vary", "Accept, Cookie"),
        ("x-robots-tag", "noindex"),
        ("referrer-policy", "same-origin"),
        ("usher-waiting-room", "waiting; refresh=20"),
        ("expires", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ] {
        assert_eq!(told.field(name), Some(value), "{name}");
    }
    for name in [
        "refresh",
        "etag",
        "last-modified",
        "retry-after",
        "location",
    ] {
        assert_eq!(told.field(name), None, "{name}");
    }
    let policy = told.field("content-security-policy").expect("a policy");
    let nonce = policy
        .split("'nonce-")
        .nth(1)
        .and_then(|rest| rest.split('\'').next());
    let nonce = nonce.expect("a nonce");
    assert!(
        told.body.contains(&format!("<script nonce=\"{nonce}\">")),
        "{}",
        told.body
    );
    assert!(told.body.contains(&format!("data-path=\"{OWN}/\"")));
    assert!(told.body.contains("<dd id=\"place\">1</dd>"));
    assert!(
        told.field("set-cookie")
            .expect("a cookie")
            .contains("; Max-Age=300; ")
    );
    let second = house.queue();
    house.settle();
    // Too soon to count: nothing is given anew, and the place is the same.
    let again = house.visit(&second);
    assert_eq!(again.field("set-cookie"), None);
    assert!(
        again.body.contains("<dd id=\"place\">2</dd>"),
        "{}",
        again.body
    );
    // Some while later it counts.
    let later = resealed(&second, |claims| claims.last_check_in -= 20_000);
    let again = house.visit(&later);
    let claims = again.claims();
    assert_eq!(claims.ticket, resealed_claims(&second).ticket);
    assert!(claims.last_check_in >= house.clock.now() - 60_000);
    assert_ne!(
        policy,
        again.field("content-security-policy").expect("a policy")
    );
}

fn resealed_claims(cookie: &str) -> Claims {
    let value = cookie.split_once('=').expect("a value").1;
    jar().open_value(value.as_bytes()).expect("claims of ours")
}

#[test]
fn each_kind_of_request_has_its_answer() {
    let house = Plan::of(1).open();
    house.enter();
    let waiting = house.queue();
    house.settle();
    let waiting = waiting.as_str();
    let image = ("Sec-Fetch-Dest", "image");
    let json = ("Accept", " Application/JSON ");
    // Method, lines, media type of the answer, whether it has a body, whether a ticket is given.
    type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a str, bool, bool);
    let rows: [Row<'_>; 9] = [
        ("GET", vec![], "text/html; charset=utf-8", true, true),
        (
            "POST",
            vec![("Content-Length", "0")],
            "text/html; charset=utf-8",
            true,
            true,
        ),
        ("HEAD", vec![], "text/html; charset=utf-8", false, false),
        (
            "GET",
            vec![image],
            "text/plain; charset=utf-8",
            false,
            false,
        ),
        (
            "GET",
            vec![image, ("Cookie", waiting)],
            "text/plain; charset=utf-8",
            false,
            false,
        ),
        ("GET", vec![json], "application/json", true, true),
        (
            "GET",
            vec![("Sec-Fetch-Dest", "empty"), json],
            "application/json",
            true,
            true,
        ),
        (
            "GET",
            vec![("Accept", "application/json, */*")],
            "text/html; charset=utf-8",
            true,
            true,
        ),
        (
            "GET",
            vec![("Sec-Fetch-Dest", "iframe")],
            "text/html; charset=utf-8",
            true,
            true,
        ),
    ];
    for (method, lines, media, body, ticket) in rows {
        let told = house.ask(method, PATH, &lines);
        assert_eq!(told.status(), 200, "{method} {lines:?}");
        assert_eq!(
            told.field("content-type"),
            Some(media),
            "{method} {lines:?}"
        );
        assert_eq!(
            told.field("usher-waiting-room"),
            Some("waiting; refresh=20")
        );
        assert_eq!(!told.body.is_empty(), body, "{method} {lines:?}");
        assert_eq!(
            told.field("set-cookie").is_some(),
            ticket,
            "{method} {lines:?}"
        );
    }
    // What was posted is not done again by the page.
    let posted = house.ask("POST", PATH, &[("Content-Length", "0")]);
    assert!(posted.body.contains(" data-once"));
    let told = house.ask("GET", PATH, &[json]);
    assert_eq!(told.json("inWaitingRoom"), "true");
    assert_eq!(told.json("queueingMethod"), "fifo");
    assert!(!told.body.contains("\"usher\""), "{}", told.body);
    // A browser that asks whether it may ask is nobody's matter.
    let preflight = [
        ("Origin", "https://example.com"),
        ("Access-Control-Request-Method", "PUT"),
    ];
    assert!(house.ask("OPTIONS", PATH, &preflight).is_inside());
    assert!(!house.ask("OPTIONS", PATH, &[]).is_inside());
    // A WebSocket is a part of a page.
    let socket = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];
    let told = house.ask("GET", PATH, &socket);
    assert_eq!((told.status(), told.body.as_str()), (200, ""));
}

#[test]
fn parts_of_a_page_pass_while_nobody_waits() {
    let house = Plan::of(2).open();
    let image = [("Sec-Fetch-Dest", "image")];
    for _ in 0..3 {
        let told = house.ask("GET", PATH, &image);
        assert!(told.is_inside());
        assert_eq!(told.field("set-cookie"), None);
        let told = house.ask("HEAD", PATH, &[]);
        assert_eq!(told.field("set-cookie"), None);
    }
    // None of them has taken a seat.
    house.enter();
    house.enter();
}

#[test]
fn the_operator_says_the_status_and_whether_json_tells_more() {
    let house = Plan::of(0).room(|room| {
        room.status = 429;
        room.json_extensions = true;
        room.door.json = Json::Lenient;
    });
    let house = house.open();
    let told = house.ask(
        "GET",
        PATH,
        &[("Accept", "application/json; charset=utf-8")],
    );
    assert_eq!(told.status(), 429);
    assert_eq!(told.field("retry-after"), Some("20"));
    assert_eq!(told.json("position"), "1");
    assert_eq!(told.json("state"), "waiting");
}

#[test]
fn methods_and_switches_decide_for_those_without_a_seat() {
    let mut house = Plan::of(2).open();
    let seated = house.enter();
    type Edit = fn(&mut Settings);
    // What is set, what a newcomer is told, and whether it gets in.
    let rows: [(Edit, &str, Option<&str>); 5] = [
        (
            |set| set.queue_all = true,
            "waiting",
            Some("waiting; refresh=20"),
        ),
        (
            |set| set.method = Method::Reject,
            "reject",
            Some("rejected"),
        ),
        (|set| set.method = Method::Passthrough, "passthrough", None),
        (|set| set.suspended = true, "suspended", None),
        (
            |set| (set.method, set.queue_all) = (Method::Reject, true),
            "all are held",
            Some("waiting; refresh=20"),
        ),
    ];
    for (edit, name, word) in rows {
        house.settings = Settings::new(2, 1000);
        house.set(edit);
        let told = house.ask("GET", PATH, &[]);
        assert_eq!(told.is_inside(), word.is_none(), "{name}");
        assert_eq!(told.field("usher-waiting-room"), word, "{name}");
        // Whoever is inside stays.
        assert!(house.visit(&seated).is_inside(), "{name}");
    }
    // A room that is off gives no cookie and takes none.
    house.settings = Settings::new(2, 1000);
    house.set(|set| set.suspended = true);
    let told = house.visit("__cfwaitingroom=x");
    assert!(told.is_inside());
    assert_eq!(told.field("set-cookie"), None);
    assert_eq!(told.field("cache-control"), Some("public, max-age=60"));
    // Turned away: no cookie, and no use in asking again.
    house.set(|set| (set.suspended, set.method) = (false, Method::Reject));
    let told = house.ask("GET", PATH, &[]);
    for name in ["set-cookie", "refresh", "retry-after"] {
        assert_eq!(told.field(name), None, "{name}");
    }
    assert!(told.body.contains("data-refresh=\"0\""), "{}", told.body);
}

#[test]
fn a_full_line_gives_no_ticket_but_a_page_that_asks_again() {
    let mut house = Plan::of(0).open();
    house.settings.queue_len_max = 1;
    house.settle();
    house.queue();
    house.settle();
    let told = house.ask("GET", PATH, &[("Accept", "application/json")]);
    assert_eq!(told.json("queueIsFull"), "true");
    let told = house.ask("GET", PATH, &[]);
    assert_eq!(told.field("set-cookie"), None);
    assert_eq!(
        told.field("usher-waiting-room"),
        Some("waiting; refresh=20")
    );
    assert!(told.body.contains(" data-new"), "{}", told.body);
    // The page asks as one that has no place, and gets one when there is room.
    let told = house.status_of("&language=en-US&new", "");
    assert_eq!(told.json("state"), "full");
    house.set(|set| set.queue_len_max = 2);
    let told = house.status_of("&language=en-US&new", "");
    assert_eq!(told.json("state"), "waiting");
    assert_eq!(told.claims().standing, Standing::Waiting);
}

#[test]
fn a_rule_lets_pass_without_a_seat() {
    let house = Plan::of(0).room(|room| {
        let rule = r#"http.request.uri.path eq "/sale/open""#;
        room.door.bypass = vec![Condition::parse(rule).expect("a rule")];
    });
    let house = house.open();
    let told = house.ask("GET", "/sale/open", &[]);
    assert!(told.is_inside());
    assert_eq!(told.field("set-cookie"), None);
    assert!(!house.ask("GET", "/sale", &[]).is_inside());
}

#[test]
fn a_renewal_goes_beside_the_request_and_a_late_one_before_it() {
    let house = Plan::of(1).open();
    let seated = house.enter();
    // Due by now: whether the owner has answered before the endpoint does is chance; the request
    // passes either way.
    let due = resealed(&seated, |claims| claims.renew_from = house.clock.now() - 1);
    assert!(house.visit(&due).is_inside());
    // Long due: the owner is asked first, and its answer comes along.
    let late = resealed(&seated, |claims| {
        claims.renew_from = house.clock.now() - 20_000
    });
    let told = house.visit(&late);
    assert!(told.is_inside());
    assert_eq!(told.claims().visitor, resealed_claims(&seated).visitor);
    // Over by the cookie: the owner is asked, and knows better.
    let over = resealed(&seated, |claims| claims.lease_until = house.clock.now() - 1);
    assert!(house.visit(&over).is_inside());
}

#[test]
fn cookies_of_others_are_no_cookies() {
    let house = Plan::of(1).open();
    let seated = house.enter();
    let value = seated.split_once('=').expect("a value").1.to_owned();
    let flipped = if value.starts_with('A') { 'B' } else { 'A' };
    let claims = resealed_claims(&seated);
    let set = |jar: Jar| {
        let set = jar.set(&claims, 60);
        set.split(';').next().unwrap_or_default().to_owned()
    };
    for (name, cookie) in [
        ("forged", "__cfwaitingroom=AAAA".to_owned()),
        ("empty", "__cfwaitingroom=".to_owned()),
        (
            "truncated",
            format!("__cfwaitingroom={}", &value[..value.len() - 4]),
        ),
        (
            "damaged",
            format!("__cfwaitingroom={}{}", flipped, &value[1..]),
        ),
        (
            "of another room",
            set(jar_of(Id::from_bytes([8; 16]), SECRET)),
        ),
        (
            "of an unknown key",
            set(jar_of(ROOM, "another secret of these tests, as long")),
        ),
        ("under another name", format!("__cfwaitingroom_x={value}")),
        ("long", format!("__cfwaitingroom={}", "A".repeat(4000))),
    ] {
        let told = house.visit(&cookie);
        assert!(!told.is_inside(), "{name}");
        assert_eq!(told.status(), 200, "{name}");
        assert_ne!(told.claims().visitor, claims.visitor, "{name}");
    }
    // The first good one counts, wherever it stands.
    let lines = [
        ("Cookie", "a=b; __cfwaitingroom=x"),
        ("Cookie", seated.as_str()),
    ];
    assert!(house.ask("GET", PATH, &lines).is_inside());
    // By a program that keeps no cookies.
    let token = [("Usher-Waiting-Room-Token", value.as_str())];
    assert!(house.ask("GET", PATH, &token).is_inside());
    // From the future: the owner is asked, and knows no seat of such a visitor.
    let stranger = resealed(&seated, |claims| {
        claims.visitor = Visitor::from_u128(5);
        claims.last_check_in += 60_000;
        claims.renew_from += 60_000;
        claims.lease_until += 60_000;
    });
    assert!(!house.visit(&stranger).is_inside());
    // A copy is the same visitor: together they have one seat.
    assert!(house.visit(&seated).is_inside());
    assert!(!house.ask("GET", PATH, &[]).is_inside());
}

#[test]
fn a_program_without_cookies_carries_a_token() {
    let house = Plan::of(0).open();
    let told = house.ask("GET", PATH, &[("Usher-Waiting-Room-Token", "")]);
    let token = told.field("usher-waiting-room-token").expect("a token");
    assert_eq!(told.cookie(), format!("__cfwaitingroom={token}"));
    let again = house.ask("GET", PATH, &[("Usher-Waiting-Room-Token", token)]);
    assert!(again.body.contains("<dd id=\"place\">1</dd>"));
    // Nobody else is told.
    assert_eq!(
        house
            .ask("GET", PATH, &[])
            .field("usher-waiting-room-token"),
        None
    );
}

#[test]
fn an_endpoint_ends_the_seat_of_whom_it_answers() {
    let house = Plan::of(1).room(|room| room.door.revocable = true).open();
    let seated = house.enter();
    let waiting = house.queue();
    let told = house.ask("GET", "/sale?revoke", &[("Cookie", &seated)]);
    assert!(told.is_inside());
    assert_eq!(told.field("cf-waiting-room-command"), None);
    let cleared = "__cfwaitingroom=; Max-Age=0; Path=/sale; HttpOnly; SameSite=Lax";
    assert_eq!(told.field("set-cookie"), Some(cleared));
    house.settle();
    // The seat is another's now.
    assert!(house.visit(&waiting).is_inside());
    assert!(!house.ask("GET", PATH, &[]).is_inside());

    let house = Plan::of(1).open();
    let seated = house.enter();
    let told = house.ask("GET", "/sale?revoke", &[("Cookie", &seated)]);
    assert_eq!(told.field("cf-waiting-room-command"), None);
    assert_eq!(told.field("set-cookie"), None);
    assert!(house.visit(&seated).is_inside(), "not by this room's leave");
}

#[test]
fn who_was_let_in_keeps_the_seat_when_the_endpoint_fails() {
    let mut plan = Plan::of(1);
    plan.setup = Box::new(|setup| setup.endpoints = vec![Origin::closed()]);
    let house = plan.open();
    let told = house.ask("GET", PATH, &[]);
    assert_eq!(told.status(), 521);
    assert_eq!(told.claims().standing, Standing::Active);
    assert_eq!(house.visit(&told.cookie()).status(), 521);
    assert_eq!(
        house.ask("GET", PATH, &[]).status(),
        200,
        "it waits for the same"
    );
}

#[test]
fn a_plain_request_for_a_site_of_https_is_redirected_and_takes_nothing() {
    let mut plan = Plan::of(1);
    plan.setup = Box::new(|setup| setup.always_use_https = true);
    let house = plan.open();
    let told = house.ask("GET", PATH, &[]);
    assert_eq!((told.status(), told.field("set-cookie")), (301, None));
}

#[test]
fn a_page_of_the_operators_own() {
    let own = |text: &'static str| {
        Plan::of(0).room(move |room| {
            let template = Template::parse(text).expect("a template");
            room.page = WaitingPage::Own {
                template,
                refresh: true,
            };
            room.language = Language::KoKr;
            room.negotiate_language = true;
        })
    };
    let house = own("<p>{{roomName}} {{position}} {{language}}</p>").open();
    let told = house.ask("GET", PATH, &[("Accept-Language", "fr-CA, en;q=0.5")]);
    assert_eq!(told.body, "<p>sale 1 fr-FR</p>");
    assert_eq!(told.field("refresh"), Some("20"));
    assert_eq!(told.field("content-security-policy"), None);
    let told = house.ask("GET", PATH, &[]);
    assert_eq!(told.body, "<p>sale 2 ko-KR</p>");
    // One that grows too long gives way to the built-in page.
    let long: &str = Box::leak("x".repeat(OUTPUT_MAX + 1).into_boxed_str());
    let told = own(long).open().ask("GET", PATH, &[]);
    assert_eq!(told.field("refresh"), None);
    assert!(
        told.body.contains("lang=\"ko-KR\""),
        "{} bytes",
        told.body.len()
    );
}

#[test]
fn a_page_learns_its_state_and_a_called_visitor_enters_by_the_next_request() {
    let house = Plan::of(1).open();
    let seated = house.enter();
    let waiting = house.queue();
    house.settle();
    let told = house.status_of("&language=ar-EG", &waiting);
    assert_eq!((told.status(), told.json("state")), (200, "waiting"));
    assert_eq!(told.field("content-type"), Some("application/json"));
    assert_eq!(
        told.field("cache-control"),
        Some("private, no-store, max-age=0")
    );
    assert_eq!(told.json("place"), "١");
    // At the root too, for whoever carries the cookie there.
    let path = format!("/cdn-cgi/waitingroom/status?room={ROOM}");
    let told = house.ask("GET", &path, &[("Cookie", &waiting)]);
    assert_eq!(told.json("inWaitingRoom"), "true");
    assert!(!told.body.contains("\"page\""));

    let left = house.ask(
        "POST",
        &format!("{OWN}/leave?room={ROOM}"),
        &[("Cookie", &seated)],
    );
    assert_eq!(left.status(), 204);
    house.settle();
    // Called, and told so as often as it asks; the seat is taken by a request that gets in.
    for _ in 0..2 {
        let told = house.status_of("&language=en-US", &waiting);
        assert_eq!(told.json("state"), "called");
        assert_ne!(told.json("claimBy"), "null");
        assert_eq!(told.field("set-cookie"), None);
    }
    let told = house.visit(&waiting);
    assert!(told.is_inside());
    let told = house.status_of("&language=en-US", &told.cookie());
    assert_eq!(told.json("state"), "active");
}

#[test]
fn a_program_is_let_in_by_asking_for_its_state() {
    let house = Plan::of(1).open();
    let seated = house.enter();
    let waiting = house.queue();
    let left = house.ask(
        "POST",
        &format!("{OWN}/leave?room={ROOM}"),
        &[("Cookie", &seated)],
    );
    assert!(
        left.field("set-cookie")
            .expect("a cookie")
            .starts_with("__cfwaitingroom=; Max-Age=0;")
    );
    house.settle();
    let told = house.status_of("", &waiting);
    assert_eq!(told.json("inWaitingRoom"), "false");
    assert_eq!(told.claims().standing, Standing::Active);
    assert!(house.visit(&told.cookie()).is_inside());
}

#[test]
fn a_browser_without_cookies_is_told_so() {
    let house = Plan::of(0).open();
    let told = house.status_of("&language=en-US", "");
    assert_eq!(told.json("state"), "cookies_needed");
    assert_eq!(told.field("set-cookie"), None);
    // Without a script: the page comes from itself, and no cookie with it.
    let referer = format!("http://{HOST}{PATH}");
    let told = house.ask("GET", PATH, &[("Referer", &referer)]);
    assert!(
        told.body.contains("data-stage=\"cookies_needed\""),
        "{}",
        told.body
    );
    // Whose cookie had only run out has one again, and a place.
    let again = house.ask(
        "GET",
        PATH,
        &[("Referer", &referer), ("Cookie", &told.cookie())],
    );
    assert!(
        again.body.contains("data-stage=\"waiting\""),
        "{}",
        again.body
    );
    let told = house.ask("GET", PATH, &[("Referer", "http://example.com/sale")]);
    assert!(
        told.body.contains("data-stage=\"waiting\""),
        "{}",
        told.body
    );
}

#[test]
fn our_own_paths_are_never_queued_and_refuse_what_they_do_not_know() {
    let house = Plan::of(0).open();
    let other = Id::from_bytes([9; 16]);
    let rows = [
        ("GET", format!("{OWN}/status?room={other}"), 404),
        ("GET", format!("{OWN}/status"), 404),
        ("GET", format!("{OWN}/status?room=x"), 404),
        (
            "GET",
            format!("/other/cdn-cgi/waitingroom/status?room={ROOM}"),
            404,
        ),
        ("GET", format!("{OWN}/nothing?room={ROOM}"), 404),
        ("GET", format!("{OWN}/?room={ROOM}"), 404),
        ("POST", format!("{OWN}/status?room={ROOM}"), 405),
        ("HEAD", format!("{OWN}/status?room={ROOM}"), 200),
        ("POST", format!("{OWN}/stream?room={ROOM}"), 405),
        ("GET", format!("{OWN}/leave?room={ROOM}"), 405),
        ("POST", format!("{OWN}/leave?room={other}"), 404),
        ("POST", format!("{OWN}/leave?room={ROOM}"), 204),
        ("POST", format!("{OWN}/challenge?room={ROOM}"), 501),
        ("GET", format!("{OWN}/stream?room={ROOM}"), 204),
    ];
    for (method, path, expected) in rows {
        let told = house.ask(method, &path, &[("Content-Length", "0")]);
        assert_eq!(told.status(), expected, "{method} {path}");
        assert!(!told.is_inside());
        if expected == 405 {
            assert!(told.field("allow").is_some());
        }
    }
    let host = "GET /cdn-cgi/waitingroom/status?room=07070707070707070707070707070707 \
                HTTP/1.1\r\nHost: other.example.com\r\n\r\n";
    assert_eq!(
        status(&house.usher.ask(host).0),
        404,
        "the room has nothing there"
    );
    // Only the site's own pages end what a visitor has.
    let leave = format!("{OWN}/leave?room={ROOM}");
    let waiting = house.queue();
    let cookie = ("Cookie", waiting.as_str());
    let own = format!("http://{HOST}");
    for (name, value, expected) in [
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
        ("Origin", "https://example.net", 403),
        ("Origin", "null", 403),
        ("Origin", own.as_str(), 204),
        ("Sec-Fetch-Site", "same-origin", 204),
    ] {
        let lines = [cookie, (name, value), ("Content-Length", "0")];
        let told = house.ask("POST", &leave, &lines);
        assert_eq!(told.status(), expected, "{name}: {value}");
        assert_eq!(told.field("set-cookie").is_some(), expected == 204);
    }
}

#[test]
fn the_page_of_a_room_that_is_gone_hears_so() {
    let house = Plan::of(0).open();
    let waiting = house.queue();
    house.usher.plane.open_rooms(Rooms::new());
    assert_eq!(house.status_of("&language=en-US", &waiting).status(), 404);
    assert!(house.visit(&waiting).is_inside());
}

/// The next event of a stream, without what keeps it alive.
fn event(client: &mut Peer) -> String {
    loop {
        let size = usize::from_str_radix(client.until("\r\n").trim_end(), 16).expect("size");
        let piece = String::from_utf8(client.exactly(size)).expect("text");
        assert_eq!(client.exactly(2), b"\r\n");
        if piece.is_empty() || piece.starts_with("data: ") {
            return piece;
        }
    }
}

fn stream(house: &House, cookie: &str) -> Peer {
    let mut client = house.usher.client();
    client.send(format!(
        "GET {OWN}/stream?room={ROOM}&language=en-US HTTP/1.1\r\nHost: {HOST}\r\n\
         Cookie: {cookie}\r\n\r\n"
    ));
    let head = client.head();
    assert_eq!(status(&head), 200);
    assert_eq!(field(&head, "content-type"), Some("text/event-stream"));
    client
}

#[test]
fn a_stream_calls_at_once_and_ends_with_that() {
    let house = Plan::of(1).open();
    let seated = house.enter();
    let waiting = house.queue();
    house.settle();
    let mut client = stream(&house, &waiting);
    let first = event(&mut client);
    assert!(first.contains("\"state\":\"waiting\""), "{first}");
    let left = house.ask(
        "POST",
        &format!("{OWN}/leave?room={ROOM}"),
        &[("Cookie", &seated)],
    );
    assert_eq!(left.status(), 204);
    let called = event(&mut client);
    assert!(called.contains("\"state\":\"called\""), "{called}");
    assert!(called.contains("\"enterBy\":\"2"), "{called}");
    assert_eq!(event(&mut client), "", "it is over");
    // The connection serves on.
    client.send(format!(
        "GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nCookie: {waiting}\r\n\r\n"
    ));
    let (head, body) = client.message();
    assert!(Told { head, body }.is_inside());
}

#[test]
fn streams_end_with_their_room_and_with_their_listener() {
    let mut plan = Plan::of(0);
    plan.settings.refresh_ms = 1_000_000;
    let house = plan.open();
    let waiting = house.queue();
    let mut client = stream(&house, &waiting);
    event(&mut client);
    let metrics = scrape(&house.usher.plane);
    assert!(metrics.contains("usher_room_streams 1\n"), "{metrics}");
    let mut other = stream(&house, &waiting);
    event(&mut other);
    house.usher.plane.open_rooms(Rooms::new());
    assert_eq!(event(&mut client), "", "the room is gone");

    let house = Plan::of(0).open();
    let waiting = house.queue();
    let mut client = stream(&house, &waiting);
    event(&mut client);
    std::thread::scope(|scope| {
        scope.spawn(|| block_on(house.usher.front.drain(PATIENCE)));
        assert_eq!(event(&mut client), "");
        client.ended();
        // Whoever drains waits for that.
        drop(client);
    });
}

#[test]
fn without_an_owner_seats_hold_and_nobody_new_is_let_in() {
    for (on_failure, inside) in [
        (OnStoreFailure::Bounded, false),
        (OnStoreFailure::Closed, false),
        (OnStoreFailure::Open, true),
    ] {
        let plan = Plan::of(2).room(move |room| room.door.on_failure = on_failure);
        let mut house = plan.open();
        let seated = house.enter();
        house.owner.end();
        assert!(house.visit(&seated).is_inside(), "{on_failure:?}");
        let late = resealed(&seated, |claims| {
            claims.renew_from = house.clock.now() - 20_000
        });
        assert!(house.visit(&late).is_inside(), "{on_failure:?}");
        let told = house.ask("GET", PATH, &[]);
        assert_eq!(told.is_inside(), inside, "{on_failure:?}");
        assert_eq!(told.field("set-cookie"), None, "{on_failure:?}");
    }
}

#[test]
fn http_2_is_served_as_http_1_is() {
    let house = Plan::of(1).open();
    house.enter();
    house.settle();
    block_on(async {
        let mut client = connect(&house.usher).await;
        let (answer, _) = client
            .send_request(request("GET", PATH), true)
            .expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.headers()["usher-waiting-room"],
            "waiting; refresh=20"
        );
        let cookie = answer.headers()["set-cookie"]
            .to_str()
            .expect("text")
            .to_owned();
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        assert!(read(answer).await.0.contains("<dd id=\"place\">1</dd>"));

        // Its stream is one of many.
        let mut asked = request("GET", &format!("{OWN}/stream?room={ROOM}"));
        asked
            .headers_mut()
            .insert("cookie", cookie.parse().expect("value"));
        let (answer, _) = client.send_request(asked, true).expect("send");
        let mut events = answer.await.expect("answer").into_body();
        let first = events.data().await.expect("an event").expect("data");
        assert!(first.starts_with(b"data: {\"cfWaitingRoom\":{\"inWaitingRoom\":true,"));
        drop(events);

        // 200 would open the WebSocket.
        let mut asked = http::Request::builder()
            .method("CONNECT")
            .uri(format!("http://{HOST}{PATH}"))
            .body(())
            .expect("request");
        let websocket = h2::ext::Protocol::from_static("websocket");
        asked.extensions_mut().insert(websocket);
        let mut client = client.ready().await.expect("ready");
        let (answer, _send) = client.send_request(asked, false).expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.status(), 429);
        assert_eq!(answer.headers()["retry-after"], "20");
    });
    let house = Plan::of(1).open();
    block_on(async {
        let mut client = connect(&house.usher).await;
        let (answer, _) = client
            .send_request(request("GET", "/sale?revoke"), true)
            .expect("send");
        let answer = answer.await.expect("answer");
        let fields = answer.headers();
        assert_eq!(fields["cache-control"], "private, max-age=60");
        assert!(!fields.contains_key("surrogate-control"));
        assert!(!fields.contains_key("cf-waiting-room-command"));
        assert!(
            fields["set-cookie"]
                .to_str()
                .expect("text")
                .starts_with("__cfwaitingroom=")
        );
        read(answer).await;
    });
}

#[test]
fn log_and_figures_say_what_the_room_made_of_each_request() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("access.log");
    let mut plan = Plan::of(1).room(|room| {
        let rule = r#"http.request.uri.path eq "/sale/open""#;
        room.door.bypass = vec![Condition::parse(rule).expect("a rule")];
    });
    let log = path.clone();
    plan.setup = Box::new(move |setup| {
        setup.access_log = AccessLog::open(LogTarget::File(log.clone())).expect("log");
    });
    let mut house = plan.open();
    house.ask("GET", "/", &[]);
    let seated = house.enter();
    house.visit(&seated);
    house.visit("__cfwaitingroom=forged");
    house.ask("GET", "/sale/open", &[]);
    house.set(|set| set.method = Method::Reject);
    house.ask("GET", PATH, &[]);
    house.set(|set| set.suspended = true);
    house.ask("GET", PATH, &[]);
    let House { usher, .. } = house;
    let plane: Arc<Plane> = end(usher);
    let log = std::fs::read_to_string(&path).expect("log");
    let words: Vec<&str> = log
        .lines()
        .map(|line| line.split("\"room\":\"").nth(1).expect("a word"))
        .map(|rest| rest.split('"').next().unwrap_or_default())
        .collect();
    let expected = [
        "none", "admitted", "active", "queued", "bypassed", "rejected", "none",
    ];
    assert_eq!(words, expected, "{log}");
    let text = scrape(&plane);
    for line in [
        r#"usher_room_requests_total{room="sale",outcome="active"} 1"#,
        r#"usher_room_requests_total{room="sale",outcome="admitted"} 1"#,
        r#"usher_room_requests_total{room="sale",outcome="queued"} 1"#,
        r#"usher_room_requests_total{room="sale",outcome="bypassed"} 1"#,
        r#"usher_room_requests_total{room="sale",outcome="rejected"} 1"#,
        r#"usher_room_cookies_invalid_total{room="sale"} 1"#,
        r#"usher_room_copies_seen_total{room="sale"} 0"#,
        "usher_room_streams 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
