//! Visitors who stay where they are: what keeps them, what moves them, and what their endpoints see.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use h2::server::Builder;
use http::Request;
use serde_json::{Value, json};

use crate::support::config::HOST;
use crate::support::http2_endpoint::serve;
use crate::support::message::Message;
use crate::support::{Config, Endpoint, PATIENCE, Usher, eventually};

/// Requests enough for chance to reach one of two endpoints: it fails once in 2^64 times.
const MANY: usize = 64;

fn config(endpoints: &[Endpoint; 2]) -> Config {
    Config::serving([endpoints[0].origin("a"), endpoints[1].origin("b")])
}

/// An address that nobody else listens on, for an endpoint that goes and comes back.
fn own(number: u8) -> SocketAddr {
    ([127, 77, 0, number], 0).into()
}

fn two() -> [Endpoint; 2] {
    ["a", "b"].map(Endpoint::named)
}

fn with(config: &Config, key: &str, value: Value) -> Config {
    config.clone().set(&["load_balancers", HOST, key], value)
}

/// The same with sessions by cookie, and these attributes.
fn by_cookie(config: &Config, attributes: Value) -> Config {
    let config = with(config, "session_affinity", json!("cookie"));
    with(&config, "session_affinity_attributes", attributes)
}

/// One request with these header lines, on a connection of its own.
fn ask(usher: &Usher, path: &str, lines: &[(&str, &str)]) -> Message {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n");
    for (name, value) in lines {
        request += &format!("{name}: {value}\r\n");
    }
    usher.exchange(request + "\r\n")
}

fn visit(usher: &Usher, cookie: &str) -> Message {
    ask(usher, "/", &[("Cookie", cookie)])
}

/// The cookie that an answer gives, as it is sent back.
fn given(answer: &Message) -> Option<String> {
    let set = answer.fields_named("set-cookie");
    let ours = set.iter().find(|set| set.starts_with("__cflb="))?;
    Some(ours.split(';').next().unwrap_or_default().to_owned())
}

/// A new visitor of the endpoint with this name: its cookie.
fn arrive(usher: &Usher, at: &str) -> String {
    let mut answers = (0..MANY).map(|_| ask(usher, "/", &[]));
    let answer = answers.find(|answer| answer.text() == at);
    given(&answer.expect("chance comes to every endpoint")).expect("a cookie")
}

#[test]
fn a_visitor_stays_and_activity_does_not_extend_its_cookie() {
    let endpoints = two();
    let usher = Usher::start(&by_cookie(&config(&endpoints), json!({})));
    let first = ask(&usher, "/", &[]);
    let set = first.field("set-cookie").expect("a cookie");
    assert!(
        set.contains("; Path=/; Expires=")
            && set.ends_with("; Max-Age=82800; HttpOnly; SameSite=Lax")
    );
    let cookie = given(&first).expect("a cookie");
    for _ in 0..16 {
        let again = visit(&usher, &format!("theme=dark; {cookie}"));
        assert_eq!((again.text(), given(&again)), (first.text(), None));
    }
    let seen = endpoints.iter().flat_map(Endpoint::arrived);
    for request in seen {
        let cookies = request.field("cookie").unwrap_or("theme=dark").to_owned();
        assert_eq!(cookies, "theme=dark", "ours is hidden from endpoints");
    }
}

#[test]
fn a_visitor_of_an_endpoint_that_is_gone_gets_another_and_a_new_cookie() {
    let endpoints = two();
    let config = by_cookie(&config(&endpoints), json!({}));
    let usher = Usher::start(&config);
    let cookie = arrive(&usher, "b");
    usher.reload(&config.set(
        &["pools", "main", "origins"],
        json!([endpoints[0].origin("a")]),
    ));
    let moved = visit(&usher, &cookie);
    assert_eq!((moved.status(), moved.text().as_str()), (200, "a"));
    let cookie = given(&moved).expect("a new cookie");
    assert_eq!(given(&visit(&usher, &cookie)), None);
    eventually("the line of the one that moved", || {
        let lines = usher.access_log(3);
        lines
            .iter()
            .any(|line| line["session"] == "moved")
            .then_some(())
    });
}

