//! Messages that are longer than a client takes: shortened where the protocol has a word for that,
//! told of where somebody waits, left out otherwise.
//!
//! The runtimes of some clients close a WebSocket on which a longer message comes, so letting it
//! through would cost the whole connection.

use serde_json::{Map, Value, json};

use crate::message::{Front, front, session};

/// Events whose text may be cut: what a page writes for people.
const WRITTEN: [&str; 2] = ["Runtime.consoleAPICalled", "Log.entryAdded"];

/// Events with the body of a request, which a client can ask for.
const POSTED: [&str; 2] = ["Fetch.requestPaused", "Network.requestWillBeSent"];

/// Bytes that are left of a text that is cut.
const TEXT_KEPT: usize = 1024;

/// What a client of that limit gets for `message`, which is longer. `None`: nothing.
#[must_use]
pub fn shortened(message: &[u8], limit: usize) -> Option<Vec<u8>> {
    let short = match front(message) {
        Front::Answer(id, _) => {
            let fault = format!(
                "reply of {} bytes is over this connection's limit of {limit}",
                message.len()
            );
            let mut answer = json!({"id": id, "error": {"code": -32000, "message": fault}});
            if let Some((session, _)) = session(message) {
                answer["sessionId"] = session.into();
            }
            answer
        }
        Front::Event(method) if POSTED.contains(&method) => {
            let mut event: Value = serde_json::from_slice(message).ok()?;
            let request = event.pointer_mut("/params/request")?.as_object_mut()?;
            let posted = ["postData", "postDataEntries"].map(|name| request.remove(name));
            if posted.iter().any(Option::is_some) {
                request.insert("hasPostData".to_owned(), true.into());
            }
            event
        }
        Front::Event(method) if WRITTEN.contains(&method) => {
            let mut event: Value = serde_json::from_slice(message).ok()?;
            cut(event.get_mut("params")?);
            event
        }
        Front::Event(_) | Front::Other => return None,
    };
    let short = serde_json::to_vec(&short).ok()?;
    (short.len() <= limit).then_some(short)
}

/// Cuts every text below `value`.
fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > TEXT_KEPT => {
            let end = (0..=TEXT_KEPT)
                .rev()
                .find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        Value::Array(list) => list.iter_mut().for_each(cut),
        Value::Object(members) => Map::values_mut(members).for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(message: &Value, limit: usize) -> Option<Value> {
        let text = message.to_string();
        assert!(text.len() > limit);
        let short = shortened(text.as_bytes(), limit)?;
        assert!(short.len() <= limit);
        Some(serde_json::from_slice(&short).expect("JSON"))
    }

    #[test]
    fn an_answer_becomes_a_fault_that_tells_both_sizes() {
        let answer = json!({"id": 7, "result": {"data": "x".repeat(500)}, "sessionId": "AB"});
        let len = answer.to_string().len();
        assert_eq!(
            short(&answer, 200),
            Some(json!({"id": 7, "sessionId": "AB", "error": {
                "code": -32000,
                "message": format!("reply of {len} bytes is over this connection's limit of 200"),
            }}))
        );
    }

    #[test]
    fn a_request_loses_its_body_and_says_so() {
        for method in POSTED {
            let event = json!({"method": method, "params": {"request": {
                "url": "http://a", "postData": "x".repeat(500), "postDataEntries": [{"bytes": "eA=="}],
            }, "requestId": "1"}, "sessionId": "AB"});
            let expected = json!({"method": method, "params": {"request": {
                "url": "http://a", "hasPostData": true,
            }, "requestId": "1"}, "sessionId": "AB"});
            assert_eq!(short(&event, 300), Some(expected));
        }
        let event = json!({"method": POSTED[0], "params": {"request": {"url": "x".repeat(500)}}});
        assert_eq!(short(&event, 300), None);
    }

    #[test]
    fn what_people_read_is_cut_and_all_else_is_left_out() {
        let text = "ü".repeat(5000);
        let event =
            json!({"method": WRITTEN[0], "params": {"args": [{"value": text}], "type": "log"}});
        let short_event = short(&event, 2000).expect("cut");
        let value = short_event["params"]["args"][0]["value"]
            .as_str()
            .expect("text");
        assert_eq!(value.chars().count(), 513);
        assert_eq!(short_event["params"]["type"], "log");
        assert_eq!(short(&event, 500), None);
        let event = json!({"method": "Page.screencastFrame", "params": {"data": "x".repeat(500)}});
        assert_eq!(short(&event, 300), None);
        assert_eq!(shortened(b"not json at all", 3), None);
    }
}
