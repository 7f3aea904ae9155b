//! The language as a whole: what is true of which request, and what is said of mistakes.

mod form;
mod found;
mod mistakes;
mod truth;

use std::net::IpAddr;

use super::Condition;
use crate::request::Scheme;
use crate::rules::facts::{Dns, Facts, Front, Http};
use crate::time::Wall;

type Lines = Vec<(&'static str, Vec<u8>)>;

/// Header lines of the sample, in any case as a front may keep them.
fn headers() -> Lines {
    [
        ("Host", "shop.example.com"),
        ("User-Agent", "Mozilla/5.0 (X11; Linux) Chrome/120"),
        ("accept", "text/html"),
        ("X-Tag", "one"),
        ("x-tag", "Two"),
        ("X-Empty", ""),
        (
            "X-Json",
            r#"{"user":{"name":"Ada","age":36,"roles":["admin","dev"]},"n":-5}"#,
        ),
        ("cookie", "session=abc123; theme=dark"),
        ("cookie", "lang=de"),
    ]
    .map(|(name, value)| (name, value.as_bytes().to_vec()))
    .into()
}

fn http<'a>(uri: &'a str, headers: &'a Lines) -> Http<'a> {
    Http {
        scheme: Scheme::Https,
        method: "GET",
        host: "shop.example.com",
        uri,
        version: "HTTP/1.1",
        headers,
        time: Wall::from_millis(1_764_547_200_999),
    }
}

fn facts(front: Front<'_>) -> Facts<'_> {
    Facts {
        balancer: "shop.example.com",
        node: "SJC",
        region: Some("WNAM"),
        client: IpAddr::from([203, 0, 113, 77]),
        country: Some("US"),
        front,
    }
}

const URI: &str = "/blog/post%201?id=7&tag=a&tag=b%20c&Tag=X&flag&empty=&=nameless";

/// Whether it holds for the sample request.
fn holds(expression: &str) -> bool {
    let condition = parsed(expression);
    let headers = headers();
    condition.matches(&facts(Front::Http(http(URI, &headers))))
}

/// Whether it holds for a DNS query with a client subnet.
fn holds_for_dns(expression: &str) -> bool {
    let dns = Dns {
        name: "shop.example.com.",
        kind: 28,
        unicast: false,
        client_subnet: Some(IpAddr::from([198, 51, 100, 0])),
    };
    parsed(expression).matches(&facts(Front::Dns(dns)))
}

fn parsed(expression: &str) -> Condition {
    match Condition::parse(expression) {
        Ok(condition) => condition,
        Err(faults) => panic!("{expression}: {faults:?}"),
    }
}

/// The faults as text, one a line.
fn said(expression: &str) -> String {
    match Condition::parse(expression) {
        Ok(_) => "no fault".to_owned(),
        Err(faults) => {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            lines.join("\n")
        }
    }
}

/// Every line of `table` is an expression; all must be `expected` of the sample request.
fn check(expected: bool, table: &str) {
    let lines = table.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty()) {
        assert_eq!(holds(line), expected, "{line}");
    }
}
