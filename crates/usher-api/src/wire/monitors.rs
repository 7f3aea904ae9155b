//! A monitor: the fields of `/accounts/{account_id}/load_balancers/monitors`.

use std::time::Duration;

use usher_core::catalog::{CodeSet, HttpCheck, Monitor, MonitorKind};
use usher_core::id::Id;

use super::reader::{Cursor, Object, Shape, Word, built, read_only, unbuilt};

/// A monitor.
pub static MONITOR: Shape = Shape {
    name: "monitor",
    keys: &[
        built("type"),
        built("description"),
        built("method"),
        built("path"),
        built("port"),
        built("header"),
        built("expected_codes"),
        built("expected_body"),
        built("follow_redirects"),
        built("allow_insecure"),
        built("interval"),
        built("timeout"),
        built("retries"),
        built("consecutive_down"),
        built("consecutive_up"),
        built("probe_zone"),
        unbuilt("account", &["default"]),
        read_only("id"),
        read_only("created_on"),
        read_only("modified_on"),
    ],
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Http,
    Https,
    Tcp,
}

const TYPES: [(&str, Word<Type>); 7] = [
    ("http", Word::Means(Type::Http)),
    ("https", Word::Means(Type::Https)),
    ("tcp", Word::Means(Type::Tcp)),
    ("udp_icmp", Word::Unbuilt),
    ("icmp_ping", Word::Unbuilt),
    ("smtp", Word::Unbuilt),
    ("ldap", Word::Unbuilt),
];

/// Keys that speak of a request, which a TCP probe does not make.
const REQUEST_KEYS: [&str; 7] = [
    "method",
    "path",
    "header",
    "expected_codes",
    "expected_body",
    "follow_redirects",
    "allow_insecure",
];

/// Reads a monitor.
#[must_use]
pub fn read(cursor: &Cursor<'_>, id: Id, name: &str) -> Monitor {
    let mut monitor = Monitor {
        id,
        name: name.to_owned(),
        description: String::new(),
        kind: MonitorKind::Tcp,
        port: None,
        interval: Duration::from_secs(60),
        timeout: Duration::from_secs(5),
        retries: 2,
        consecutive_down: 0,
        consecutive_up: 0,
    };
    let Some(object) = cursor.object(&MONITOR) else {
        return monitor;
    };
    let kind = object
        .get("type")
        .map_or(Some(Type::Http), |word| word.word(&TYPES));
    // Read whatever the type is: it is kept, and in force once the type is another.
    let allow_insecure = object.flag_or("allow_insecure", false);
    monitor.kind = match kind {
        Some(Type::Tcp) => {
            note_request_keys(&object);
            MonitorKind::Tcp
        }
        Some(Type::Https) => MonitorKind::Https {
            check: read_check(&object),
            allow_insecure,
        },
        // Of an unknown type: the fault is told, and its other fields are looked at all the same.
        Some(Type::Http) | None => MonitorKind::Http(read_check(&object)),
    };
    let seconds = |key, min, max, default| {
        let seconds = object.get(key).and_then(|value| value.count(min, max));
        seconds.map_or(default, |seconds| Duration::from_secs(seconds.into()))
    };
    monitor.interval = seconds("interval", 10, 3600, monitor.interval);
    monitor.timeout = seconds("timeout", 1, 10, monitor.timeout);
    monitor.description = object.text_or("description", "");
    if let Some(zone) = object.get("probe_zone")
        && zone.text().is_some_and(|text| !text.is_empty())
    {
        zone.note("is kept, without effect: probes go to the endpoint directly");
    }
    monitor.port = object.port();
    monitor.retries = object.count_or("retries", (0, 5), monitor.retries);
    monitor.consecutive_down = object.count_or("consecutive_down", (0, u32::MAX), 0);
    monitor.consecutive_up = object.count_or("consecutive_up", (0, u32::MAX), 0);
    monitor
}

fn read_check(object: &Object<'_>) -> HttpCheck {
    let codes = |text: &str| CodeSet::parse(text);
    let expected_codes = object.get("expected_codes").and_then(|value| {
        let fault = match codes(value.text()?) {
            Ok(codes) => return Some(codes),
            Err(fault) => fault,
        };
        value.fault(fault);
        None
    });
    HttpCheck {
        method: object.text_or("method", "GET"),
        path: object.text_or("path", "/"),
        headers: object
            .get("header")
            .iter()
            .flat_map(Cursor::entries)
            .map(read_header)
            .collect(),
        expected_codes: expected_codes
            .unwrap_or_else(|| codes("200").expect("the default is a set of status codes")),
        expected_body: object.text_or("expected_body", ""),
        follow_redirects: object.flag_or("follow_redirects", false),
    }
}

