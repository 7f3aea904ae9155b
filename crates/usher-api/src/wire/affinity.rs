//! Session affinity: of a load balancer, and of a rule that overrides it.
//!
//! How long a pin may hold depends on how visitors are known, so the core judges the range; a mode
//! that is not written leaves the time to the default of the one in force.

use std::time::Duration;

use usher_core::catalog::{
    Affinity, AffinityAttributes, AffinityMode, CookieMarks, PinFailover, SameSite, Secure,
};

use super::reader::{Cursor, Object, Shape, Word, built};

/// The fine print of session affinity.
pub static AFFINITY_ATTRIBUTES: Shape = Shape {
    name: "session_affinity_attributes",
    keys: &[
        built("samesite"),
        built("secure"),
        built("drain_duration"),
        built("zero_downtime_failover"),
        built("headers"),
        built("require_all_headers"),
    ],
};

const MODES: [(&str, Word<AffinityMode>); 5] = [
    ("", Word::Means(AffinityMode::None)),
    ("none", Word::Means(AffinityMode::None)),
    ("cookie", Word::Means(AffinityMode::Cookie)),
    ("ip_cookie", Word::Means(AffinityMode::IpCookie)),
    ("header", Word::Means(AffinityMode::Header)),
];

const SAME_SITE: [(&str, Word<SameSite>); 4] = [
    ("Auto", Word::Means(SameSite::Auto)),
    ("Lax", Word::Means(SameSite::Lax)),
    ("None", Word::Means(SameSite::None)),
    ("Strict", Word::Means(SameSite::Strict)),
];

const SECURE: [(&str, Word<Secure>); 3] = [
    ("Auto", Word::Means(Secure::Auto)),
    ("Always", Word::Means(Secure::Always)),
    ("Never", Word::Means(Secure::Never)),
];

const FAILOVER: [(&str, Word<PinFailover>); 3] = [
    ("none", Word::Means(PinFailover::None)),
    ("temporary", Word::Means(PinFailover::Temporary)),
    ("sticky", Word::Means(PinFailover::Sticky)),
];

/// Reads the affinity of a load balancer.
pub(super) fn read(object: &Object<'_>) -> Affinity {
    let mode = mode(object).unwrap_or_default();
    Affinity {
        mode,
        ttl: ttl(object, mode),
        attributes: attributes(object).unwrap_or_default(),
    }
}

/// By what visitors are known, if it is said.
pub(super) fn mode(object: &Object<'_>) -> Option<AffinityMode> {
    object.get("session_affinity")?.word(&MODES)
}

/// How long a pin holds, if it is said.
pub(super) fn ttl(object: &Object<'_>, mode: AffinityMode) -> Option<Duration> {
    let (min, max) = mode.ttl_range();
    let secs = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let ttl = object
        .get("session_affinity_ttl")?
        .count(secs(min), secs(max))?;
    Some(Duration::from_secs(ttl.into()))
}

