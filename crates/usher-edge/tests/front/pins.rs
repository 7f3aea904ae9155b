//! Visitors that stay at one endpoint: by cookie, by address, by header; and what ends that.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use usher_core::affinity::Pin;
use usher_core::catalog::{
    Affinity, AffinityAttributes, AffinityMode, CookieMarks, Draft, PinFailover, SameSite, Secure,
};
use usher_core::id::{Id, Kind};
use usher_core::rules::{Condition, Overrides, Rule, Rules, Transform};
use usher_core::time::Wall;
use usher_edge::http::{AccessLog, LogTarget, PinTable, Plane};
use usher_edge::seal::{Keys, Purpose, Scope};

use crate::block_on;
use crate::h2_traffic::{connect, read, request};
use crate::kit::{HOST, Origin, Setup, Usher, field, status};
use crate::origins::{Told, ask, equal, named};
use crate::seen::{end, scrape};

const SECRET: &str = "a secret of these tests, and no other";
const NEXT: &str = "the secret that comes after the first";

fn keys(secrets: &[&str]) -> Arc<Keys> {
    Arc::new(Keys::new(secrets).expect("good secrets"))
}

/// A front with affinity before two endpoints, `a` and `b`.
fn pinned(affinity: Affinity) -> (Usher, [Origin; 2]) {
    let origins = [named("a"), named("b")];
    let usher = between(&origins, affinity).start();
    (usher, origins)
}

fn between(origins: &[Origin], affinity: Affinity) -> Setup {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let mut setup = equal(&addresses, move |draft| {
        draft.balancers[0].affinity = affinity.clone();
    });
    setup.keys = Some(keys(&[SECRET]));
    setup
}

fn by_cookie() -> Affinity {
    Affinity {
        mode: AffinityMode::Cookie,
        ..Affinity::default()
    }
}

