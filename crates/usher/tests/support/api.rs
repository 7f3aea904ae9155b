//! The node as its API shows it: state, explanations, metrics.

use serde_json::{Value, json};

use super::config::TOKEN;
use super::message::Message;
use super::process::Usher;
use super::wire::Wire;

impl Usher {
    /// `GET path` of the API listener, with the token.
    pub fn api_get(&self, path: &str) -> Message {
        self.api(
            &format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"),
            "",
        )
    }

    pub fn api_post(&self, path: &str, body: &Value) -> Message {
        let head = format!(
            "POST {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        );
        self.api(&head, &body.to_string())
    }

    /// Sends a head without its end, and a body, to the API listener.
    pub fn api(&self, head: &str, body: &str) -> Message {
        let address = self.address("api");
        let mut wire = Wire::connect(address);
        wire.exchange(format!(
            "{head}Host: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// `result` of the state.
    pub fn state(&self) -> Value {
        result(&self.api_get("/client/v4/usher/state"))
    }

    /// The state of one pool, or of one endpoint as `pool/endpoint`.
    pub fn state_of(&self, name: &str) -> String {
        let state = self.state();
        let (pool, endpoint) = name
            .split_once('/')
            .map_or((name, None), |(p, e)| (p, Some(e)));
        let pool = named(&state["pools"], pool);
        let object = endpoint.map_or(pool, |endpoint| named(&pool["endpoints"], endpoint));
        object["state"]
            .as_str()
            .unwrap_or_else(|| panic!("no state: {object}"))
            .to_owned()
    }

    /// What the running node would do with a `GET url`.
    pub fn explain(&self, url: &str) -> Value {
        result(&self.api_post(
            "/client/v4/usher/explain",
            &json!({"url": url, "method": "GET"}),
        ))
    }

    /// All metrics, as text.
    pub fn metrics(&self) -> String {
        let answer = self.api("GET /metrics HTTP/1.1\r\n", "");
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.text()
    }

    /// Waits until a series has this value. Counts leave the workers in batches, a second old at most.
    pub fn expect_metric(&self, series: &str, value: f64) {
        let what = format!("{series} {value}");
        super::eventually(&what, || (self.metric(series) == value).then_some(()));
    }

    /// The value of one series, 0 when it is not there yet. Labels may stand in any order.
    pub fn metric(&self, series: &str) -> f64 {
        let (name, labels) = series_of(series);
        self.metrics()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(found, _)| {
                let (found_name, found_labels) = series_of(found);
                found_name == name && labels.iter().all(|label| found_labels.contains(label))
            })
            .map(|(_, value)| value.parse::<f64>().unwrap())
            .sum()
    }
}

/// `result` of an answer in the v4 envelope, which must be a success.
pub fn result(answer: &Message) -> Value {
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(
        answer
            .field("content-type")
            .is_some_and(|t| t.starts_with("application/json"))
    );
    let mut envelope: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(envelope["success"], true, "{envelope}");
    assert!(
        envelope["errors"].is_array() && envelope["messages"].is_array(),
        "{envelope}"
    );
    envelope["result"].take()
}

/// The object of that name in a list.
pub fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array()
        .and_then(|list| list.iter().find(|object| object["name"] == name))
        .unwrap_or_else(|| panic!("no {name} in {list}"))
}

fn series_of(text: &str) -> (&str, Vec<&str>) {
    match text.split_once('{') {
        Some((name, labels)) => (name, labels.trim_end_matches('}').split(',').collect()),
        None => (text, Vec::new()),
    }
}
