//! A zone: its settings, and the extras that Usher adds to them.

use usher_core::catalog::{EndpointTls, Ssl, Zone};
use usher_core::id::{Id, Kind};

use super::reader::{Cursor, Shape, Word, built, declared, read_only, unbuilt};

/// A zone.
pub static ZONE: Shape = Shape {
    name: "zone",
    keys: &[
        built("ssl"),
        built("always_use_https"),
        built("upstream"),
        unbuilt("account", &["default"]),
        read_only("id"),
        read_only("status"),
    ],
};

/// What holds for every connection from a zone to its endpoints.
pub static UPSTREAM: Shape = Shape {
    name: "upstream of a zone",
    keys: &[
        built("ca"),
        built("client_cert"),
        built("client_key"),
        unbuilt("bind", &[]),
        unbuilt("tls_min", &[]),
    ],
};

const SSL: [(&str, Word<Ssl>); 4] = [
    ("flexible", Word::Means(Ssl::Flexible)),
    ("full", Word::Means(Ssl::Full)),
    ("strict", Word::Means(Ssl::Strict)),
    // The word exists on the service: no TLS towards clients either.
    ("off", Word::Unbuilt),
];

/// Reads a zone.
#[must_use]
pub fn read(cursor: &Cursor<'_>, id: Id, name: &str) -> Zone {
    let mut zone = Zone { id, ..named(name) };
    let Some(object) = cursor.object(&ZONE) else {
        return zone;
    };
    zone.ssl = object
        .get("ssl")
        .and_then(|word| word.word(&SSL))
        .unwrap_or_default();
    zone.always_use_https = object.flag_or("always_use_https", false);
    if let Some(upstream) = object
        .get("upstream")
        .and_then(|upstream| upstream.object(&UPSTREAM))
    {
        zone.tls.ca = upstream.text("ca");
        zone.tls.client_cert = upstream.text("client_cert");
        zone.tls.client_key = upstream.text("client_key");
    }
    zone
}

/// A zone with nothing but its name.
fn named(name: &str) -> Zone {
    let name = name.to_ascii_lowercase();
    Zone {
        id: declared(Kind::Zone, &name),
        name,
        ssl: Ssl::default(),
        always_use_https: false,
        tls: EndpointTls::default(),
    }
}

/// The zone among `zones` that `host` stands in; the longest name wins.
#[must_use]
pub fn containing<'z>(zones: &'z [Zone], host: &str) -> Option<&'z Zone> {
    let holds = |zone: &&Zone| {
        let rest = host.strip_suffix(zone.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    zones
        .iter()
        .filter(holds)
        .max_by_key(|zone| zone.name.len())
}

/// The zone of a host that no declared zone holds: its last two labels, with every default. An
/// address is a zone of its own.
#[must_use]
pub fn implied(host: &str) -> Zone {
    let host = host.trim_start_matches("*.");
    if host.parse::<std::net::IpAddr>().is_ok() {
        return named(host);
    }
    let dots = host.rmatch_indices('.').nth(1);
    named(dots.map_or(host, |(dot, _)| &host[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_zone_holds_a_host() {
        let zones = ["example.com", "shop.example.com", "le.com"].map(named);
        let found = |host| containing(&zones, host).map(|zone| zone.name.as_str());
        assert_eq!(found("a.example.com"), Some("example.com"));
        assert_eq!(found("shop.example.com"), Some("shop.example.com"));
        assert_eq!(found("*.shop.example.com"), Some("shop.example.com"));
        assert_eq!(found("sample.com"), None);
        assert_eq!(found("example.net"), None);
    }

    #[test]
    fn a_host_implies_a_zone() {
        let pairs = [
            ("a.b.example.com", "example.com"),
            ("*.example.com", "example.com"),
            ("example.com", "example.com"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
        ];
        for (host, zone) in pairs {
            assert_eq!(implied(host).name, zone);
        }
    }
}