fn by_header(items: &[&str], all: bool) -> Affinity {
    let attributes = AffinityAttributes {
        headers: items.iter().map(|&item| item.to_owned()).collect(),
        require_all_headers: all,
        ..AffinityAttributes::default()
    };
    Affinity {
        mode: AffinityMode::Header,
        attributes,
        ..Affinity::default()
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_millis() as i64
}

fn balancer() -> Id {
    Id::derive("default", Kind::Balancer, HOST)
}

/// A pin to the endpoint at this address, made so many seconds ago.
fn pin(address: std::net::SocketAddr, age_secs: i64) -> Pin {
    Pin {
        balancer: balancer(),
        pool: Id::derive("default", Kind::Pool, "eu"),
        endpoint: Id::derive("default", Kind::Endpoint, &format!("eu {address}")),
        since: Wall::from_millis(now() - age_secs * 1000),
        ttl: Duration::from_secs(82_800),
    }
}

/// The cookie with `pin`.
fn cookie(keys: &Keys, pin: &Pin) -> String {
    let scope = Scope {
        purpose: Purpose::Pin,
        of: pin.balancer,
    };
    format!("__cflb={}", keys.seal(scope, &pin.encode()))
}

fn visit(usher: &Usher, cookie: &str) -> Told {
    ask(usher, "/", &[("Cookie", cookie)])
}

#[test]
fn a_visitor_with_the_cookie_stays_and_gets_no_other() {
    let (usher, _origins) = pinned(by_cookie());
    let first = ask(&usher, "/", &[]);
    let given = first.set_cookie().expect("a cookie");
    let attributes: Vec<_> = given.split("; ").skip(1).collect();
    assert_eq!(attributes[0], "Path=/");
    assert!(attributes[1].starts_with("Expires=") && attributes[1].ends_with(" GMT"));
    assert_eq!(
        attributes[2..],
        ["Max-Age=82800", "HttpOnly", "SameSite=Lax"]
    );
    assert_eq!(first.all("set-cookie"), ["own=1".to_owned(), given]);
    let cookie = first.cookie().expect("a cookie");
    for _ in 0..20 {
        let told = visit(&usher, &cookie);
        assert_eq!(told.by, first.by);
        assert_eq!(told.all("set-cookie"), ["own=1"]);
    }
    // Without it every request is steered anew.
    let others = (0..200).map(|_| ask(&usher, "/", &[]).by);
    assert!(others.into_iter().any(|by| by != first.by));
}

#[test]
fn the_endpoint_sees_every_cookie_but_ours() {
    let (usher, _origins) = pinned(by_cookie());
    let cookie = ask(&usher, "/", &[]).cookie().expect("a cookie");
    let told = visit(&usher, &format!("theme=dark; {cookie}; lang=en"));
    assert_eq!(told.seen("cookie"), Some("theme=dark; lang=en"));
    let told = visit(&usher, &cookie);
    assert_eq!(told.seen("cookie"), None);
    let told = visit(&usher, "theme=dark; __cflb=forged");
    assert_eq!(told.seen("cookie"), Some("theme=dark"));
}

#[test]
fn a_cookie_comes_with_any_status_of_the_endpoint() {
    let (usher, _origins) = pinned(by_cookie());
    let told = ask(&usher, "/missing", &[]);
    assert_eq!(told.status(), 404);
    assert!(told.cookie().is_some());
}

#[test]
fn no_cookie_comes_with_an_answer_of_our_own() {
    let setup = between(&[], by_cookie());
    let mut setup = Setup {
        endpoints: vec![Origin::closed()],
        ..setup
    };
    setup.workers = 1;
    let usher = setup.start();
    let told = ask(&usher, "/", &[]);
    assert_eq!((told.status(), told.set_cookie()), (521, None));
}

#[test]
fn a_websocket_gets_the_cookie_with_its_upgrade_and_goes_where_it_says() {
    let upgrade = |name: &'static str| {
        Origin::new(move |peer, _, report| {
            let head = peer.head();
            let _ = report.send(format!("{:?}", field(&head, "cookie")));
            peer.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-Origin: {name}\r\n\r\n"
            ));
            peer.rest();
        })
    };
    let origins = [upgrade("a"), upgrade("b")];
    let usher = between(&origins, by_cookie()).start();
    let connect = |cookie: &str| {
        let mut client = usher.client();
        client.send(format!(
            "GET /chat HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{cookie}\r\n"
        ));
        let told = crate::origins::told(client.head(), "");
        assert_eq!(told.status(), 101);
        told
    };
    let first = connect("");
    let cookie = first.cookie().expect("a cookie");
    for _ in 0..8 {
        let again = connect(&format!("Cookie: a=b; {cookie}\r\n"));
        assert_eq!(again.all("x-origin"), first.all("x-origin"));
        assert_eq!(again.set_cookie(), None);
    }
    let pinned = &origins[usize::from(first.all("x-origin") == ["b"])];
    assert_eq!(pinned.said(), "None");
    assert_eq!(pinned.said(), "Some(\"a=b\")");
}

#[test]
fn http_2_carries_the_cookie_as_http_1_does() {
    let (usher, _origins) = pinned(by_cookie());
    block_on(async {
        let mut client = connect(&usher).await;
        let mut visit = async |cookies: &[&str]| {
            let mut asked = request("GET", "/");
            for cookie in cookies {
                let value = cookie.parse().expect("value");
                asked.headers_mut().append("cookie", value);
            }
            let (answer, _) = client.send_request(asked, true).expect("send");
            let answer = answer.await.expect("answer");
            let mut head = "HTTP/2 200\r\n".to_owned();
            for (name, value) in answer.headers() {
                head += &format!("{name}: {}\r\n", value.to_str().expect("text"));
            }
            let told = crate::origins::told(head, &read(answer).await.0);
            client = client.clone().ready().await.expect("ready");
            told
        };
        let first = visit(&[]).await;
        assert_eq!(first.all("set-cookie").len(), 2);
        let sent = first.cookie().expect("a cookie");
        for _ in 0..8 {
            let again = visit(&["a=1", &sent, "b=2"]).await;
            assert_eq!((&again.by, again.set_cookie()), (&first.by, None));
            assert_eq!(again.seen("cookie"), Some("a=1; b=2"));
            assert_eq!(visit(&[&sent]).await.seen("cookie"), None);
        }
    });
}

