//! The laws of the rules language.

use std::net::IpAddr;

use usher_core::request::Scheme;
use usher_core::rules::condition::{Condition, FrontKind};
use usher_core::rules::facts::{Facts, Front, Http};
use usher_core::time::Wall;

/// `input` is an expression and, behind a zero byte, what a visitor sends as path and headers.
pub fn rules(input: &[u8]) {
    let mut parts = input.splitn(3, |&byte| byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let uri = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let value = parts.next().unwrap_or_default();
    let condition = match Condition::parse(&text) {
        Ok(condition) => condition,
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a word");
            for fault in faults {
                let there = text.get(fault.span.start..fault.span.end).is_some();
                assert!(there, "{fault:?} points outside of the text");
            }
            return;
        }
    };
    let headers = [("x-a", value), ("cookie", value), ("X-A", b"b".as_slice())];
    let facts = Facts {
        balancer: "shop.example.com",
        node: "SJC",
        region: None,
        client: IpAddr::from([192, 0, 2, 1]),
        country: Some("US"),
        front: Front::Http(Http {
            scheme: Scheme::Https,
            method: "GET",
            host: "shop.example.com",
            uri: &uri,
            version: "HTTP/1.1",
            headers: &headers,
            time: Wall::from_millis(0),
        }),
    };
    assert_eq!(condition.text(), text);
    let _ = (condition.reads(), condition.warnings(FrontKind::Dns));
    let holds = condition.matches(&facts);
    assert_eq!(holds, condition.matches(&facts), "asked twice");
    // Longer or deeper by this may be too much; then there is nothing to compare.
    if !text.trim().is_empty() {
        if let Ok(opposite) = Condition::parse(&format!("not ({text})")) {
            assert_ne!(holds, opposite.matches(&facts), "not {text}");
        }
    }
}
