//! A pool and its origins: the fields of `/accounts/{account_id}/load_balancers/pools`.

use std::time::Duration;

use usher_core::catalog::{
    Address, Endpoint, EndpointTls, Monitoring, Pool, ShedPolicy, Shedding, TlsMode,
};
use usher_core::id::{Id, Kind};
use usher_core::region::Region;
use usher_core::steering::EndpointSteering;

use super::reader::{Cursor, Object, Shape, Word, built, declared, read_only, unbuilt};

/// A pool.
pub static POOL: Shape = Shape {
    name: "pool",
    keys: &[
        built("name"),
        built("description"),
        built("enabled"),
        built("origins"),
        built("origin_steering"),
        built("minimum_origins"),
        built("monitor"),
        built("monitor_group"),
        built("latitude"),
        built("longitude"),
        built("load_shedding"),
        built("usher"),
        built("check_regions"),
        built("health_sources"),
        built("notification_email"),
        built("notification_filter"),
        built("networks"),
        unbuilt("account", &["default"]),
        read_only("id"),
        read_only("created_on"),
        read_only("modified_on"),
        read_only("disabled_at"),
    ],
};

/// How a pool chooses among its origins.
pub static ORIGIN_STEERING: Shape = Shape {
    name: "origin_steering of a pool",
    keys: &[built("policy")],
};

/// What part of its traffic a pool passes on to others.
pub static LOAD_SHEDDING: Shape = Shape {
    name: "load_shedding of a pool",
    keys: &[
        built("default_percent"),
        built("default_policy"),
        built("session_percent"),
        built("session_policy"),
    ],
};

/// What of a pool is told to those who want to be told.
pub static NOTIFICATION_FILTER: Shape = Shape {
    name: "notification_filter of a pool",
    keys: &[built("pool"), built("origin")],
};

/// What is told of the pool itself, or of its origins.
pub static NOTIFICATION_PART: Shape = Shape {
    name: "part of a notification_filter",
    keys: &[built("disable"), built("healthy")],
};

/// What Usher adds to a pool: how to speak to its origins, and how they come into service.
pub static POOL_USHER: Shape = Shape {
    name: "usher of a pool",
    keys: &[
        built("tls"),
        built("ca"),
        built("client_cert"),
        built("client_key"),
        built("sni"),
        built("slow_start"),
        built("http2"),
    ],
};

/// An origin.
pub static ORIGIN: Shape = Shape {
    name: "origin",
    keys: &[
        built("name"),
        built("address"),
        built("port"),
        built("enabled"),
        built("weight"),
        built("header"),
        unbuilt("virtual_network_id", &[]),
        // Only the DNS front would look at it.
        unbuilt("flatten_cname", &["true"]),
        read_only("disabled_at"),
    ],
};

/// Request headers of an origin.
pub static ORIGIN_HEADER: Shape = Shape {
    name: "header of an origin",
    keys: &[built("Host")],
};

/// What `check_regions` may name beside the codes of regions.
const ALL_REGIONS: &str = "ALL_REGIONS";
const CHINA: &str = "CHINA";

const POLICIES: [(&str, Word<EndpointSteering>); 4] = [
    ("random", Word::Means(EndpointSteering::Random)),
    ("hash", Word::Means(EndpointSteering::Hash)),
    (
        "least_outstanding_requests",
        Word::Means(EndpointSteering::LeastOutstandingRequests),
    ),
    (
        "least_connections",
        Word::Means(EndpointSteering::LeastConnections),
    ),
];

const SHED_POLICIES: [(&str, Word<ShedPolicy>); 2] = [
    ("random", Word::Means(ShedPolicy::Random)),
    ("hash", Word::Means(ShedPolicy::Hash)),
];

/// Visitors with a pin are told apart by their address: there is no other way.
const SESSION_SHED_POLICIES: [(&str, Word<()>); 1] = [("hash", Word::Means(()))];

const TLS_MODES: [(&str, Word<TlsMode>); 3] = [
    ("off", Word::Means(TlsMode::Off)),
    ("full", Word::Means(TlsMode::Full)),
    ("strict", Word::Means(TlsMode::Strict)),
];