#[test]
fn marks_follow_the_zone_and_what_the_load_balancer_says() {
    let marked = |secure, same_site, always_use_https: bool| {
        let origin = named("a");
        let mut affinity = by_cookie();
        affinity.attributes.marks = CookieMarks { secure, same_site };
        let mut setup = between(std::slice::from_ref(&origin), affinity);
        setup.always_use_https = always_use_https;
        setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("net")];
        let usher = setup.start();
        let told = ask(&usher, "/", &[("X-Forwarded-Proto", "https")]);
        let given = told.set_cookie().expect("a cookie");
        given.split_once("HttpOnly; ").expect("marks").1.to_owned()
    };
    use Secure::{Always, Auto, Never};
    assert_eq!(marked(Auto, SameSite::Auto, false), "SameSite=Lax");
    assert_eq!(marked(Auto, SameSite::Auto, true), "SameSite=None; Secure");
    assert_eq!(
        marked(Always, SameSite::Strict, false),
        "SameSite=Strict; Secure"
    );
    assert_eq!(marked(Never, SameSite::Auto, true), "SameSite=Lax");
}

#[test]
fn what_is_no_cookie_of_ours_is_none_and_gets_one() {
    let (usher, origins) = pinned(by_cookie());
    let good = cookie(&keys(&[SECRET]), &pin(origins[0].address, 10));
    let told = visit(&usher, &good);
    assert_eq!((told.by.as_str(), told.set_cookie()), ("a", None));

    let gone = pin("192.0.2.9:80".parse().expect("address"), 10);
    let mut other_pool = pin(origins[0].address, 10);
    other_pool.pool = Id::derive("default", Kind::Pool, "gone");
    let mut foreign = pin(origins[0].address, 10);
    foreign.balancer = Id::derive("default", Kind::Balancer, "other.example.com");
    // Sealed for this load balancer, and says another.
    let scope = Scope {
        purpose: Purpose::Pin,
        of: balancer(),
    };
    let swapped = keys(&[SECRET]).seal(scope, &foreign.encode());
    let rows = [
        ("forged", format!("__cflb={}", "A".repeat(good.len() - 7))),
        ("truncated", good[..good.len() - 1].to_owned()),
        ("cut in half", good[..good.len() / 2].to_owned()),
        ("with more behind it", format!("{good}A")),
        ("empty", "__cflb=".to_owned()),
        ("8 KiB long", format!("__cflb={}", "x".repeat(8192))),
        (
            "with a key that is gone",
            cookie(&keys(&[NEXT]), &pin(origins[0].address, 10)),
        ),
        (
            "of another load balancer",
            cookie(&keys(&[SECRET]), &foreign),
        ),
        ("swapped", format!("__cflb={swapped}")),
        (
            "of an endpoint that was removed",
            cookie(&keys(&[SECRET]), &gone),
        ),
        (
            "of a pool that was removed",
            cookie(&keys(&[SECRET]), &other_pool),
        ),
        (
            "expired",
            cookie(&keys(&[SECRET]), &pin(origins[0].address, 82_801)),
        ),
    ];
    for (what, sent) in rows {
        let told = visit(&usher, &sent);
        assert_eq!((told.status(), told.seen("cookie")), (200, None), "{what}");
        let given = told.cookie().unwrap_or_else(|| panic!("{what}: no cookie"));
        let again = visit(&usher, &given);
        assert_eq!((&again.by, again.set_cookie()), (&told.by, None), "{what}");
        // Beside a good one nothing is lost.
        let both = visit(&usher, &format!("{sent}; {good}"));
        if what.starts_with("of a") || what == "expired" {
            continue;
        }
        assert_eq!((both.by.as_str(), both.set_cookie()), ("a", None), "{what}");
    }
}

