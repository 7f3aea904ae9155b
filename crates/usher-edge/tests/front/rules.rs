//! What rules ask of a real request, and what they do to it and to its answer.

use std::path::Path;
use std::sync::Arc;

use usher_core::catalog::Draft;
use usher_core::rules::{
    Condition, FixedResponse, HeaderEdit, Overrides, PathRewrite, Rule, Rules, Template, Transform,
};
use usher_edge::geo::Places;

use crate::block_on;
use crate::h2_traffic::{connect, read};
use crate::kit::{HOST, Origin, Setup, Usher, field, status};
use crate::origins::{Told, ask, equal, named};

type AnyRule = Rule<usher_core::catalog::Reference>;

fn rule(condition: &str) -> AnyRule {
    Rule {
        name: condition.to_owned(),
        condition: Condition::parse(condition).unwrap_or_else(|faults| panic!("{faults:?}")),
        disabled: false,
        priority: None,
        terminates: false,
        fixed_response: None,
        overrides: Overrides::default(),
        transform: Transform::default(),
    }
}

fn set(name: &str, value: &str) -> HeaderEdit {
    HeaderEdit::Set {
        name: name.to_owned(),
        value: Template::parse(value).expect("a template"),
    }
}

fn remove(name: &str) -> HeaderEdit {
    HeaderEdit::Remove {
        name: name.to_owned(),
    }
}

fn transforming(condition: &str, transform: Transform) -> AnyRule {
    Rule {
        transform,
        ..rule(condition)
    }
}

/// A front with these rules at node `TST` in Germany, which knows where the addresses of the test
/// database are and believes what a proxy on this machine says.
fn with(rules: Vec<AnyRule>) -> (Usher, Origin) {
    let origin = named("a");
    (before(&origin, rules, |_| {}).start(), origin)
}

fn before(origin: &Origin, rules: Vec<AnyRule>, edit: impl Fn(&mut Draft) + 'static) -> Setup {
    let mut setup = equal(&[origin.address], move |draft| {
        draft.node.country = Some("DE".to_owned());
        draft.node.region = Some("WEU".to_owned());
        draft.balancers[0].rules = Rules::new(rules.clone());
        edit(draft);
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/places.mmdb");
    setup.places = Some(Arc::new(Places::load(&path).expect("a database")));
    setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("net")];
    setup
}

/// What the rules with these conditions say of one request: a number for each, 1 when it holds.
fn asked(request: &str, conditions: &[&str]) -> Vec<bool> {
    let rules = conditions.iter().enumerate().map(|(place, condition)| {
        let edits = Transform {
            response_headers: vec![set(&format!("x-holds-{place}"), "1")],
            ..Transform::default()
        };
        transforming(condition, edits)
    });
    let (usher, _origin) = with(rules.collect());
    let (head, _) = usher.ask(request);
    assert_eq!(status(&head), 200, "{head}");
    let holds = |place| field(&head, &format!("x-holds-{place}")).is_some();
    (0..conditions.len()).map(holds).collect()
}

#[test]
fn every_field_is_answered_from_the_request() {
    let request = "GET /a/b?q=1&r=two&q=%33 HTTP/1.1\r\nHost: Shop.Example.Com.:80\r\n\
                   Cookie: sid=abc; theme=dark\r\nReferer: http://example.com/from\r\nUser-Agent: curl/8\r\n\
                   X-Forwarded-For: 203.0.113.9, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\
                   X-Many: one\r\nx-many: two\r\n\r\n";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs();
    let timestamps = [
        format!("http.request.timestamp.sec ge {}", now - 1),
        format!("http.request.timestamp.sec lt {}", now + 600),
    ];
    let mut truths = vec![
        r#"cf.load_balancer.name eq "shop.example.com""#,
        r#"cf.load_balancer.region eq "WEU""#,
        r#"usher.node eq "TST""#,
        r#"ip.src eq 192.0.2.1"#,
        r#"ip.src in {192.0.2.0/24}"#,
        r#"ip.geoip.country eq "US""#,
        r#"ip.src.country eq "US""#,
        "ssl",
        r#"http.cookie eq "sid=abc; theme=dark""#,
        r#"http.host eq "shop.example.com""#,
        r#"http.referer eq "http://example.com/from""#,
        r#"http.user_agent eq "curl/8""#,
        r#"http.x_forwarded_for eq "203.0.113.9, 192.0.2.1""#,
        r#"http.request.headers["x-many"][1] eq "two""#,
        r#"any(http.request.headers["x-many"][*] eq "one")"#,
        r#"not len(http.request.headers["x-absent"]) ge 0"#,
        r#"any(http.request.headers.names[*] eq "user-agent")"#,
        r#"any(http.request.headers.values[*] eq "curl/8")"#,
        r#"http.request.cookies["theme"][0] eq "dark""#,
        r#"http.request.method eq "GET""#,
        r#"http.request.full_uri eq "https://shop.example.com/a/b?q=1&r=two&q=%33""#,
        r#"http.request.uri eq "/a/b?q=1&r=two&q=%33""#,
        r#"http.request.uri.path eq "/a/b""#,
        r#"http.request.uri.query eq "q=1&r=two&q=%33""#,
        r#"http.request.uri.args["q"][1] eq "%33""#,
        r#"any(http.request.uri.args.names[*] eq "r")"#,
        r#"any(http.request.uri.args.values[*] eq "two")"#,
        r#"http.request.version eq "HTTP/1.1""#,
    ];
    truths.extend(timestamps.iter().map(String::as_str));
    let told = asked(request, &truths);
    let wrong: Vec<_> = truths.iter().zip(told).filter(|(_, held)| !held).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    let lies = [
        "ip.src eq 203.0.113.9",
        "ip.src eq 127.0.0.1",
        r#"http.host eq "Shop.Example.Com""#,
        r#"http.request.method eq "get""#,
        r#"http.request.version eq "HTTP/2""#,
        r#"dns.qry.name eq "shop.example.com.""#,
    ];
    assert_eq!(asked(request, &lies), [false; 6]);
}

#[test]
fn what_a_stranger_claims_is_not_believed() {
    let conditions = [
        "ip.src eq 127.0.0.1",
        "not ssl",
        // Not in the database: the node's own.
        r#"ip.geoip.country eq "DE""#,
    ];
    let rules = conditions.iter().map(|condition| {
        let edits = Transform {
            response_headers: vec![set(&format!("x-{}", condition.len()), "1")],
            ..Transform::default()
        };
        transforming(condition, edits)
    });
    let origin = named("a");
    let mut setup = before(&origin, rules.collect(), |_| {});
    setup.settings.trusted_proxies.clear();
    let usher = setup.start();
    let claims = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Proto", "https"),
    ];
    let told = ask(&usher, "/", &claims);
    for condition in conditions {
        let name = format!("x-{}", condition.len());
        assert_eq!(told.all(&name).len(), 1, "{condition}: {}", told.head);
    }
}