/// Reads a pool. `name` is the key of a file; `None` takes the field `name`.
#[must_use]
pub fn read(cursor: &Cursor<'_>, id: Id, name: Option<&str>) -> Pool {
    let mut pool = Pool {
        id,
        name: name.unwrap_or_default().to_owned(),
        description: String::new(),
        enabled: true,
        endpoints: Vec::new(),
        steering: EndpointSteering::default(),
        endpoints_min: 1,
        monitoring: Monitoring::None,
        tls: EndpointTls::default(),
        coordinates: None,
        shedding: Shedding::default(),
        slow_start: None,
    };
    let Some(object) = cursor.object(&POOL) else {
        return pool;
    };
    match name {
        Some(key) => object.same_as_key("name", key),
        None => pool.name = object.need_text("name"),
    }
    pool.description = object.text_or("description", "");
    pool.enabled = object.flag_or("enabled", true);
    pool.endpoints_min = object.count_or("minimum_origins", (0, u32::MAX), 1);
    pool.monitoring = read_monitoring(&object);
    pool.coordinates = coordinates(&object);
    if let Some(shedding) = object
        .get("load_shedding")
        .and_then(|it| it.object(&LOAD_SHEDDING))
    {
        pool.shedding = read_shedding(&shedding);
    }
    if let Some(steering) = object
        .get("origin_steering")
        .and_then(|it| it.object(&ORIGIN_STEERING))
    {
        pool.steering = steering
            .get("policy")
            .and_then(|word| word.word(&POLICIES))
            .unwrap_or_default();
    }
    if let Some(usher) = object
        .get("usher")
        .and_then(|usher| usher.object(&POOL_USHER))
    {
        pool.tls = EndpointTls {
            mode: usher.get("tls").and_then(|word| word.word(&TLS_MODES)),
            ca: usher.text("ca"),
            client_cert: usher.text("client_cert"),
            client_key: usher.text("client_key"),
            sni: usher.text("sni"),
            http2: usher.flag_or("http2", false),
        };
        let slow_start = usher.get("slow_start").and_then(|secs| secs.count(1, 3600));
        pool.slow_start = slow_start.map(|secs| Duration::from_secs(secs.into()));
    }
    if let Some(filter) = object
        .get("notification_filter")
        .and_then(|it| it.object(&NOTIFICATION_FILTER))
    {
        look_at_filter(&filter);
    }
    if let Some(address) = object.get("notification_email")
        && address.text().is_some_and(|text| !text.is_empty())
    {
        address.note("is kept, and no mail is sent: a notification policy tells a webhook");
    }
    look_at_sources(&object);
    // Kept and shown again; nothing else comes of it.
    super::texts(&object, "networks");
    let origins = object.need("origins");
    let origins = origins.iter().flat_map(Cursor::list);
    pool.endpoints = origins.map(|origin| read_origin(&origin, id)).collect();
    pool
}

/// Kept and shown again: this node probes by itself, and nobody else tells it what they see.
fn look_at_sources(object: &Object<'_>) {
    let regions = object.get("check_regions");
    let listed = regions.as_ref().map(Cursor::list).unwrap_or_default();
    let mut seen = Vec::new();
    for region in &listed {
        let Some(code) = region.text() else { continue };
        if code != ALL_REGIONS && code != CHINA && Region::parse(code).is_none() {
            region.fault(format_args!("{code:?} is not the code of a region"));
        } else if seen.contains(&code) {
            region.fault(format_args!("{code:?} is not unique"));
        } else if code == ALL_REGIONS && listed.len() > 1 {
            region.fault("stands for all regions, so it must stand alone");
        }
        seen.push(code);
    }
    let sources = object.get("health_sources");
    if let Some(sources) = &sources {
        let words = sources.list();
        let words: Vec<_> = words.iter().map(|word| word.value().as_str()).collect();
        let known = matches!(
            words.as_slice(),
            [Some("local" | "regional"), Some("global")] | [Some("global")]
        );
        if !known && sources.value().is_array() {
            sources.fault(
                "is neither [\"global\"], [\"local\", \"global\"] nor [\"regional\", \"global\"]",
            );
        } else if words.first() == Some(&Some("regional")) && listed.is_empty() {
            sources.fault("goes by regions, and check_regions names none");
        }
    }
    let asked = [regions.filter(|_| !listed.is_empty()), sources];
    for asked in asked.into_iter().flatten() {
        asked.note("is kept, without effect: this node goes by its own probes");
    }
}

/// It is asked when something is told, from the document; here it only has to be right.
fn look_at_filter(filter: &Object<'_>) {
    for key in ["pool", "origin"] {
        if let Some(part) = filter.get(key).and_then(|it| it.object(&NOTIFICATION_PART)) {
            let _ = part.flag_or("disable", false);
            let _ = part.flag_or("healthy", false);
        }
    }
}

fn read_monitoring(object: &Object<'_>) -> Monitoring {
    // An empty text is how the API clears the field.
    let named = |key, kind| {
        let value = object.get(key).filter(|value| value.value() != "")?;
        Some((value.clone(), value.reference(kind)?))
    };
    let monitor = named("monitor", Kind::Monitor);
    let group = named("monitor_group", Kind::MonitorGroup);
    match (monitor, group) {
        (Some(_), Some((cursor, _))) => {
            cursor.fault_at_key("cannot stand together with monitor");
            Monitoring::None
        }
        (Some((_, monitor)), None) => Monitoring::Monitor(monitor),
        (None, Some((_, group))) => Monitoring::Group(group),
        (None, None) => Monitoring::None,
    }
}