#[test]
fn a_new_key_seals_and_the_old_one_still_opens() {
    let (usher, origins) = pinned(by_cookie());
    let old = cookie(&keys(&[SECRET]), &pin(origins[1].address, 10));
    usher.plane.seal_with(Some(keys(&[NEXT, SECRET])));
    let told = visit(&usher, &old);
    assert_eq!((told.by.as_str(), told.set_cookie()), ("b", None));
    let new = ask(&usher, "/", &[]);
    usher.plane.seal_with(Some(keys(&[NEXT])));
    let again = visit(&usher, &new.cookie().expect("a cookie"));
    assert_eq!((again.set_cookie(), &again.by), (None, &new.by));
    assert!(visit(&usher, &old).set_cookie().is_some());
}

#[test]
fn zero_downtime_failover_decides_for_a_visitor_whose_endpoint_refuses() {
    let dead = Origin::closed();
    for failover in [
        PinFailover::None,
        PinFailover::Temporary,
        PinFailover::Sticky,
    ] {
        let origin = named("b");
        let mut affinity = by_cookie();
        affinity.attributes.failover = failover;
        let mut setup = between(&[], affinity);
        setup.endpoints = vec![dead, origin.address];
        let usher = setup.start();
        let sent = cookie(&keys(&[SECRET]), &pin(dead, 10));
        let told = visit(&usher, &sent);
        match failover {
            PinFailover::None => assert_eq!((told.status(), told.set_cookie()), (521, None)),
            PinFailover::Temporary => {
                assert_eq!((told.status(), told.set_cookie()), (200, None));
                // And tries the same one first the next time, too.
                assert_eq!(visit(&usher, &sent).status(), 200);
                let failovers = r#"usher_failovers_total{load_balancer="shop.example.com"} 2"#;
                let text = scrape(&end(usher));
                assert!(text.lines().any(|line| line == failovers), "{text}");
            }
            PinFailover::Sticky => {
                assert_eq!(told.status(), 200);
                let moved = told.cookie().expect("a cookie");
                let again = visit(&usher, &moved);
                assert_eq!((again.by.as_str(), again.set_cookie()), ("b", None));
                let failovers = r#"usher_failovers_total{load_balancer="shop.example.com"} 1"#;
                let text = scrape(&end(usher));
                assert!(text.lines().any(|line| line == failovers), "{text}");
            }
        }
    }
}

#[test]
fn a_visitor_without_a_session_is_failed_over_and_pinned_to_who_served() {
    let origin = named("b");
    let mut setup = between(&[], by_cookie());
    setup.endpoints = vec![Origin::closed(), origin.address];
    let usher = setup.start();
    for _ in 0..8 {
        let told = ask(&usher, "/", &[]);
        assert_eq!((told.status(), told.by.as_str()), (200, "b"));
        let again = visit(&usher, &told.cookie().expect("a cookie"));
        assert_eq!((again.status(), again.set_cookie()), (200, None));
    }
}

#[test]
fn an_address_without_a_cookie_comes_to_the_same_endpoint() {
    let origins = [named("a"), named("b")];
    let affinity = Affinity {
        mode: AffinityMode::IpCookie,
        ..Affinity::default()
    };
    let mut setup = between(&origins, affinity);
    setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("net")];
    let usher = setup.start();
    let from = |address: &str| ask(&usher, "/", &[("X-Forwarded-For", address)]);
    let mut seen = std::collections::BTreeSet::new();
    for host in 1..33 {
        let address = format!("192.0.2.{host}");
        let first = from(&address);
        assert!(first.set_cookie().is_some());
        assert_eq!(from(&address).by, first.by);
        seen.insert(first.by);
    }
    assert_eq!(seen.len(), 2, "addresses are spread");
    // A cookie goes before the address.
    let first = from("192.0.2.1");
    let sent = first.cookie().expect("a cookie");
    for host in 2..10 {
        let lines = [
            ("X-Forwarded-For", &*format!("192.0.2.{host}")),
            ("Cookie", &*sent),
        ];
        assert_eq!(ask(&usher, "/", &lines).by, first.by);
    }
}