#[test]
fn whoever_has_no_session_is_failed_over_and_whoever_has_one_as_it_was_asked() {
    let (a, b) = (Endpoint::named("a"), Endpoint::named_on(own(1), "b"));
    let address = b.address();
    let config = Config::serving([a.origin("a"), b.origin("b")]);
    let failing = |failover: &str| {
        let attributes = json!({"zero_downtime_failover": failover});
        by_cookie(&config, attributes)
    };
    let usher = Usher::start(&failing("none"));
    let cookie = arrive(&usher, "b");
    drop(b);
    let refused = visit(&usher, &cookie);
    assert_eq!((refused.status(), given(&refused)), (521, None));
    for _ in 0..8 {
        let new = ask(&usher, "/", &[]);
        assert_eq!((new.status(), new.text().as_str()), (200, "a"));
        let again = visit(&usher, &given(&new).expect("a cookie"));
        assert_eq!((again.text().as_str(), given(&again)), ("a", None));
    }
    usher.reload(&failing("temporary"));
    let served = visit(&usher, &cookie);
    assert_eq!((served.text().as_str(), given(&served)), ("a", None));
    let b = Endpoint::named_on(address, "b");
    assert_eq!(visit(&usher, &cookie).text(), "b", "back where it was");
    drop(b);
    usher.reload(&failing("sticky"));
    let moved = visit(&usher, &cookie);
    assert_eq!(moved.text(), "a");
    let cookie = given(&moved).expect("a new cookie");
    let _b = Endpoint::named_on(address, "b");
    for _ in 0..8 {
        assert_eq!(visit(&usher, &cookie).text(), "a", "for good");
    }
}

#[test]
fn a_session_may_move_to_another_pool_where_that_is_asked_for() {
    let (eu, us) = (Endpoint::named_on(own(2), "eu"), Endpoint::named("us"));
    let address = eu.address();
    let config = Config::new()
        .pool("eu", [eu.origin("e")])
        .pool("us", [us.origin("u")])
        .balancer(HOST, &["eu", "us"]);
    let config = by_cookie(&config, json!({"zero_downtime_failover": "sticky"}));
    let across = json!({"failover_across_pools": true});
    let usher = Usher::start(&with(&config, "adaptive_routing", across));
    let cookie = arrive(&usher, "eu");
    drop(eu);
    let moved = visit(&usher, &cookie);
    assert_eq!((moved.status(), moved.text().as_str()), (200, "us"));
    let cookie = given(&moved).expect("a new cookie");
    let _eu = Endpoint::named_on(address, "eu");
    let again = visit(&usher, &cookie);
    assert_eq!((again.text().as_str(), given(&again)), ("us", None));
}

#[test]
fn an_endpoint_that_is_turned_off_keeps_its_visitors_only_while_it_drains() {
    let endpoints = two();
    let config = config(&endpoints);
    let off = |config: &Config| {
        let path = ["pools", "main", "origins", "1", "enabled"];
        config.clone().set(&path, json!(false))
    };
    let draining = by_cookie(&config, json!({"drain_duration": 600}));
    let usher = Usher::start(&draining);
    let cookie = arrive(&usher, "b");
    usher.reload(&off(&draining));
    for _ in 0..8 {
        let kept = visit(&usher, &cookie);
        assert_eq!((kept.text().as_str(), given(&kept)), ("b", None));
        assert_eq!(ask(&usher, "/", &[]).text(), "a", "no new visitor");
    }
    usher.reload(&off(&by_cookie(&config, json!({}))));
    let moved = visit(&usher, &cookie);
    assert_eq!((moved.status(), moved.text().as_str()), (200, "a"));
    assert!(given(&moved).is_some());
}