fn read_header((name, values): (&str, Cursor<'_>)) -> (String, Vec<String>) {
    let values = values
        .list()
        .iter()
        .filter_map(Cursor::text)
        .map(str::to_owned)
        .collect();
    (name.to_owned(), values)
}

fn note_request_keys(object: &Object<'_>) {
    // Without effect, and of the right type all the same: the type of a monitor may change.
    for key in ["method", "path", "expected_codes", "expected_body"] {
        let _text = object.text(key);
    }
    let _flag = object.flag_or("follow_redirects", false);
    let headers = object.get("header");
    let _headers: Vec<_> = headers
        .iter()
        .flat_map(Cursor::entries)
        .map(read_header)
        .collect();
    for value in REQUEST_KEYS.into_iter().filter_map(|key| object.get(key)) {
        // This is the method that the API itself shows for the type.
        if value.value() != "connection_established" {
            value.note("has no effect on a tcp monitor");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use usher_core::id::Kind;

    use super::*;
    use crate::wire::reader::{Mode, Report, declared};

    fn read_file(value: &Value) -> (Monitor, Vec<String>, Vec<String>) {
        let report = Report::new(Mode::File);
        let cursor = Cursor::root(&report, value).as_resource("monitor m");
        let monitor = read(&cursor, declared(Kind::Monitor, "m"), "m");
        let (faults, notes) = report.into_parts();
        let text = |list: Vec<_>| list.iter().map(ToString::to_string).collect();
        (monitor, text(faults), text(notes))
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let (monitor, faults, notes) = read_file(&json!({}));
        assert_eq!((faults, notes), (vec![], vec![]));
        assert_eq!(
            (monitor.interval.as_secs(), monitor.timeout.as_secs()),
            (60, 5)
        );
        assert_eq!((monitor.retries, monitor.port), (2, None));
        let MonitorKind::Http(check) = monitor.kind else {
            panic!("{:?}", monitor.kind)
        };
        assert_eq!((check.method.as_str(), check.path.as_str()), ("GET", "/"));
        assert_eq!(check.expected_codes.as_str(), "200");
    }

    #[test]
    fn every_field_is_read() {
        let (monitor, faults, notes) = read_file(&json!({
            "type": "https", "description": "d", "method": "HEAD", "path": "/up", "port": 9100,
            "header": {"Host": ["example.com"], "X-Two": ["a", "b"]}, "expected_codes": "2xx,301",
            "expected_body": "ok", "follow_redirects": true, "allow_insecure": true, "interval": 15,
            "timeout": 3, "retries": 0, "consecutive_down": 2, "consecutive_up": 3,
        }));
        assert_eq!((faults, notes), (vec![], vec![]));
        assert_eq!((monitor.port, monitor.retries), (Some(9100), 0));
        assert_eq!((monitor.consecutive_down, monitor.consecutive_up), (2, 3));
        assert_eq!(
            (monitor.interval.as_secs(), monitor.timeout.as_secs()),
            (15, 3)
        );
        let MonitorKind::Https {
            check,
            allow_insecure,
        } = monitor.kind
        else {
            panic!()
        };
        assert!(allow_insecure && check.follow_redirects && check.expected_codes.contains(299));
        assert_eq!(
            (check.method.as_str(), check.path.as_str()),
            ("HEAD", "/up")
        );
        assert_eq!(
            check.headers[1],
            ("X-Two".to_owned(), vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(check.expected_body, "ok");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (_, faults, _) = read_file(&json!({
            "type": "smtp", "port": 65536, "header": {"Host": "x", "Y": [1]}, "expected_codes": "20x",
            "follow_redirects": "yes", "interval": -5, "timeout": 1.5, "retries": 1e12,
            "probe_zone": 5,
        }));
        assert_eq!(
            faults,
            [
                "monitor m: type smtp is not built yet",
                "monitor m: expected_codes \"20x\" is not a status code (200), class (2xx) or range (200-299)",
                "monitor m: header.Host must be a list, not text",
                "monitor m: header.Y[0] must be text in quotes, not a number",
                "monitor m: follow_redirects must be true or false, not text",
                "monitor m: interval -5 is outside 10..3600",
                "monitor m: timeout 1.5 is not a whole number",
                "monitor m: probe_zone must be text in quotes, not a number",
                "monitor m: port 65536 is outside 0..65535",
                "monitor m: retries 1000000000000.0 is outside 0..5",
            ]
        );
        let (_, faults, _) = read_file(&json!({"type": "pop3"}));
        assert_eq!(
            faults,
            ["monitor m: type \"pop3\" is not one of http, https, tcp"]
        );
    }

    #[test]
    fn a_tcp_monitor_makes_no_request() {
        let value =
            json!({"type": "tcp", "port": 25, "method": "connection_established", "path": "/"});
        let (monitor, faults, notes) = read_file(&value);
        assert_eq!((monitor.kind, faults), (MonitorKind::Tcp, vec![]));
        assert_eq!(notes, ["monitor m: path has no effect on a tcp monitor"]);
    }
}