#[test]
fn a_rule_with_a_time_of_its_own_gives_the_cookie_anew() {
    let origins = [named("a"), named("b")];
    let mut setup = between(&origins, by_cookie());
    let before = setup.edit;
    setup.edit = Box::new(move |draft: &mut Draft| {
        before(draft);
        let marks = CookieMarks {
            secure: Secure::Auto,
            same_site: SameSite::Strict,
        };
        draft.balancers[0].rules = Rules::new(vec![Rule {
            name: "checkout".to_owned(),
            condition: Condition::parse("http.request.uri.path eq \"/checkout\"").expect("fine"),
            disabled: false,
            priority: None,
            terminates: false,
            fixed_response: None,
            overrides: Overrides {
                affinity_ttl: Some(Duration::from_secs(604_800)),
                affinity_attributes: Some(AffinityAttributes {
                    marks,
                    ..AffinityAttributes::default()
                }),
                ..Overrides::default()
            },
            transform: Transform::default(),
        }]);
    });
    let usher = setup.start();
    let first = ask(&usher, "/", &[]);
    let sent = first.cookie().expect("a cookie");
    let told = ask(&usher, "/checkout", &[("Cookie", &sent)]);
    let given = told.set_cookie().expect("a cookie");
    assert_eq!(told.by, first.by);
    assert!(
        given.contains("; Max-Age=604800; HttpOnly; SameSite=Strict"),
        "{given}"
    );
    assert_eq!(visit(&usher, &sent).set_cookie(), None);
}

#[test]
fn a_visitor_is_known_by_its_headers() {
    let origins = [named("a"), named("b")];
    let mut setup = between(&origins, by_header(&["X-Session", "X-Tenant"], false));
    setup.workers = 2;
    let usher = setup.start();
    let by = |lines: &[(&str, &str)]| {
        let told = ask(&usher, "/", lines);
        assert_eq!((told.status(), told.set_cookie()), (200, None));
        told.by
    };
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..24 {
        let value = number.to_string();
        let session = [("X-Session", &*value)];
        let first = by(&session);
        for _ in 0..3 {
            assert_eq!(
                by(&session),
                first,
                "every connection, whichever worker has it"
            );
        }
        // With one more of the names it is another visitor, who stays as well.
        let both = [("x-tenant", "t"), ("x-session", &*value)];
        let first = by(&both);
        assert_eq!(by(&both), first);
        seen.insert(first);
    }
    assert_eq!(seen.len(), 2, "visitors are spread");
    let without: Vec<_> = (0..64).map(|_| by(&[])).collect();
    assert!(without.iter().any(|by| *by != without[0]), "no session");
    let live = usher.plane.pins_live(Wall::from_millis(now()));
    assert_eq!(live.values().sum::<u64>(), 48);
    let later = Wall::from_millis(now()).after(Duration::from_secs(1900));
    assert_eq!(usher.plane.pins_live(later).len(), 0, "idle for its time");
}

#[test]
fn every_request_of_a_visitor_known_by_headers_begins_its_time_anew() {
    let mut affinity = by_header(&["x-session"], false);
    affinity.ttl = Some(Duration::from_secs(30));
    let (usher, _origins) = pinned(affinity);
    let visit = || ask(&usher, "/", &[("X-Session", "1")]).by;
    let first = visit();
    let before = now();
    // Until the clock has gone on.
    while now() == before {
        std::hint::spin_loop();
    }
    assert_eq!(visit(), first);
    let ends = Wall::from_millis(before).after(Duration::from_secs(30));
    let live: u64 = usher.plane.pins_live(ends).values().sum();
    assert_eq!(live, 1, "the first request alone would be over by then");
}

