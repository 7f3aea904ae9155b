//! What becomes of a request to a room, by what it is, by its cookie, and by how the room is set.

use std::sync::Arc;

use usher_core::admission::{Method, Settings, Standing, Visitor};
use usher_core::id::Id;
use usher_core::rules::Condition;
use usher_edge::http::rooms::WaitingPage;
use usher_edge::http::{AccessLog, LogTarget, Plane};
use usher_rooms::cookie::Jar;
use usher_rooms::door::Json;
use usher_rooms::owner::OnStoreFailure;
use usher_rooms::template::{OUTPUT_MAX, Template};
use usher_rooms::words::Language;

use super::house::{House, OWN, PATH, Plan, ROOM, SECRET, jar_of, resealed, resealed_claims};
use crate::block_on;
use crate::h2_traffic::{connect, read, request};
use crate::kit::{HOST, Origin};
use crate::seen::{end, scrape};

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
