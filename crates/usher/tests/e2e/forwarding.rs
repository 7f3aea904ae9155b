//! Fields on their way: what is taken out, what is put in, whose word about a client is believed.

use serde_json::json;

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::{Config, Endpoint, Message, Usher};

fn serve(endpoint: &Endpoint) -> Usher {
    Usher::start(&Config::serving([endpoint.origin("a")]))
}

fn trusting(endpoint: &Endpoint, proxies: &[&str]) -> Usher {
    Usher::start(&Config::serving([endpoint.origin("a")]).set(&["trusted_proxies"], json!(proxies)))
}

/// What reaches the endpoint of a GET with these field lines.
fn forwarded(usher: &Usher, endpoint: &Endpoint, fields: &str) -> Message {
    let answer = usher.exchange(format!(
        "GET / HTTP/1.1\r\nHost: shop.example.com\r\n{fields}\r\n"
    ));
    assert_eq!(answer.status(), 200, "{answer:?}");
    endpoint.next()
}

#[test]
fn what_is_for_one_hop_stays_on_it() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint);
    let arrived = forwarded(
        &usher,
        &endpoint,
        "Connection: close, X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nX-Kept: 1\r\n",
    );
    for name in [
        "x-secret",
        "te",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
    ] {
        assert_eq!(arrived.field(name), None, "{name}: {arrived:?}");
    }
    assert!(!arrived.names("connection", "close") && !arrived.names("connection", "x-secret"));
    assert_eq!(arrived.field("x-kept"), Some("1"));
    for _ in 0..20 {
        usher.exchange("GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n");
    }
    let workers = std::thread::available_parallelism().unwrap().get();
    assert!(
        endpoint.connections() <= workers,
        "the client's close is not the endpoint's"
    );
}

#[test]
fn what_an_endpoint_says_to_its_hop_stays_there() {
    let endpoint = Endpoint::answering(
        "HTTP/1.1 200 OK\r\nConnection: X-Inner\r\nX-Inner: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\nX-Kept: 1\r\nContent-Length: 0\r\n\r\n",
    );
    let usher = serve(&endpoint);
    let answer = usher.get("/");
    for name in ["x-inner", "keep-alive"] {
        assert_eq!(answer.field(name), None, "{name}: {answer:?}");
    }
    assert_eq!(answer.field("x-kept"), Some("1"));
}

#[test]
fn an_endpoint_that_closes_does_not_close_the_client() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..5 {
        let answer = wire.get(HOST, "/");
        assert_eq!(answer.text(), "ok");
        assert!(!answer.names("connection", "close"), "{answer:?}");
    }
}

#[test]
fn connection_cannot_take_away_what_matters() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint);
    let request = "POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 4\r\n\
        Connection: Host, Content-Length, X-Forwarded-For, CF-Connecting-IP\r\n\r\nbody";
    let answer = usher.exchange(request);
    if answer.status() == 400 {
        assert!(endpoint.arrived().is_empty());
        return; // refusing it is as safe as ignoring it
    }
    let arrived = endpoint.next();
    assert_eq!(arrived.field("host"), Some(HOST));
    assert_eq!(arrived.text(), "body");
    assert_eq!(arrived.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(arrived.field("cf-connecting-ip"), Some("127.0.0.1"));
}

#[test]
fn fields_keep_their_order_their_spelling_and_their_number() {
    let endpoint = Endpoint::answering(
        "HTTP/1.1 200 Fine By Me\r\nSet-Cookie: a=1\r\nX-ODD-case: 1\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n",
    );
    let usher = serve(&endpoint);
    let answer = usher.exchange(
        "GET / HTTP/1.1\r\nHost: shop.example.com\r\nX-Same: 1\r\nx-OTHER: \t 2 \r\nX-Same: 3\r\nX-Empty:\r\nX-Latin: caf\u{e9}\r\n\r\n",
    );
    assert_eq!(answer.fields_named("set-cookie"), ["a=1", "b=2"]);
    assert!(
        answer.fields.iter().any(|(name, _)| name == "X-ODD-case"),
        "{answer:?}"
    );
    let arrived = endpoint.next();
    assert_eq!(arrived.fields_named("x-same"), ["1", "3"]);
    assert_eq!(arrived.field("x-other"), Some("2"));
    assert_eq!(arrived.field("x-empty"), Some(""));
    assert_eq!(arrived.field("x-latin"), Some("caf\u{e9}"));
    assert!(
        arrived.fields.iter().any(|(name, _)| name == "x-OTHER"),
        "{arrived:?}"
    );
}