#[test]
fn all_headers_or_none_where_all_are_required() {
    let (usher, _origins) = pinned(by_header(&["x-a", "cookie:sid"], true));
    let live = || {
        let live = usher.plane.pins_live(Wall::from_millis(now()));
        live.values().sum::<u64>()
    };
    ask(&usher, "/", &[("X-A", "1")]);
    ask(&usher, "/", &[("Cookie", "sid=1")]);
    assert_eq!(live(), 0);
    let both = [("Cookie", "theme=dark; sid=1"), ("X-A", "1")];
    let first = ask(&usher, "/", &both);
    let again = [("X-A", "1"), ("Cookie", "sid=1; theme=light")];
    for _ in 0..8 {
        assert_eq!(ask(&usher, "/", &again).by, first.by);
    }
    assert_eq!(live(), 1);
}

#[test]
fn a_hundred_values_are_one_visitor() {
    let (usher, _origins) = pinned(by_header(&["x-many"], false));
    let values: Vec<String> = (0..100).map(|number| format!("value {number}")).collect();
    let lines: Vec<_> = values.iter().map(|value| ("X-Many", &**value)).collect();
    let first = ask(&usher, "/", &lines);
    for _ in 0..8 {
        assert_eq!(ask(&usher, "/", &lines).by, first.by);
    }
    let live = usher.plane.pins_live(Wall::from_millis(now()));
    assert_eq!(live.values().sum::<u64>(), 1);
}

#[test]
fn sessions_are_counted_and_logged() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("access.log");
    let origins = [named("a"), named("b")];
    let mut setup = between(&origins, by_cookie());
    setup.access_log = AccessLog::open(LogTarget::File(path.clone())).expect("log");
    let usher = setup.start();
    let first = ask(&usher, "/", &[]);
    let sent = first.cookie().expect("a cookie");
    visit(&usher, &sent);
    visit(&usher, &sent);
    let gone = pin("192.0.2.9:80".parse().expect("address"), 10);
    visit(&usher, &cookie(&keys(&[SECRET]), &gone));
    let plane = end(usher);
    let text = scrape(&plane);
    for (outcome, count) in [("new", 1), ("kept", 2), ("moved", 1)] {
        let line = format!(
            r#"usher_sessions_total{{load_balancer="{HOST}",outcome="{outcome}"}} {count}"#
        );
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let log = std::fs::read_to_string(&path).expect("log");
    for (word, count) in [("new", 1), ("kept", 2), ("moved", 1)] {
        let part = format!(r#""session":"{word}""#);
        assert_eq!(log.matches(&part).count(), count, "{log}");
    }
    // One of the first visitor, and one of the visitor who moved here.
    assert_eq!(live(&plane, 0), 2);
    assert_eq!(live(&plane, 82_700), 2);
    assert_eq!(live(&plane, 82_900), 0, "over");
}

/// Sessions so many seconds from now.
fn live(plane: &Plane, secs: u64) -> u64 {
    let then = Wall::from_millis(now()).after(Duration::from_secs(secs));
    plane.pins_live(then).values().sum()
}

#[test]
fn a_table_of_pins_has_a_bound() {
    assert_eq!(usher_edge::http::PINS_MAX, 1 << 20);
    let table = PinTable::new(8);
    let to = pin("192.0.2.9:80".parse().expect("address"), 0);
    for key in 0..1000 {
        table.remember(usher_core::affinity::PinKey(key), to);
    }
    let live = table.live(Wall::from_millis(now()));
    assert_eq!((live.values().sum::<u64>(), table.evicted()), (8, 992));
}

#[test]
fn two_requests_at_one_time_are_each_answered() {
    // The endpoint holds both until it has them; then either may say where the visitor stays.
    let origin = || {
        Origin::new(|peer, _, report| {
            peer.head();
            let _ = report.send("asked".to_owned());
            peer.answer("200 OK", "");
        })
    };
    let origins = [origin(), origin()];
    let usher = between(&origins, by_header(&["x-session"], false)).start();
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Session: 1\r\n\r\n");
    let mut clients = [usher.client(), usher.client()];
    for client in &mut clients {
        client.send(&request);
    }
    for client in &mut clients {
        assert_eq!(status(&client.message().0), 200);
    }
    assert_eq!(live(&usher.plane, 0), 1);
}