#[test]
fn a_visitor_is_known_by_its_headers_on_every_connection() {
    let endpoints = two();
    let config = config(&endpoints);
    let header = with(&config, "session_affinity", json!("header"));
    let attributes = json!({"headers": ["X-User", "cookie:sid"]});
    let header = with(&header, "session_affinity_attributes", attributes);
    let usher = Usher::start(&header);
    let at_b = |usher: &Usher| {
        let mut users = (0..MANY).map(|user| user.to_string());
        let found = users.find(|user| ask(usher, "/", &[("X-User", user)]).text() == "b");
        found.expect("chance comes to every endpoint")
    };
    let user = at_b(&usher);
    for _ in 0..8 {
        let again = ask(&usher, "/", &[("x-user", &user), ("Cookie", "theme=dark")]);
        assert_eq!((again.text().as_str(), given(&again)), ("b", None));
    }
    // A reload of something else leaves it where it is.
    usher.reload(&with(&header, "steering_policy", json!("random")));
    assert_eq!(ask(&usher, "/", &[("X-User", &user)]).text(), "b");
    let one = json!([endpoints[0].origin("a")]);
    usher.reload(&header.clone().set(&["pools", "main", "origins"], one));
    assert_eq!(ask(&usher, "/", &[("X-User", &user)]).text(), "a");
    usher.reload(&header);
    for _ in 0..8 {
        assert_eq!(ask(&usher, "/", &[("X-User", &user)]).text(), "a", "moved");
    }
}

#[test]
fn a_rule_gives_one_path_a_session_of_another_length() {
    let endpoints = two();
    let config = by_cookie(&config(&endpoints), json!({}));
    let rules = json!([{
        "name": "checkout",
        "condition": "starts_with(http.request.uri.path, \"/checkout\")",
        "overrides": {"session_affinity_ttl": 604_800},
    }]);
    let usher = Usher::start(&with(&config, "rules", rules));
    let cookie = arrive(&usher, "b");
    let renewed = ask(&usher, "/checkout/pay", &[("Cookie", &cookie)]);
    assert_eq!(renewed.text(), "b");
    let set = renewed.field("set-cookie").expect("a cookie");
    assert!(set.contains("; Max-Age=604800; "), "{set}");
    assert_eq!(given(&visit(&usher, &cookie)), None);
}

#[test]
fn a_country_whose_pools_are_dead_gets_the_fallback_pool_and_no_other() {
    let [near, far, last] = ["near", "far", "last"].map(Endpoint::named);
    near.set_healthy(false);
    let config = Config::new()
        .pool("near", [near.origin("n")])
        .pool("far", [far.origin("f")])
        .pool("last", [last.origin("l")])
        .balancer(HOST, &["far", "last"])
        .monitored("near");
    let usher = Usher::start(&with(&config, "country_pools", json!({"NL": ["near"]})));
    assert_eq!(usher.state_of("near"), "critical");
    for _ in 0..8 {
        assert_eq!(usher.get("/").text(), "last");
    }
}

#[test]
fn an_endpoint_of_http_2_sees_no_cookie_of_ours_and_what_rules_made_of_the_request() {
    let (arrivals, arrived) = channel();
    let arrivals = Mutex::new(arrivals);
    let endpoint = Endpoint::scripted(move |visit| {
        serve(visit, &Builder::new(), |mut call| {
            let head = std::mem::replace(&mut call.request, Request::new(()));
            let _ = arrivals.lock().unwrap().send(head);
            Box::pin(async move { call.ok("x") })
        });
    });
    let config = Config::serving([endpoint.origin("a")])
        .set(&["pools", "main", "usher", "http2"], json!(true));
    let rules = json!([{"usher": {"transform": {
        "request_headers": [{"set": "X-Country", "value": "{country}"}, {"remove": "X-Debug"}],
        "response_headers": [{"set": "X-From", "value": "{pool}/{endpoint}"}],
        "path": {"strip_prefix": "/shop", "to": "/{country_lower}{path}"},
    }}}]);
    let usher = Usher::start(&with(&by_cookie(&config, json!({})), "rules", rules));
    let lines = [("Cookie", "a=1; __cflb=forged; b=2"), ("X-Debug", "1")];
    let answer = ask(&usher, "/shop/x?y", &lines);
    assert_eq!(answer.field("x-from"), Some("main/a"));
    assert!(given(&answer).is_some());
    let request = arrived.recv_timeout(PATIENCE).expect("a request");
    assert_eq!(request.uri().path_and_query().unwrap().as_str(), "/nl/x?y");
    let headers = request.headers();
    assert_eq!(headers["cookie"], "a=1; b=2");
    assert_eq!(headers["x-country"], "NL");
    assert!(!headers.contains_key("x-debug"));
}