#[test]
fn http_2_requests_are_asked_as_they_came() {
    let conditions = [
        r#"http.request.version eq "HTTP/2""#,
        r#"http.cookie eq "a=1; b=2""#,
        r#"http.host eq "shop.example.com""#,
        r#"http.request.uri eq "/x?y""#,
        r#"http.request.headers["x-a"][0] eq "1""#,
    ];
    let all = conditions.join(" and ");
    let edits = Transform {
        request_headers: vec![set("x-seen", "{host}{path}")],
        response_headers: vec![set("x-holds", "yes"), remove("x-origin")],
        path: None,
    };
    let (usher, _origin) = with(vec![transforming(&all, edits)]);
    block_on(async {
        let mut client = connect(&usher).await;
        let asked = http::Request::get(format!("http://{HOST}/x?y"))
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("x-a", "1")
            .body(())
            .expect("request");
        let (answer, _) = client.send_request(asked, true).expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.headers()["x-holds"], "yes");
        assert!(!answer.headers().contains_key("x-origin"));
        let (body, _) = read(answer).await;
        assert_eq!(field(&body, "x-seen"), Some("shop.example.com/x"), "{body}");
    });
}

#[test]
fn a_fixed_response_has_its_status_type_location_and_body() {
    let response = FixedResponse {
        status: 307,
        content_type: Some("text/plain".to_owned()),
        location: Some("https://example.com/later".to_owned()),
        body: "later".to_owned(),
    };
    let fixed = Rule {
        fixed_response: Some(response),
        ..rule(r#"http.request.uri.path eq "/old""#)
    };
    let (usher, origin) = with(vec![fixed]);
    let (head, body) = usher.ask(&crate::kit::get("/old"));
    assert_eq!((status(&head), body.as_str()), (307, "later"));
    assert_eq!(field(&head, "content-type"), Some("text/plain"));
    assert_eq!(field(&head, "location"), Some("https://example.com/later"));
    assert!(origin.is_silent());
    assert_eq!(ask(&usher, "/new", &[]).by, "a");
}

fn from(usher: &Usher, address: &str, path: &str) -> Told {
    ask(usher, path, &[("X-Forwarded-For", address)])
}

#[test]
fn the_path_is_rewritten_by_country_and_region() {
    let by_country = Transform {
        path: Some(PathRewrite {
            strip_prefix: Some("/shop".to_owned()),
            to: Template::parse("/{country_lower}/{region}{path}").expect("a template"),
        }),
        ..Transform::default()
    };
    let (usher, _origin) = with(vec![transforming("", by_country)]);
    let path = |told: &Told| told.seen.split(' ').nth(1).map(str::to_owned);
    let rows = [
        // California, and Tokyo; an address that nobody knows is where the node is.
        ("192.0.2.1", "/shop/a?b=c", "/us/WNAM/a?b=c"),
        ("2001:db8::1", "/shop/a", "/jp/NEAS/a"),
        ("10.9.9.9", "/shop/a", "/de/WEU/a"),
        ("192.0.2.1", "/elsewhere", "/elsewhere"),
    ];
    for (address, asked, expected) in rows {
        let told = from(&usher, address, asked);
        assert_eq!(path(&told).as_deref(), Some(expected), "{address} {asked}");
    }
    let mut client = usher.client();
    client.send(format!("OPTIONS * HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    let (_, body) = client.message();
    assert!(body.contains("OPTIONS * HTTP/1.1"), "{body}");
}

#[test]
fn headers_are_set_and_removed_both_ways() {
    let first = Transform {
        request_headers: vec![
            set("X-Country", "{country}"),
            set("x-pair", "1"),
            remove("X-Debug"),
            set("X-Forwarded-For", "{client}"),
            set("x-late", "1"),
        ],
        response_headers: vec![
            set("X-Served-By", "{pool}/{endpoint}"),
            set("x-origin", "hidden"),
            remove("X-Powered-By"),
        ],
        path: None,
    };
    let second = Transform {
        request_headers: vec![set("X-Pair", "2"), remove("x-late")],
        ..Transform::default()
    };
    let origin = Origin::new(|peer, _, _| {
        let head = peer.head();
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nX-Powered-By: a\r\nx-powered-by: b\r\nX-Origin: a\r\nSet-Cookie: own=1\r\n\
             Content-Length: {}\r\n\r\n{head}",
            head.len()
        ));
    });
    let never = transforming("http.request.method eq \"POST\"", first.clone());
    let rules = vec![never, transforming("", first), transforming("", second)];
    let usher = before(&origin, rules, |_| {}).start();
    let lines = [
        ("X-Forwarded-For", "203.0.113.9, 192.0.2.1"),
        ("X-Country", "XX"),
        ("x-debug", "1"),
        ("X-DEBUG", "2"),
        ("x-pair", "0"),
    ];
    let mut request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n");
    for (name, value) in lines {
        request += &format!("{name}: {value}\r\n");
    }
    let (head, seen) = usher.ask(&(request + "\r\n"));
    let count = |text: &str, name: &str| {
        let start = format!("{name}:");
        let lines = text.lines().map(str::to_ascii_lowercase);
        lines.filter(|line| line.starts_with(&start)).count()
    };
    for (name, value) in [
        ("x-country", "US"),
        ("x-pair", "2"),
        ("x-forwarded-for", "192.0.2.1"),
    ] {
        assert_eq!(
            (count(&seen, name), field(&seen, name)),
            (1, Some(value)),
            "{seen}"
        );
    }
    assert_eq!((count(&seen, "x-debug"), count(&seen, "x-late")), (0, 0));
    assert_eq!(field(&seen, "host"), Some(HOST));
    for (name, value) in [
        ("x-served-by", "eu/e0"),
        ("x-origin", "hidden"),
        ("set-cookie", "own=1"),
    ] {
        assert_eq!(
            (count(&head, name), field(&head, name)),
            (1, Some(value)),
            "{head}"
        );
    }
    assert_eq!(count(&head, "x-powered-by"), 0);
}

#[test]
fn the_endpoint_is_named_when_asked_for_and_nobody_else_names_it() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 103 Early Hints\r\nX-Endpoint: early\r\n\r\n");
        peer.send("HTTP/1.1 200 OK\r\nX-Endpoint: me\r\nContent-Length: 0\r\n\r\n");
    });
    let usher = before(&origin, Vec::new(), |draft| {
        draft.balancers[0].endpoint_header = Some("x-endpoint".to_owned());
    });
    let usher = usher.start();
    let mut client = usher.client();
    client.send(crate::kit::get("/"));
    let early = client.head();
    assert_eq!(field(&early, "x-endpoint"), Some("early"), "as it came");
    let told = crate::origins::told(client.head(), "");
    assert_eq!(told.all("x-endpoint"), ["eu/e0"]);
}
