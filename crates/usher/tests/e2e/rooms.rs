//! Waiting rooms over HTTP: who is let in, who waits, and what an operator changes meanwhile.

use serde_json::{Value, json};

use crate::support::api::{named, result};
use crate::support::config::HOST;
use crate::support::visitor::COOKIE;
use crate::support::{Config, Endpoint, Usher, Visitor, eventually};

/// A room `sale` at `/sale` with so many seats, that is asked as often as one likes.
fn with_room(config: Config, seats: u32) -> Config {
    config.set(
        &["waiting_rooms", "sale"],
        json!({
            "host": HOST, "path": "/sale",
            "total_active_users": seats, "new_users_per_minute": 1000,
            "json_response_enabled": true,
            "usher": {"refresh_interval_seconds": 1, "json_extensions": true},
        }),
    )
}

fn set(config: &Config, key: &str, value: Value) -> Config {
    config.clone().set(&["waiting_rooms", "sale", key], value)
}

fn start(endpoint: &Endpoint, seats: u32) -> (Usher, Config) {
    let config = with_room(Config::serving([endpoint.origin("a")]), seats);
    (Usher::start(&config), config)
}

fn room(usher: &Usher) -> Value {
    named(&usher.state()["rooms"], "sale").clone()
}

fn id(usher: &Usher) -> String {
    room(usher)["id"].as_str().unwrap().to_owned()
}

fn enters(usher: &Usher, visitor: &mut Visitor) -> bool {
    visitor.enters(usher, "/sale", "a")
}

/// Waits until the visitor is let in.
fn is_let_in(usher: &Usher, visitor: &mut Visitor) {
    eventually("a seat", || enters(usher, visitor).then_some(()));
}

#[test]
fn one_seat_goes_from_visitor_to_visitor() {
    let endpoint = Endpoint::named("a");
    let (usher, _) = start(&endpoint, 1);
    let [mut first, mut second, mut third] = [(); 3].map(|()| Visitor::new());
    let entered = first.get(&usher, "/sale/shoes");
    assert_eq!(entered.text(), "a");
    let given = entered.field("set-cookie").expect("a seat has a cookie");
    assert!(given.starts_with(&format!("{COOKIE}=")), "{given}");
    assert!(
        given.contains("; Path=/sale; HttpOnly; SameSite=Lax"),
        "{given}"
    );
    let kept = entered.field("cache-control");
    assert!(
        kept.is_some_and(|kept| kept.contains("private")),
        "{entered:?}"
    );

    let page = second.get(&usher, "/sale");
    assert_eq!(page.status(), 200);
    assert_eq!(page.field("usher-waiting-room"), Some("waiting; refresh=1"));
    let kind = page.field("content-type");
    assert!(
        kind.is_some_and(|kind| kind.starts_with("text/html")),
        "{page:?}"
    );
    assert!(page.text().contains("<h1"), "{page:?}");
    assert!(second.cookie.is_some(), "a place has a cookie");
    assert!(!enters(&usher, &mut third));
    // What the room does not own is nobody's to wait for.
    assert_eq!(Visitor::new().get(&usher, "/other").text(), "a");
    assert!(enters(&usher, &mut first));

    let id = id(&usher);
    assert_eq!(second.position(&usher, &id), Some(1));
    assert_eq!(third.position(&usher, &id), Some(2));
    let shown = eventually("the room as it is", || {
        let room = room(&usher);
        (room["waiting"] == 2).then_some(room)
    });
    assert_eq!(
        (&shown["status"], &shown["seats"]),
        (&json!("queueing"), &json!(1))
    );
    assert_eq!(shown["trouble"], Value::Null);

    let leave = format!("/sale/cdn-cgi/waitingroom/leave?room={id}");
    let mut wire = usher.connect();
    assert_eq!(
        first
            .send(&mut wire, "POST", &leave, "Content-Length: 0\r\n")
            .status(),
        204
    );
    assert_eq!(first.cookie, None);
    is_let_in(&usher, &mut second);
    // Whoever left is new, behind those who wait.
    assert!(!enters(&usher, &mut first));
    assert_eq!(third.position(&usher, &id), Some(1));
    assert_eq!(first.position(&usher, &id), Some(2));
    assert_eq!(endpoint.arrived().len(), 4);
    let words: Vec<Value> = usher
        .access_log(12)
        .into_iter()
        .map(|mut line| line["room"].take())
        .collect();
    for word in ["admitted", "queued", "active", "none"] {
        assert!(words.contains(&json!(word)), "{word} in {words:?}");
    }
}