#[test]
fn the_client_is_told_to_the_endpoint() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint);
    let arrived = forwarded(&usher, &endpoint, "");
    assert_eq!(arrived.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(arrived.field("cf-connecting-ip"), Some("127.0.0.1"));
    assert_eq!(arrived.field("x-forwarded-proto"), Some("http"));
}

#[test]
fn a_stranger_cannot_say_who_the_client_is() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint);
    let arrived = forwarded(
        &usher,
        &endpoint,
        "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-For: 198.51.100.8\r\nCF-Connecting-IP: 198.51.100.7\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example.net\r\n",
    );
    assert_eq!(arrived.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(arrived.field("cf-connecting-ip"), Some("127.0.0.1"));
    assert_eq!(arrived.field("x-forwarded-proto"), Some("http"));
    assert_ne!(arrived.field("x-forwarded-host"), Some("evil.example.net"));
    usher.access_log(1);
}

#[test]
fn a_trusted_proxy_says_who_the_client_is() {
    let endpoint = Endpoint::named("a");
    let usher = trusting(
        &endpoint,
        &["127.0.0.0/8", "10.0.0.9/32", "2001:db8::9/128"],
    );
    // The field as it came, and the client: the right-most address that no trusted hop has.
    let cases = [
        ("198.51.100.7", "198.51.100.7"),
        ("198.51.100.7, 203.0.113.5", "203.0.113.5"),
        ("198.51.100.7, 203.0.113.5:4711", "203.0.113.5"),
        ("198.51.100.7, 203.0.113.5, 10.0.0.9", "203.0.113.5"),
        ("203.0.113.5:4711, 10.0.0.9:80", "203.0.113.5"),
        ("[2001:db8::5]", "2001:db8::5"),
        ("[2001:db8::5]:4711, [2001:db8::9]:80", "2001:db8::5"),
        ("2001:db8::5", "2001:db8::5"),
        ("198.51.100.7,203.0.113.5", "203.0.113.5"),
    ];
    let mut wire = usher.connect();
    for (came, client) in cases {
        wire.exchange(format!(
            "GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {came}\r\nX-Forwarded-Proto: https\r\n\r\n"
        ));
        let arrived = endpoint.next();
        let chain = arrived.field("x-forwarded-for").unwrap();
        assert!(
            chain.starts_with(came) && chain.ends_with("127.0.0.1"),
            "{chain}"
        );
        assert_eq!(arrived.field("cf-connecting-ip"), Some(client), "{came}");
        assert_eq!(arrived.field("x-forwarded-proto"), Some("https"));
    }
    // One connection, so one worker: its lines stand in their order.
    for (line, (came, client)) in usher.access_log(cases.len()).iter().zip(cases) {
        assert_eq!(line["client"], client, "{came}");
    }
}

#[test]
fn an_invented_entry_does_not_pass_a_trusted_proxy() {
    let endpoint = Endpoint::named("a");
    let usher = trusting(&endpoint, &["127.0.0.0/8"]);
    for (came, client) in [
        ("10.0.0.1, not-an-address", "127.0.0.1"), // what cannot be read ends the walk
        ("not-an-address, 203.0.113.5", "203.0.113.5"),
        ("127.0.0.1, 203.0.113.5, 127.0.0.1", "203.0.113.5"),
    ] {
        let arrived = forwarded(&usher, &endpoint, &format!("X-Forwarded-For: {came}\r\n"));
        assert_eq!(arrived.field("cf-connecting-ip"), Some(client), "{came}");
    }
}

#[test]
fn cookies_and_credentials_pass_untouched() {
    let endpoint = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            visit.send(ok("a"));
        }
    });
    let usher = serve(&endpoint);
    let arrived = forwarded(
        &usher,
        &endpoint,
        "Cookie: a=1; b=2\r\nAuthorization: Bearer abc\r\n",
    );
    assert_eq!(arrived.field("cookie"), Some("a=1; b=2"));
    assert_eq!(arrived.field("authorization"), Some("Bearer abc"));
}