fn coordinates(object: &Object<'_>) -> Option<(f64, f64)> {
    let (latitude, longitude) = (object.get("latitude"), object.get("longitude"));
    match (&latitude, &longitude) {
        (Some(latitude), None) => latitude.fault_at_key("is set without longitude"),
        (None, Some(longitude)) => longitude.fault_at_key("is set without latitude"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    // Both are looked at, so that both are told.
    let latitude = latitude.and_then(|latitude| latitude.number_in(-90.0, 90.0));
    let longitude = longitude.and_then(|longitude| longitude.number_in(-180.0, 180.0));
    latitude.zip(longitude)
}

fn read_shedding(object: &Object<'_>) -> Shedding {
    let percent = |key| object.get(key).and_then(|percent| percent.number());
    let policy = object.get("default_policy");
    let session_policy = object.get("session_policy");
    // One word, which only has to be right.
    let _ = session_policy.and_then(|word| word.word(&SESSION_SHED_POLICIES));
    Shedding {
        default_percent: percent("default_percent").unwrap_or(0.0),
        default_policy: policy
            .and_then(|word| word.word(&SHED_POLICIES))
            .unwrap_or_default(),
        session_percent: percent("session_percent").unwrap_or(0.0),
    }
}

fn read_origin(item: &Cursor<'_>, pool: Id) -> Endpoint {
    let item = &label(item);
    let mut endpoint = Endpoint {
        id: declared(Kind::Endpoint, item.pointer()),
        name: String::new(),
        address: Address::Host(String::new()),
        port: None,
        enabled: true,
        weight: 1.0,
        host_header: None,
        disabled_at: None,
    };
    let Some(object) = item.object(&ORIGIN) else {
        return endpoint;
    };
    endpoint.name = object.need_text("name");
    endpoint.address = address(&object.need_text("address"));
    endpoint.port = object.port();
    endpoint.enabled = object.flag_or("enabled", true);
    endpoint.weight = object
        .get("weight")
        .and_then(|weight| weight.number())
        .unwrap_or(1.0);
    endpoint.host_header = object.get("header").and_then(|header| {
        let values = header.object(&ORIGIN_HEADER)?.get("Host")?;
        let hosts = values.list();
        if hosts.len() > 1 {
            values.fault(format_args!(
                "has {} values; at most 1 is possible",
                hosts.len()
            ));
        }
        hosts.first()?.text().map(str::to_owned)
    });
    endpoint.id = endpoint_id(pool, &endpoint.address, endpoint.port);
    endpoint
}

/// An endpoint is known by its pool, address and port: it may be renamed and moved in the list and
/// stays the same one.
fn endpoint_id(pool: Id, address: &Address, port: Option<u16>) -> Id {
    declared(
        Kind::Endpoint,
        &format!("{pool} {address} {}", port.unwrap_or(0)),
    )
}

fn address(text: &str) -> Address {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    match bare.parse() {
        Ok(ip) => Address::Ip(ip),
        Err(_) => Address::Host(text.to_ascii_lowercase()),
    }
}

/// Messages about an origin name it, or count it from 1 when it has no name.
fn label<'a>(item: &Cursor<'a>) -> Cursor<'a> {
    let name = item.value().get("name").and_then(|name| name.as_str());
    let number = || {
        let index = item
            .pointer()
            .rsplit('/')
            .next()
            .and_then(|index| index.parse::<usize>().ok());
        (index.unwrap_or(0) + 1).to_string()
    };
    let label = name
        .filter(|name| !name.is_empty())
        .map_or_else(number, str::to_owned);
    item.clone().as_resource(&format!("endpoint {label}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::reader::{Mode, Report};

    fn read_file(value: &Value) -> (Pool, Vec<String>) {
        let report = Report::new(Mode::File);
        let cursor = Cursor::root(&report, value).as_resource("pool eu");
        let pool = read(&cursor, declared(Kind::Pool, "eu"), Some("eu"));
        let (faults, _) = report.into_parts();
        (pool, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_field_is_read() {
        let (pool, faults) = read_file(&json!({
            "name": "eu", "description": "d", "enabled": false, "minimum_origins": 2,
            "monitor": "web", "latitude": 50.1, "longitude": 8.7,
            "origin_steering": {"policy": "least_connections"},
            "load_shedding": {"default_percent": 12.5, "default_policy": "hash",
                              "session_percent": 20, "session_policy": "hash"},
            "usher": {"tls": "strict", "ca": "ca.pem", "sni": "example.com", "http2": true,
                      "slow_start": 30},
            "origins": [
                {"name": "a", "address": "192.0.2.1", "port": 9001, "weight": 0.25, "enabled": false,
                 "header": {"Host": ["shop.example.com"]}, "virtual_network_id": "", "flatten_cname": true},
                {"name": "b", "address": "[2001:DB8::1]", "port": 0},
                {"name": "c", "address": "Origin.Example.COM", "header": null},
            ],
        }));
        assert_eq!(faults, [""; 0]);
        assert!(!pool.enabled);
        assert_eq!((pool.endpoints_min, pool.name.as_str()), (2, "eu"));
        assert!(matches!(&pool.monitoring, Monitoring::Monitor(monitor) if monitor.text == "web"));
        assert_eq!(pool.tls.mode, Some(TlsMode::Strict));
        assert_eq!(pool.coordinates, Some((50.1, 8.7)));
        assert_eq!(pool.steering, EndpointSteering::LeastConnections);
        let shedding = Shedding {
            default_percent: 12.5,
            default_policy: ShedPolicy::Hash,
            session_percent: 20.0,
        };
        assert_eq!(pool.shedding, shedding);
        assert_eq!(pool.slow_start, Some(Duration::from_secs(30)));
        assert_eq!(pool.tls.ca.as_deref(), Some("ca.pem"));
        assert!(pool.tls.http2);
        let [a, b, c] = pool.endpoints.as_slice() else {
            panic!("{:?}", pool.endpoints)
        };
        assert_eq!((a.weight, a.port, a.enabled), (0.25, Some(9001), false));
        assert_eq!(a.host_header.as_deref(), Some("shop.example.com"));
        assert_eq!(
            (b.address.to_string().as_str(), b.port),
            ("2001:db8::1", None)
        );
        assert_eq!(c.address, Address::Host("origin.example.com".into()));
    }

    #[test]
    fn an_endpoint_keeps_its_id_when_it_is_renamed_and_moved() {
        let origin =
            |name: &str, port: u16| json!({"name": name, "address": "192.0.2.1", "port": port});
        let (one, _) = read_file(&json!({"origins": [origin("a", 1), origin("b", 2)]}));
        let (two, _) = read_file(&json!({"origins": [origin("x", 2), origin("y", 1)]}));
        assert_eq!(one.endpoints[0].id, two.endpoints[1].id);
        assert_eq!(one.endpoints[1].id, two.endpoints[0].id);
        assert_ne!(one.endpoints[0].id, one.endpoints[1].id);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (_, faults) = read_file(&json!({
            "name": "us", "monitor": "a", "monitor_group": "b", "latitude": 91,
            "check_regions": ["XEU", "WEU", "WEU", "ALL_REGIONS"], "health_sources": ["regional"],
            "load_shedding": {"default_percent": "50", "session_policy": "random"},
            "origin_steering": {"policy": "fastest"}, "usher": {"tls": "maybe", "http2": 2},
            "origins": [
                "x",
                {"name": "a", "weight": "1", "header": {"Host": ["a", "b"], "X": []}},
                {"address": 5, "virtual_network_id": "v"},
            ],
        }));
        assert_eq!(
            faults,
            [
                "pool eu: name \"us\" is not the key \"eu\", which names it here",
                "pool eu: monitor_group cannot stand together with monitor",
                "pool eu: latitude is set without longitude",
                "pool eu: latitude 91 is outside -90..90",
                "pool eu: load_shedding.session_policy \"random\" is not one of hash",
                "pool eu: load_shedding.default_percent must be a number, not text",
                "pool eu: origin_steering.policy \"fastest\" is not one of random, hash, \
                 least_outstanding_requests, least_connections",
                "pool eu: usher.tls \"maybe\" is not one of off, full, strict",
                "pool eu: usher.http2 must be true or false, not a number",
                "pool eu: check_regions[0] \"XEU\" is not the code of a region",
                "pool eu: check_regions[2] \"WEU\" is not unique",
                "pool eu: check_regions[3] stands for all regions, so it must stand alone",
                "pool eu: health_sources is neither [\"global\"], [\"local\", \"global\"] nor [\"regional\", \"global\"]",
                "pool eu: endpoint 1 must be an object, not text",
                "pool eu: endpoint a: address is missing",
                "pool eu: endpoint a: weight must be a number, not text",
                "pool eu: endpoint a: header: unknown key \"X\"",
                "pool eu: endpoint a: header.Host has 2 values; at most 1 is possible",
                "pool eu: endpoint 3: virtual_network_id v is not built yet",
                "pool eu: endpoint 3: name is missing",
                "pool eu: endpoint 3: address must be text in quotes, not a number",
            ]
        );
    }
}