#[test]
fn a_program_is_told_in_json_and_a_part_of_a_page_in_no_words() {
    let endpoint = Endpoint::named("a");
    let (usher, _) = start(&endpoint, 1);
    assert!(enters(&usher, &mut Visitor::new()));
    let mut wire = usher.connect();
    let mut program = Visitor::new();
    let told = program.send(&mut wire, "GET", "/sale", "Accept: application/json\r\n");
    assert_eq!(told.field("content-type"), Some("application/json"));
    let told: Value = serde_json::from_slice(&told.body).unwrap();
    let documented = &told["cfWaitingRoom"];
    assert_eq!(documented["inWaitingRoom"], true);
    assert_eq!(documented["queueingMethod"], "fifo");
    assert_eq!(told["usher"]["position"], 1);
    eventually("a full room", || (room(&usher)["seats"] == 1).then_some(()));
    // Thirty images of a visitor without a cookie take no place.
    for _ in 0..30 {
        let image =
            Visitor::new().send(&mut wire, "GET", "/sale/a.png", "Sec-Fetch-Dest: image\r\n");
        assert_eq!((image.body.len(), image.field("set-cookie")), (0, None));
    }
    let id = id(&usher);
    let mut other = Visitor::new();
    assert!(!enters(&usher, &mut other));
    assert_eq!(other.position(&usher, &id), Some(2));
}

#[test]
fn limits_that_change_in_mid_rush_act_at_once() {
    let endpoint = Endpoint::named("a");
    let (usher, config) = start(&endpoint, 0);
    let mut line: Vec<Visitor> = (0..4).map(|_| Visitor::new()).collect();
    for visitor in &mut line {
        assert!(!enters(&usher, visitor), "there are no seats");
    }
    // One more each time, in the order of their coming.
    for seats in 1..=3 {
        usher.reload(&set(&config, "total_active_users", json!(seats)));
        let next = usize::try_from(seats - 1).unwrap();
        is_let_in(&usher, &mut line[next]);
        for later in &mut line[next + 1..] {
            assert!(!enters(&usher, later));
        }
    }
    // Fewer than are inside: nobody is put out, nobody comes in.
    usher.reload(&set(&config, "total_active_users", json!(1)));
    for (nth, visitor) in line.iter_mut().enumerate() {
        assert_eq!(enters(&usher, visitor), nth < 3, "{nth}");
    }
    usher.reload(&set(&config, "new_users_per_minute", json!(0)));
    assert!(!enters(&usher, &mut Visitor::new()));
    let held = set(
        &set(&config, "total_active_users", json!(100)),
        "queue_all",
        json!(true),
    );
    usher.reload(&held);
    for (nth, visitor) in line.iter_mut().enumerate() {
        assert_eq!(enters(&usher, visitor), nth < 3, "{nth}");
    }
    usher.reload(&set(&held, "suspended", json!(true)));
    assert!(enters(&usher, &mut Visitor::new()));
    assert_eq!(room(&usher)["status"], "suspended");
    usher.reload(&set(&config, "queueing_method", json!("reject")));
    assert!(!enters(&usher, &mut Visitor::new()));
    assert!(enters(&usher, &mut line[0]), "a seat is a seat");
    usher.reload(&set(&config, "queueing_method", json!("passthrough")));
    is_let_in(&usher, &mut line[3]);
    // Without the room everybody passes, and with it again everybody is new.
    usher.reload(&Config::serving([endpoint.origin("a")]));
    assert!(enters(&usher, &mut Visitor::new()));
    assert_eq!(usher.state()["rooms"], json!([]));
    usher.reload(&config);
    assert!(!enters(&usher, &mut Visitor::new()));
    assert_eq!(room(&usher)["seats"], 0, "those of before are forgotten");
}

