//! A visitor of a waiting room: a browser as far as cookies go.

use serde_json::Value;

use super::config::HOST;
use super::message::Message;
use super::process::Usher;
use super::wire::Wire;

/// The name of a room's cookie.
pub const COOKIE: &str = "__cfwaitingroom";

/// Somebody with one cookie.
#[derive(Debug, Clone, Default)]
pub struct Visitor {
    /// `name=value`, once it has one.
    pub cookie: Option<String>,
}

impl Visitor {
    /// Somebody new.
    pub fn new() -> Self {
        Self::default()
    }

    /// `GET path` on a connection of its own; keeps the cookie that comes along.
    pub fn get(&mut self, usher: &Usher, path: &str) -> Message {
        self.send(&mut usher.connect(), "GET", path, "")
    }

    /// The same with further header lines, each with its end.
    pub fn send(&mut self, wire: &mut Wire, method: &str, path: &str, lines: &str) -> Message {
        self.send_to(HOST, wire, method, path, lines)
    }

    /// The same for another host.
    pub fn send_to(
        &mut self,
        host: &str,
        wire: &mut Wire,
        method: &str,
        path: &str,
        lines: &str,
    ) -> Message {
        let cookie = self.cookie.as_ref();
        let cookie = cookie.map_or_else(String::new, |cookie| format!("Cookie: {cookie}\r\n"));
        wire.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{cookie}{lines}\r\n"
        ));
        let answer = wire.response_to(method);
        for given in answer.fields_named("set-cookie") {
            let pair = given.split(';').next().unwrap_or_default();
            if pair.starts_with(COOKIE) {
                let cleared = given.contains("Max-Age=0;") || given.ends_with("Max-Age=0");
                self.cookie = (!cleared).then(|| pair.to_owned());
            }
        }
        answer
    }

    /// Whether a request for `path` gets to the endpoint, whose answer is `inside`.
    pub fn enters(&mut self, usher: &Usher, path: &str, inside: &str) -> bool {
        let answer = self.get(usher, path);
        assert_eq!(answer.status(), 200, "{answer:?}");
        match answer.field("usher-waiting-room") {
            None => {
                assert_eq!(answer.text(), inside, "{answer:?}");
                true
            }
            Some(word) => {
                assert!(
                    word.starts_with("waiting") || word == "rejected",
                    "{answer:?}"
                );
                false
            }
        }
    }

    /// What the room says of this visitor, which is a poll like any other.
    pub fn status(&mut self, usher: &Usher, room: &str) -> Value {
        let path = format!("/cdn-cgi/waitingroom/status?room={room}");
        let answer = self.get(usher, &path);
        assert_eq!(answer.status(), 200, "{answer:?}");
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    /// The place in line; `None` for who is not in line. The room has to tell places.
    pub fn position(&mut self, usher: &Usher, room: &str) -> Option<u64> {
        self.status(usher, room)["usher"]["position"].as_u64()
    }
}