/// The fine print, if there is any.
pub(super) fn attributes(object: &Object<'_>) -> Option<AffinityAttributes> {
    let object = object
        .get("session_affinity_attributes")?
        .object(&AFFINITY_ATTRIBUTES)?;
    let same_site = object
        .get("samesite")
        .and_then(|word| word.word(&SAME_SITE));
    let secure = object.get("secure").and_then(|word| word.word(&SECURE));
    let failover = object.get("zero_downtime_failover");
    let headers = object.get("headers");
    let headers = headers.iter().flat_map(Cursor::list);
    Some(AffinityAttributes {
        marks: CookieMarks {
            secure: secure.unwrap_or_default(),
            same_site: same_site.unwrap_or_default(),
        },
        drain: Duration::from_secs(object.count_or("drain_duration", (0, u32::MAX), 0).into()),
        failover: failover
            .and_then(|word| word.word(&FAILOVER))
            .unwrap_or_default(),
        // One that is no text stays in its place, for the faults of those behind it.
        headers: headers
            .map(|header| header.text().unwrap_or_default().to_owned())
            .collect(),
        require_all_headers: object.flag_or("require_all_headers", false),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::balancers;
    use crate::wire::reader::{Mode, Report, declared};
    use usher_core::id::Kind;

    fn read_file(value: &Value) -> (Affinity, Vec<String>) {
        let report = Report::new(Mode::File);
        let mut whole = json!({"proxied": true, "default_pools": ["eu"], "fallback_pool": "eu"});
        let fields = value.as_object().expect("fields").clone();
        whole.as_object_mut().expect("an object").extend(fields);
        let cursor = Cursor::root(&report, &whole).as_resource("load balancer lb");
        let balancer = balancers::read(&cursor, declared(Kind::Balancer, "lb"), Some("lb"));
        let (faults, _) = report.into_parts();
        let faults = faults.iter().map(ToString::to_string).collect();
        (balancer.affinity, faults)
    }

    #[test]
    fn every_field_is_read() {
        let (affinity, faults) = read_file(&json!({
            "session_affinity": "header", "session_affinity_ttl": 60,
            "session_affinity_attributes": {
                "samesite": "Strict", "secure": "Always", "drain_duration": 100,
                "zero_downtime_failover": "temporary", "headers": ["x-user", "cookie:a,b"],
                "require_all_headers": true,
            },
        }));
        assert_eq!(faults, [""; 0]);
        assert_eq!(affinity.mode, AffinityMode::Header);
        assert_eq!(affinity.ttl, Some(Duration::from_secs(60)));
        let expected = AffinityAttributes {
            marks: CookieMarks {
                secure: Secure::Always,
                same_site: SameSite::Strict,
            },
            drain: Duration::from_secs(100),
            failover: PinFailover::Temporary,
            headers: vec!["x-user".into(), "cookie:a,b".into()],
            require_all_headers: true,
        };
        assert_eq!(affinity.attributes, expected);
    }

    #[test]
    fn every_word_is_known() {
        for mode in AffinityMode::ALL {
            let (affinity, faults) = read_file(&json!({"session_affinity": mode.name()}));
            assert_eq!((affinity.mode, faults), (mode, vec![]));
        }
        let (affinity, faults) = read_file(&json!({"session_affinity": ""}));
        assert_eq!((affinity, faults), (Affinity::default(), vec![]));
        let marks = |key: &str, word: &str| {
            let (affinity, faults) =
                read_file(&json!({"session_affinity_attributes": {key: word}}));
            assert_eq!(faults, [""; 0]);
            affinity.attributes
        };
        for same_site in SameSite::ALL {
            let marks = marks("samesite", same_site.name()).marks;
            assert_eq!(marks.same_site, same_site);
        }
        for secure in Secure::ALL {
            assert_eq!(marks("secure", secure.name()).marks.secure, secure);
        }
        for failover in [
            PinFailover::None,
            PinFailover::Temporary,
            PinFailover::Sticky,
        ] {
            let read = marks("zero_downtime_failover", failover.name()).failover;
            assert_eq!(read, failover);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (_, faults) = read_file(&json!({
            "session_affinity": "cookies", "session_affinity_ttl": -5,
            "session_affinity_attributes": {
                "samesite": "lax", "secure": true, "drain_duration": 1.5, "drain": 5,
                "zero_downtime_failover": "always", "headers": [5, "x"],
            },
        }));
        assert_eq!(
            faults,
            [
                "load balancer lb: session_affinity \"cookies\" is not one of none, cookie, ip_cookie, header",
                "load balancer lb: session_affinity_ttl -5 is outside 1800..604800",
                "load balancer lb: session_affinity_attributes: unknown key \"drain\"",
                "load balancer lb: session_affinity_attributes.samesite \"lax\" is not one of Auto, Lax, None, Strict",
                "load balancer lb: session_affinity_attributes.secure must be text in quotes, not true or false",
                "load balancer lb: session_affinity_attributes.drain_duration 1.5 is not a whole number",
                "load balancer lb: session_affinity_attributes.zero_downtime_failover \"always\" is not one of none, temporary, sticky",
                "load balancer lb: session_affinity_attributes.headers[0] must be text in quotes, not a number",
            ]
        );
    }
}