#[test]
fn a_minute_has_so_many_admissions_and_no_more() {
    let endpoint = Endpoint::named("a");
    let config = with_room(Config::serving([endpoint.origin("a")]), 100);
    let usher = Usher::start(&set(&config, "new_users_per_minute", json!(3)));
    let entered = (0..10)
        .filter(|_| enters(&usher, &mut Visitor::new()))
        .count();
    assert_eq!(entered, 3);
    usher.expect_metric("usher_room_admissions_total{room=\"sale\"}", 3.0);
    usher.expect_metric("usher_room_waiting{room=\"sale\"}", 7.0);
    usher.expect_metric("usher_room_queued_total{room=\"sale\"}", 7.0);
    assert_eq!(room(&usher)["admitted_last_minute"], 3);
    assert_eq!(usher.metric("usher_room_seats{room=\"sale\"}"), 3.0);
    assert_eq!(usher.metric("usher_room_seats_max{room=\"sale\"}"), 100.0);
    assert_eq!(usher.metric("usher_room_degraded{room=\"sale\"}"), 0.0);
}

#[test]
fn cookies_that_are_copied_forged_or_of_another_room_give_nobody_more() {
    let endpoint = Endpoint::named("a");
    let config = with_room(Config::serving([endpoint.origin("a")]), 1).set(
        &["waiting_rooms", "other"],
        json!({"host": HOST, "path": "/other", "total_active_users": 9, "new_users_per_minute": 9}),
    );
    let usher = Usher::start(&config);
    let mut first = Visitor::new();
    assert!(enters(&usher, &mut first));
    let cookie = first.cookie.clone().unwrap();
    // Two devices with one cookie are one visitor with one seat.
    assert!(enters(&usher, &mut first.clone()));
    usher.expect_metric("usher_room_seats{room=\"sale\"}", 1.0);

    let mut elsewhere = Visitor::new();
    assert!(elsewhere.enters(&usher, "/other", "a"));
    let (name, value) = cookie.split_once('=').unwrap();
    let mut turned = value.as_bytes().to_vec();
    let middle = turned.len() / 2;
    turned[middle] = if turned[middle] == b'A' { b'B' } else { b'A' };
    let turned = String::from_utf8(turned).unwrap();
    let forged = [
        elsewhere.cookie.clone().unwrap(),
        format!("{name}={turned}"),
        format!("{name}={}", &value[..value.len() - 1]),
        format!("{name}={}", "A".repeat(value.len())),
        format!("{name}={}", "A".repeat(8000)),
        format!("{name}="),
        format!("{name}=%00\u{e4}"),
    ];
    for cookie in forged {
        let mut thief = Visitor {
            cookie: Some(cookie.clone()),
        };
        assert!(!enters(&usher, &mut thief), "{cookie}");
        assert_ne!(thief.cookie, Some(cookie), "a place of its own");
    }
    assert!(enters(&usher, &mut first));
    usher.expect_metric("usher_room_seats{room=\"sale\"}", 1.0);
    eventually("counted", || {
        (usher.metric("usher_room_cookies_invalid_total{room=\"sale\"}") >= 5.0).then_some(())
    });
}

#[test]
fn rules_and_the_endpoint_have_their_word() {
    let endpoint = Endpoint::scripted(|visit| {
        while let Some(request) = visit.request() {
            let revoke = if request.target() == "/sale/bye" {
                "CF-Waiting-Room-Command: revoke\r\n"
            } else {
                ""
            };
            visit.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{revoke}\r\na"
            ));
        }
    });
    let config = with_room(Config::serving([endpoint.origin("a")]), 1);
    let config = set(&config, "enabled_origin_commands", json!(["revoke"]));
    let rule = json!([{"expression": "starts_with(http.request.uri.path, \"/sale/free\")"}]);
    let usher = Usher::start(&set(&config, "rules", rule));
    let [mut first, mut second] = [(); 2].map(|()| Visitor::new());
    assert!(enters(&usher, &mut first));
    let mut passer = Visitor::new();
    assert!(passer.enters(&usher, "/sale/free", "a"));
    assert_eq!(passer.cookie, None);
    assert!(!enters(&usher, &mut second));
    let bye = first.get(&usher, "/sale/bye");
    assert_eq!(
        (bye.text().as_str(), bye.field("cf-waiting-room-command")),
        ("a", None)
    );
    assert_eq!(first.cookie, None);
    is_let_in(&usher, &mut second);
    usher.expect_metric(
        "usher_room_seats_ended_total{room=\"sale\",cause=\"revoked\"}",
        1.0,
    );
}

