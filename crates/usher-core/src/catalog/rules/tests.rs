//! Each rule broken once, with the words that are said.

use super::*;
use crate::catalog::HostPattern;
use crate::catalog::{Catalog, Member, Room, RoomProfile, Route, TlsMode};
use crate::id::{Id, Kind};
use crate::sample::Sample;
use crate::steering::PoolSteering::Off;

/// What is said, and the change that makes it be said.
type Case = (&'static str, Box<dyn FnOnce(&mut Draft)>);

fn sample() -> Sample {
    Sample::new()
        .monitor("m1")
        .monitor("m2")
        .group("g", "m1 m2=must")
        .pool("eu", "m1", "a b=0.5")
        .pool("us", "g", "c")
        .balancer("shop.example.com", Off, "eu=0.4 us", "us")
}

/// Every fault as `Subject.Field: text`.
fn check(change: impl FnOnce(&mut Draft)) -> Vec<String> {
    let found = Catalog::check(sample().with(change).0);
    let text = |fault: Fault| format!("{:?}.{:?}: {}", fault.subject, fault.field, fault.error);
    found.map_or_else(
        |faults| faults.into_iter().map(text).collect(),
        |_| Vec::new(),
    )
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn http(draft: &mut Draft) -> &mut HttpCheck {
    match &mut draft.monitors[0].kind {
        MonitorKind::Http(check) | MonitorKind::Https { check, .. } => check,
        MonitorKind::Tcp => panic!("the sample has an HTTP monitor"),
    }
}

fn missing(text: &str) -> Reference {
    Reference {
        id: Id::derive("default", Kind::Pool, text),
        text: text.to_owned(),
    }
}

#[test]
fn a_good_draft_has_no_fault() {
    assert_eq!(check(|_| {}), [] as [&str; 0]);
}

#[test]
fn each_rule_of_monitors_and_groups() {
    let cases: Vec<Case> = vec![
        (
            "Monitor(0).Interval: interval 3601 is outside 1..3600",
            Box::new(|d| d.monitors[0].interval = secs(3601)),
        ),
        (
            "Monitor(0).Interval: interval 9 is outside 10..3600",
            Box::new(|d| {
                d.interval_min = secs(10);
                d.monitors[0].interval = secs(9);
            }),
        ),
        (
            "Monitor(0).Timeout: timeout 0.5 is outside 1..10",
            Box::new(|d| d.monitors[0].timeout = Duration::from_millis(500)),
        ),
        (
            "Monitor(0).Timeout: timeout 11 is outside 1..10",
            Box::new(|d| d.monitors[0].timeout = secs(11)),
        ),
        (
            "Monitor(0).Retries: retries 6 is outside 0..5",
            Box::new(|d| d.monitors[0].retries = 6),
        ),
        (
            "Monitor(0).Timeout: (retries 2 + 1) x timeout 5 s is 15 s, which is not less than interval 15 s",
            Box::new(|d| d.monitors[0].interval = secs(15)),
        ),
        (
            "Monitor(0).Port: port 0 is outside 1..65535",
            Box::new(|d| d.monitors[0].port = Some(0)),
        ),
        (
            "Monitor(0).Port: a tcp monitor needs a port",
            Box::new(|d| d.monitors[0].kind = MonitorKind::Tcp),
        ),
        (
            "Monitor(0).Method: method is empty",
            Box::new(|d| http(d).method.clear()),
        ),
        (
            "Monitor(0).Method: method \"GET /\" is not a method that can be probed with",
            Box::new(|d| http(d).method = "GET /".to_owned()),
        ),
        (
            "Monitor(0).Path: path \"healthz\" does not start with \"/\" or holds blanks, \"#\", control or non-ASCII characters",
            Box::new(|d| http(d).path = "healthz".to_owned()),
        ),
        (
            "Monitor(0).ExpectedBody: expected_body is 10241 characters long; the most is 10240",
            Box::new(|d| http(d).expected_body = "x".repeat(10_241)),
        ),
        (
            "Monitor(0).Header(0): header \"user-agent\" cannot be set",
            Box::new(|d| {
                http(d)
                    .headers
                    .push(("user-agent".to_owned(), vec!["x".to_owned()]))
            }),
        ),
        (
            "Monitor(0).Header(0): header name \"a b\" is not the name of a header",
            Box::new(|d| {
                http(d)
                    .headers
                    .push(("a b".to_owned(), vec!["x".to_owned()]))
            }),
        ),
        (
            "Monitor(0).Header(1): header \"x-A\" is not unique",
            Box::new(|d| {
                http(d).headers = vec![
                    ("X-a".to_owned(), vec!["1".to_owned()]),
                    ("x-A".to_owned(), vec!["2".to_owned()]),
                ];
            }),
        ),
        (
            "Monitor(0).Header(0): number of header values 0 is outside 1..64",
            Box::new(|d| http(d).headers.push(("x".to_owned(), Vec::new()))),
        ),
        (
            "Monitor(0).Header(0): header value \"a\\nb\" holds control characters, or blanks at an end",
            Box::new(|d| {
                http(d)
                    .headers
                    .push(("x".to_owned(), vec!["a\nb".to_owned()]))
            }),
        ),
        (
            "Monitor(0).Header(0): Host header \"a/b\" is not a hostname",
            Box::new(|d| {
                http(d)
                    .headers
                    .push(("Host".to_owned(), vec!["a/b".to_owned()]))
            }),
        ),
        (
            "Monitor(0).Header(0): number of header values 2 is outside 1..1",
            Box::new(|d| {
                http(d)
                    .headers
                    .push(("host".to_owned(), vec!["a".to_owned(), "b".to_owned()]))
            }),
        ),
        (
            "Monitor(1).Name: monitor name \"m1\" is not unique",
            Box::new(|d| d.monitors[1].name = "m1".to_owned()),
        ),
        (
            "MonitorGroup(0).Members: number of members 0 is outside 1..64",
            Box::new(|d| d.monitor_groups[0].members.clear()),
        ),
        (
            "MonitorGroup(0).Member(1): monitor \"m1\" is not unique",
            Box::new(|d| d.monitor_groups[0].members[1] = d.monitor_groups[0].members[0].clone()),
        ),
        (
            "MonitorGroup(0).Member(1): monitor \"m2\" cannot be both must_be_healthy and monitoring_only",
            Box::new(|d| d.monitor_groups[0].members[1].monitoring_only = true),
        ),
        (
            "MonitorGroup(0).Member(2): monitor \"m3\" does not exist; the nearest name is \"m1\"",
            Box::new(|d| {
                let member = d.monitor_groups[0].members[0].clone();
                d.monitor_groups[0].members.push(Member {
                    monitor: missing("m3"),
                    ..member
                });
            }),
        ),
    ];
    for (expected, change) in cases {
        assert_eq!(check(change), [expected]);
    }
}

#[test]
fn each_rule_of_pools_and_endpoints() {
    let cases: Vec<Case> = vec![
        (
            "Pool(0).Name: pool name is empty",
            Box::new(|d| d.pools[0].name.clear()),
        ),
        (
            "Pool(0).Name: pool name \"e u\" holds other characters than letters, digits, \"_\" and \"-\"",
            Box::new(|d| d.pools[0].name = "e u".to_owned()),
        ),
        (
            "Pool(1).Name: pool name \"eu\" is not unique",
            Box::new(|d| d.pools[1].name = "eu".to_owned()),
        ),
        (
            "Pool(0).Endpoints: number of endpoints 0 is outside 1..256",
            Box::new(|d| d.pools[0].endpoints.clear()),
        ),
        (
            "Pool(0).Monitoring: monitor \"m9\" does not exist; the nearest name is \"m1\"",
            Box::new(|d| d.pools[0].monitoring = Monitoring::Monitor(missing("m9"))),
        ),
        (
            "Pool(0).Monitoring: monitor group \"nobody\" does not exist",
            Box::new(|d| d.pools[0].monitoring = Monitoring::Group(missing("nobody"))),
        ),
        (
            "Pool(0).Tls(ClientCert): client_cert is set without client_key",
            Box::new(|d| d.pools[0].tls.client_cert = Some("a.pem".to_owned())),
        ),
        (
            "Pool(0).Tls(ClientKey): client_key is set without client_cert",
            Box::new(|d| d.pools[0].tls.client_key = Some("a.key".to_owned())),
        ),
        (
            "Pool(0).Tls(Sni): sni \"a b\" is not a hostname",
            Box::new(|d| d.pools[0].tls.sni = Some("a b".to_owned())),
        ),
        (
            "Endpoint { pool: 0, endpoint: 1 }.Name: endpoint name \"a\" is not unique",
            Box::new(|d| d.pools[0].endpoints[1].name = "a".to_owned()),
        ),
        (
            "Endpoint { pool: 0, endpoint: 1 }.Address: endpoint address \"192.0.2.1\" is not unique",
            Box::new(|d| d.pools[0].endpoints[1].address = Address::Ip([192, 0, 2, 1].into())),
        ),
        (
            "Endpoint { pool: 0, endpoint: 1 }.Address: endpoint address \"::ffff:192.0.2.1\" is not unique",
            Box::new(|d| {
                d.pools[0].endpoints[1].address = Address::Ip("::ffff:192.0.2.1".parse().unwrap())
            }),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.Address: address \"0.0.0.0\" is not the address of one host",
            Box::new(|d| d.pools[0].endpoints[0].address = Address::Ip([0, 0, 0, 0].into())),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.Address: address \"300.1.1.1\" is neither an IP address nor a hostname",
            Box::new(|d| d.pools[0].endpoints[0].address = Address::Host("300.1.1.1".to_owned())),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.Weight: weight 1.4 is outside 0..1",
            Box::new(|d| d.pools[0].endpoints[0].weight = 1.4),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.Weight: weight -0.01 is outside 0..1",
            Box::new(|d| d.pools[0].endpoints[0].weight = -0.01),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.Weight: weight NaN is outside 0..1",
            Box::new(|d| d.pools[0].endpoints[0].weight = f64::NAN),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.Weight: weight 0.125 is not a multiple of 0.01",
            Box::new(|d| d.pools[0].endpoints[0].weight = 0.125),
        ),
        (
            "Endpoint { pool: 0, endpoint: 0 }.HostHeader: Host header \"-a\" is not a hostname",
            Box::new(|d| d.pools[0].endpoints[0].host_header = Some("-a".to_owned())),
        ),
    ];
    for (expected, change) in cases {
        assert_eq!(check(change), [expected]);
    }
}

#[test]
fn a_load_balancer_of_every_host_stands_in_a_zone_and_is_written_by_nobody() {
    let any = |d: &mut Draft| d.balancers[0].host = HostPattern::Any;
    assert_eq!(check(any), [""; 0]);
    let homeless = check(move |d: &mut Draft| {
        any(d);
        d.balancers[0].zone = String::new();
    });
    assert!(
        homeless[0].contains("zone \"\" does not exist"),
        "{homeless:?}"
    );
    assert_ne!(HostPattern::parse("*"), HostPattern::Any);
}

#[test]
fn each_rule_of_load_balancers_and_zones() {
    let host = |d: &mut Draft, name: &str| {
        d.balancers[0].name = name.to_owned();
        d.balancers[0].host = HostPattern::parse(name);
    };
    let cases: Vec<Case> = vec![
        (
            "Balancer(0).Name: load balancer \"a.*.example.com\" is not a hostname, with or without \"*.\" before it",
            Box::new(move |d| host(d, "a.*.example.com")),
        ),
        (
            "Balancer(0).Name: load balancer \"shop.example.org\" is not inside zone \"example.com\"",
            Box::new(move |d| host(d, "shop.example.org")),
        ),
        (
            "Balancer(0).Name: load balancer \"badexample.com\" is not inside zone \"example.com\"",
            Box::new(move |d| host(d, "badexample.com")),
        ),
        (
            "Balancer(0).Zone: zone \"exmaple.com\" does not exist; the nearest name is \"example.com\"",
            Box::new(|d| d.balancers[0].zone = "exmaple.com".to_owned()),
        ),
        (
            "Balancer(0).Pools: number of pools 0 is outside 1..256",
            Box::new(|d| d.balancers[0].pools.clear()),
        ),
        (
            "Balancer(0).Pool(2): pool \"eu\" is not unique",
            Box::new(|d| d.balancers[0].pools.extend_from_within(..1)),
        ),
        (
            "Balancer(0).Pool(0): pool \"eux\" does not exist; the nearest name is \"eu\"",
            Box::new(|d| d.balancers[0].pools[0] = missing("eux")),
        ),
        (
            "Balancer(0).Fallback: pool \"asia\" does not exist",
            Box::new(|d| d.balancers[0].fallback = missing("asia")),
        ),
        (
            "Balancer(0).WeightDefault: default weight 2 is outside 0..1",
            Box::new(|d| d.balancers[0].weight_default = 2.0),
        ),
        (
            "Balancer(0).PoolWeight(0): weight 0.001 is not a multiple of 0.01",
            Box::new(|d| d.balancers[0].weights[0].1 = 0.001),
        ),
        (
            "Zone(0).Tls(Ca): ca is empty",
            Box::new(|d| d.zones[0].tls.ca = Some(String::new())),
        ),
        (
            "Node.Region: region \"EU\" is none of the 13 region codes (WNAM, ENAM, WEU, ...)",
            Box::new(|d| d.node.region = Some("EU".to_owned())),
        ),
        (
            "Node.Coordinates: latitude 91 is outside -90..90",
            Box::new(|d| d.node.coordinates = Some((91.0, 0.0))),
        ),
        (
            "Node.IntervalMin: monitor_interval_min 0.5 is outside 1..3600",
            Box::new(|d| d.interval_min = Duration::from_millis(500)),
        ),
    ];
    for (expected, change) in cases {
        assert_eq!(check(change), [expected]);
    }
}

#[test]
fn values_at_their_limits_pass() {
    let faults = check(|d| {
        d.monitors[0].interval = secs(3600);
        d.monitors[0].timeout = secs(10);
        d.monitors[0].retries = 5;
        d.monitors[1].interval = secs(2);
        d.monitors[1].timeout = secs(1);
        d.monitors[1].retries = 0;
        d.monitors[1].port = Some(65535);
        d.pools[0].endpoints[0].weight = 0.0;
        d.pools[0].endpoints[1].weight = 0.29;
        d.pools[0].endpoints[1].address = d.pools[0].endpoints[0].address.clone();
        d.pools[0].endpoints[1].port = Some(1);
        d.pools[0].endpoints_min = 99;
        d.pools[0].tls.mode = Some(TlsMode::Strict);
        d.balancers[0].host = HostPattern::parse("*.example.com");
    });
    assert_eq!(faults, [] as [&str; 0]);
}

#[test]
fn all_faults_are_found_at_once() {
    let faults = check(|d| {
        d.monitors[0].retries = 9;
        d.pools[0].endpoints[0].weight = 2.0;
        d.pools[1].endpoints.clear();
        d.balancers[0].fallback = missing("nowhere");
    });
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn two_hosts_that_are_the_same() {
    let draft = sample().balancer("shop.example.com", Off, "eu", "eu").0;
    let faults = Catalog::check(draft).unwrap_err();
    assert_eq!(faults[0].subject, Subject::Balancer(1));
    assert_eq!(
        faults[0].error.to_string(),
        "load balancer \"shop.example.com\" is not unique"
    );
}

fn rooms(draft: &mut Draft) {
    for (name, path) in [("sale", "/sale"), ("shop", "/")] {
        let mut room = Room::new(Id::derive("default", Kind::Room, name));
        room.name = name.to_owned();
        room.zone = "example.com".to_owned();
        room.routes = vec![Route::new("shop.example.com", path)];
        (room.seats_max, room.per_minute_max) = (200, 200);
        draft.rooms.push(room);
    }
}

#[test]
fn each_rule_of_rooms() {
    let cases: Vec<Case> = vec![
        (
            "Room(1).Name: waiting room name \"sale\" is not unique",
            Box::new(|d| d.rooms[1].name = "sale".to_owned()),
        ),
        (
            "Room(1).Room(Path(0)): route \"shop.example.com/sale\" is not unique",
            Box::new(|d| d.rooms[1].routes = vec![Route::new("Shop.example.com", "/x/../sale/")]),
        ),
        (
            "Room(0).Room(AdditionalRoutes): additional_routes is set without cookie_suffix",
            Box::new(|d| d.rooms[0].routes.push(Route::new("www.example.com", "/"))),
        ),
        (
            "Room(0).Room(Host(0)): host \"a.example\" is outside the zone \"example.com\"",
            Box::new(|d| d.rooms[0].routes = vec![Route::new("a.example", "/")]),
        ),
        (
            "Room(0).Room(Host(1)): host \"*\" is not a hostname without scheme, port and wildcard",
            Box::new(|d| {
                d.rooms[0].cookie_suffix = Some("x".to_owned());
                d.rooms[0].routes.push(Route::new("*", "/"));
            }),
        ),
        (
            "Room(0).Room(Path(0)): path \"/a/cdn-cgi/waitingroom/b\" lies under /cdn-cgi/waitingroom, where no endpoint is asked",
            Box::new(|d| {
                let path = "/a/cdn-cgi//waitingroom/b";
                d.rooms[0].routes = vec![Route::new("shop.example.com", path)];
            }),
        ),
        (
            "Room(0).Room(Seats): total_active_users 199 is outside 200..2147483647",
            Box::new(|d| {
                d.room_profile = RoomProfile::Cloudflare;
                d.rooms[0].seats_max = 199;
                d.rooms[0].per_minute_max = 200;
            }),
        ),
        (
            "Room(0).Room(PerMinute): new_users_per_minute 201 is outside 200..200",
            Box::new(|d| {
                d.room_profile = RoomProfile::Cloudflare;
                d.rooms[0].per_minute_max = 201;
            }),
        ),
        (
            "Room(0).Room(Session): session in seconds 0 is outside 1..86400",
            Box::new(|d| d.rooms[0].session = Duration::ZERO),
        ),
        (
            "Room(0).Room(Page): custom_page_html has 1048577 bytes, more than 1048576",
            Box::new(|d| d.rooms[0].page = "x".repeat(1_048_577).into()),
        ),
    ];
    for (said, change) in cases {
        let faults = check(|draft| {
            rooms(draft);
            change(draft);
        });
        // The hosted service's profile finds the rate above too few seats as well.
        assert!(
            faults.iter().any(|fault| fault == said),
            "{said}\n{faults:#?}"
        );
    }
    assert_eq!(check(rooms), [] as [&str; 0]);
    // No limit is too small where nobody asks for those of the hosted service.
    let small = |draft: &mut Draft| {
        rooms(draft);
        (draft.rooms[0].seats_max, draft.rooms[0].per_minute_max) = (0, 2_147_483_647);
        draft.rooms[0].routes = vec![Route::new("shop.example.com", "/cdn-cgi/waitingrooms")];
        draft.rooms[1].routes = vec![Route::new("*", "/")];
        draft.rooms[1].zone = String::new();
    };
    assert_eq!(check(small), [] as [&str; 0]);
}
