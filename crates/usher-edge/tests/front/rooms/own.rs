//! What a waiting page asks for, and what it is told: state, stream, leave.

use usher_core::admission::Standing;
use usher_core::id::Id;
use usher_edge::http::rooms::Rooms;

use super::house::{House, OWN, PATH, Plan, ROOM, Told};
use crate::block_on;
use crate::kit::{HOST, PATIENCE, Peer, field, status};
use crate::seen::scrape;

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