#[test]
fn explain_says_what_a_room_would_say_and_why() {
    let endpoint = Endpoint::named("a");
    let config = with_room(Config::serving([endpoint.origin("a")]), 1).set(
        &["waiting_rooms", "other"],
        json!({"host": HOST, "path": "/other", "total_active_users": 1, "new_users_per_minute": 1}),
    );
    let rule = json!([{"expression": "starts_with(http.request.uri.path, \"/sale/free\")"}]);
    let usher = Usher::start(&set(&config, "rules", rule));
    let url = |path: &str| format!("http://{HOST}{path}");
    let explain = |path: &str, cookie: Option<&str>| {
        let headers = cookie.map_or(json!({}), |cookie| json!({"Cookie": cookie}));
        let body = json!({"url": url(path), "headers": headers});
        result(&usher.api_post("/client/v4/usher/explain", &body))
    };
    let told = explain("/sale", None);
    assert_eq!(told["outcome"], "forward");
    assert_eq!(
        told["room"],
        json!({"name": "sale", "state": "admitted", "position": null})
    );
    assert_eq!(room(&usher)["seats"], 0, "nobody came in by it");
    let mut first = Visitor::new();
    assert!(enters(&usher, &mut first));
    // The owner tells everybody twice a second.
    let told = eventually("a full room", || {
        let told = explain("/sale", None);
        (told["outcome"] == "wait").then_some(told)
    });
    assert_eq!(told["status"], 200);
    assert_eq!(
        told["room"],
        json!({"name": "sale", "state": "queued", "position": 1})
    );
    assert_eq!(
        (&told["pools"], &told["endpoint"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!(told["load_balancer"], HOST);
    let steps = told["steps"].to_string();
    assert!(steps.contains("1 of 1 seats are taken"), "{steps}");
    let told = explain("/sale", first.cookie.as_deref());
    assert_eq!(
        (&told["outcome"], &told["room"]["state"]),
        (&json!("forward"), &json!("active"))
    );
    let told = explain("/sale/free", None);
    assert_eq!(
        (&told["outcome"], &told["room"]["state"]),
        (&json!("bypass"), &json!("bypassed"))
    );
    assert_eq!(told["endpoint"]["name"], "a");
    // The rule holds for what was sent, and not for what an endpoint may make of it.
    for path in ["/sale/free%2F..%2Fx", "/sale%2Fx"] {
        let told = explain(path, None);
        assert_eq!(
            (&told["outcome"], &told["room"]["name"]),
            (&json!("wait"), &json!("sale")),
            "{path}"
        );
    }
    let told = explain("/sale/..%2Fother", None);
    assert_eq!(
        (&told["outcome"], &told["status"], &told["reason"]),
        (&json!("refuse"), &json!(400), &json!("ambiguous-path"))
    );
    assert_eq!(
        (&told["load_balancer"], &told["room"]),
        (&json!(HOST), &Value::Null)
    );
    let told = explain("/elsewhere", None);
    assert_eq!(
        (&told["outcome"], &told["room"]),
        (&json!("forward"), &Value::Null)
    );

    // Without a running node a room is empty, and what is held is held.
    let asked = |config: &Config| {
        usher.folder().write("other.yaml", config.text());
        let ended =
            usher
                .folder()
                .run(&["explain", "--config", "other.yaml", &url("/sale"), "--json"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        serde_json::from_str::<Value>(&ended.stdout).unwrap()
    };
    assert_eq!(asked(&config)["room"]["state"], "admitted");
    assert_eq!(
        asked(&set(&config, "queue_all", json!(true)))["outcome"],
        "wait"
    );
    let turned = asked(&set(&config, "queueing_method", json!("reject")));
    assert_eq!(
        (&turned["outcome"], &turned["room"]["state"]),
        (&json!("reject"), &json!("rejected"))
    );
}

#[test]
fn the_very_next_request_meets_what_the_api_has_answered() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")])
        .set(&["store"], json!({"url": "sqlite:var/usher.db"}));
    let usher = Usher::start(&config);
    let zones = result(&usher.api_get("/client/v4/zones"));
    let rooms = format!(
        "/client/v4/zones/{}/waiting_rooms",
        zones[0]["id"].as_str().unwrap()
    );
    let mut front = usher.connect();
    let change = |method: &str, path: &str, body: &Value| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
            crate::support::config::TOKEN
        );
        let told = usher.api(&head, &body.to_string());
        assert!(!told.text().contains("not yet in force"), "{told:?}");
        result(&told)
    };
    let mut passes = |path: &str| Visitor::new().send(&mut front, "GET", path, "").text() == "a";
    for round in 0..20 {
        let path = format!("/sale{round}");
        assert!(passes(&path));
        let made = change(
            "POST",
            &rooms,
            &json!({
                "name": format!("sale{round}"), "host": HOST, "path": path,
                "total_active_users": 1, "new_users_per_minute": 1, "queue_all": true,
            }),
        );
        assert!(!passes(&path), "created, {round}");
        let room = format!("{rooms}/{}", made["id"].as_str().unwrap());
        if round % 4 == 0 {
            change("PATCH", &room, &json!({"suspended": true}));
            assert!(passes(&path), "suspended, {round}");
            change("PATCH", &room, &json!({"suspended": false}));
            assert!(!passes(&path), "no more, {round}");
            let rule = json!({"expression": "true", "action": "bypass_waiting_room"});
            change("POST", &format!("{room}/rules"), &rule);
            assert!(passes(&path), "bypassed, {round}");
            change("PUT", &format!("{room}/rules"), &json!([]));
            assert!(!passes(&path), "no more, {round}");
            change("DELETE", &room, &Value::Null);
            assert!(passes(&path), "deleted, {round}");
        }
    }
}

#[test]
fn the_api_s_rooms_are_in_force_at_once() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")])
        .set(&["store"], json!({"url": "sqlite:var/usher.db"}));
    let usher = Usher::start(&config);
    let zones = result(&usher.api_get("/client/v4/zones"));
    let rooms = format!(
        "/client/v4/zones/{}/waiting_rooms",
        zones[0]["id"].as_str().unwrap()
    );
    let made = result(&usher.api_post(&rooms, &json!({
        "name": "sale", "host": HOST, "path": "/sale", "total_active_users": 1, "new_users_per_minute": 10,
    })));
    let id = made["id"].as_str().unwrap();
    eventually("the room", || {
        (usher.state()["rooms"][0]["name"] == "sale").then_some(())
    });
    let mut first = Visitor::new();
    assert!(enters(&usher, &mut first));
    let mut second = Visitor::new();
    assert!(!enters(&usher, &mut second));
    let status = eventually("somebody waits", || {
        let status = result(&usher.api_get(&format!("{rooms}/{id}/status")));
        (status["estimated_queued_users"] == 1).then_some(status)
    });
    assert_eq!(
        (&status["status"], &status["estimated_total_active_users"]),
        (&json!("queueing"), &json!(1))
    );
    assert!(usher.path("var/live").join(id).is_dir(), "its journal");
    let table = usher.folder().run(&[
        "status",
        "--api",
        &format!("http://{}", usher.address("api")),
        "--token",
        crate::support::config::TOKEN,
    ]);
    assert!(
        table.stdout.contains("sale          queueing  1      1"),
        "{table:?}"
    );

    let body = json!({"total_active_users": 2});
    let patch = format!(
        "PATCH {rooms}/{id} HTTP/1.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
        crate::support::config::TOKEN
    );
    result(&usher.api(&patch, &body.to_string()));
    is_let_in(&usher, &mut second);
    let delete = format!(
        "DELETE {rooms}/{id} HTTP/1.1\r\nAuthorization: Bearer {}\r\n",
        crate::support::config::TOKEN
    );
    result(&usher.api(&delete, ""));
    eventually("no room", || {
        enters(&usher, &mut Visitor::new()).then_some(())
    });
    eventually("no journal", || {
        (!usher.path("var/live").join(id).exists()).then_some(())
    });
}
