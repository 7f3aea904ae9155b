//! Whether a rule of the operator's lets a request pass.
//!
//! Rules read the path as received, and the endpoint makes of it what it will: `/open/../closed`
//! begins with `/open`. So a rule lets pass what it holds for however the path may be read. A path
//! that has one reading, and is it, is asked about once.

use usher_core::rules::condition::Condition;
use usher_core::rules::facts::{Facts, Front, Http};

use crate::route::{Readings, path_of};

/// Whether `rule` holds for the request of `facts`, however its path is read.
pub(super) fn lets_pass(rule: &Condition, facts: &Facts<'_>) -> bool {
    if !rule.matches(facts) {
        return false;
    }
    let Front::Http(http) = facts.front else {
        return true;
    };
    let path = path_of(http.uri);
    let rest = &http.uri[path.len()..];
    let holds = |read: &str| {
        let uri = [read, rest].concat();
        let front = Front::Http(Http { uri: &uri, ..http });
        rule.matches(&Facts { front, ..*facts })
    };
    let readings = Readings::of(path);
    (readings.normal() == path || holds(readings.normal()))
        && readings.others().all(|read| holds(&read))
}

#[cfg(test)]
mod tests {
    use usher_core::request::Scheme;
    use usher_core::time::Wall;

    use super::*;

    fn passes(rule: &str, uri: &str) -> bool {
        let rule = Condition::parse(rule).expect("a rule");
        let lines: [(&str, &str); 0] = [];
        let http = Http {
            scheme: Scheme::Http,
            method: "GET",
            host: "example.com",
            uri,
            version: "HTTP/1.1",
            headers: &lines,
            time: Wall::from_millis(0),
        };
        let facts = Facts {
            balancer: "",
            node: "",
            region: None,
            client: [192, 0, 2, 1].into(),
            country: None,
            front: Front::Http(http),
        };
        lets_pass(&rule, &facts)
    }

    #[test]
    fn a_rule_holds_however_the_path_is_read() {
        let open = r#"starts_with(http.request.uri.path, "/byp/open")"#;
        for uri in [
            "/byp/open",
            "/byp/openX",
            "/byp/open/a?b=/../x",
            "/byp/open/a/../b",
            "/byp/open/%C3%A9",
            "/byp/open//a",
            "/byp/open;x=1",
            "/byp/open%2Fa",
        ] {
            assert!(passes(open, uri), "{uri}");
        }
        for uri in [
            "/byp/open/../x",
            "/byp/open/%2e%2e/x",
            "/byp/open/%2E./x?a",
            "/byp/open%2f..%2fx",
            "/byp/open/..%2Fx",
            "/byp/openX/../x",
            "/byp/open/..;/x",
            "/byp/open\\..\\x",
            "/byp/open/..%5cx",
            "/byp//open/../open",
        ] {
            assert!(!passes(open, uri), "{uri}");
        }
        // What is asked beside the path is as it was.
        let query = r#"http.request.uri.query eq "a=1" and http.request.uri.path eq "/a""#;
        assert!(passes(query, "/a?a=1"));
        // And what the path is not, it must not be in any reading.
        let not = r#"not starts_with(http.request.uri.path, "/closed")"#;
        assert!(passes(not, "/open"));
        assert!(!passes(not, "/open/../closed"));
        assert!(!passes(not, "/closed%2Fa"));
    }
}
