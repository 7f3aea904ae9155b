//! What clients speak: the words of the hosted service, over HTTP and WebSockets.
//!
//! One table of routes serves two surfaces: the binding of Workers ([`binding`]), and the API for
//! programs with a token, which is mounted where tokens are known. They differ in how failures are
//! written ([`Style`]) and in where absolute addresses lead.
//!
//! - [`Front::answer`] is the table,
//! - `acquire` gives browsers away, `connect` joins clients to them,
//! - `lists` shows sessions, `inside` asks a browser in the client's name,
//! - `quick` has one page drawn and answers with it,
//! - `guardrails` reads what a session may reach.
//!
//! Source: browser specification 2 to 4 and 9.3, and the recorded wire.

mod acquire;
mod answer;
pub mod binding;
mod connect;
mod guardrails;
mod inside;
mod lists;
mod quick;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use hyper::body::Body;
use usher_core::id::Id;
use usher_core::lease::SessionId;
use usher_core::lease::limits::Limits;
use usher_egress::{Deadlines, Egress, Lists, Policy};

use crate::broker::Broker;
use crate::sessions::Sessions;
use answer::Fault;
pub use answer::{Said, Style};
use quick::Quick;

/// Bytes of one message to and from a Worker.
pub const BINDING_MESSAGE_MAX: usize = 32 << 20;
/// Bytes of one message to and from a program with a token.
pub const API_MESSAGE_MAX: usize = 256 << 20;

/// An account, as far as browsers are concerned.
#[derive(Debug, Clone)]
pub struct Account {
    /// Which.
    pub id: Id,
    /// What its operator calls it.
    pub name: String,
    /// What it may have.
    pub limits: Limits,
    /// How often it is served in a round of the line, at least 1.
    pub weight: u32,
    /// What its Workers show; without it it has no binding.
    pub secret: Option<String>,
    /// Networks that would be denied and are open for its browsers, as `127.0.0.0/8`.
    pub allow_private: Vec<String>,
}

/// Who asks, and where from.
#[derive(Debug, Clone)]
pub struct Caller {
    /// For whom.
    pub account: Arc<Account>,
    /// How it is answered.
    pub style: Style,
    /// What the addresses of WebSockets begin with, up to `/devtools`: scheme, host and path.
    pub base: Arc<str>,
    /// The same of the address that leads to the browser it asks about, and that only it may use:
    /// for clients that take no token along. `None`: `base`.
    pub once: Option<Arc<str>>,
}

impl Caller {
    /// The longest message of its connections, in bytes.
    const fn message_max(&self) -> usize {
        match self.style {
            Style::Binding => BINDING_MESSAGE_MAX,
            Style::Api | Style::Envelope => API_MESSAGE_MAX,
        }
    }

    fn browser_url(&self, session: SessionId) -> String {
        browser_url(&self.base, session)
    }

    fn browser_url_once(&self, session: SessionId) -> String {
        browser_url(self.once.as_ref().unwrap_or(&self.base), session)
    }
}

fn browser_url(base: &str, session: SessionId) -> String {
    format!("{base}/devtools/browser/{}", uuid(session.0))
}

/// What stands behind both surfaces.
pub struct Front {
    broker: Broker,
    sessions: Arc<Sessions>,
    quick: Quick,
    /// Of hosts, that sessions name by an address. Nobody's policy opens anything for them.
    lists: Lists,
}

impl Front {
    /// Browsers of `broker`, and the sessions in the same regions.
    #[must_use]
    pub fn new(broker: Broker, sessions: Arc<Sessions>) -> Front {
        let egress = Egress::new(Deadlines::default());
        let lists = Lists::new(egress, Policy::default(), None);
        Front {
            broker,
            sessions,
            quick: Quick::default(),
            lists,
        }
    }

    /// Who gives the browsers away.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The sessions that are talked to.
    #[must_use]
    pub const fn carried(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// Answers a request whose path is `path` below the surface's prefix, without the `/` before
    /// it. One that stands at the end means nothing.
    pub async fn answer<B>(&self, caller: Caller, path: &str, request: Request<B>) -> Response<Said>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let style = caller.style;
        match self.route(caller, path, request).await {
            Ok(response) => response,
            Err(fault) => fault.written(style),
        }
    }

    async fn route<B>(
        &self,
        caller: Caller,
        path: &str,
        request: Request<B>,
    ) -> Result<Response<Said>, Fault>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = path.strip_suffix('/').unwrap_or(path);
        let parts: Vec<&str> = path.split('/').collect();
        let binding = caller.style == Style::Binding;
        match parts.as_slice() {
            // Answered alike on every surface.
            ["screenshot"] => Ok(self.screenshot(&caller, request).await),
            [action] if quick::UNBUILT.contains(action) => Ok(self.unbuilt(action, &request)),
            parts if caller.style == Style::Envelope => Front::enveloped(parts),
            ["acquire"] if binding => match *request.method() {
                Method::GET => self.acquire(&caller, request).await,
                _ => Err(Fault::method()),
            },
            ["connectDevtools"] if binding => match *request.method() {
                Method::GET => self.connect_older(&caller, request).await,
                _ => Err(Fault::method()),
            },
            ["sessions"] if binding => get(&request, self.sessions(&caller)).await,
            ["history"] if binding => get(&request, self.history(&caller, request.uri())).await,
            ["limits"] if binding => get(&request, self.limits(&caller)).await,
            ["devtools", "session"] => get(&request, self.listed(&caller, request.uri())).await,
            ["devtools", "session", id] => get(&request, self.session(&caller, id)).await,
            ["devtools", "browser"] => match *request.method() {
                Method::POST => self.acquire(&caller, request).await,
                Method::GET => self.acquire_and_connect(&caller, request).await,
                _ => Err(Fault::method()),
            },
            ["devtools", "browser", id] => match *request.method() {
                Method::GET => self.connect(&caller, id, request).await,
                Method::DELETE => self.close(&caller, id).await,
                _ => Err(Fault::method()),
            },
            ["devtools", "browser", id, "page", target] => match *request.method() {
                Method::GET => self.connect_page(&caller, id, target, request).await,
                _ => Err(Fault::method()),
            },
            ["devtools", "browser", id, "json", rest @ ..] => {
                self.inside(&caller, id, rest, &request).await
            }
            ["devtools", "browser", _, "live_view"] => Err(Fault::unbuilt("live view")),
            _ => Err(Fault::nowhere()),
        }
    }

    /// What is answered in the envelope.
    fn enveloped(parts: &[&str]) -> Result<Response<Said>, Fault> {
        match parts {
            ["crawl"] | ["crawl", _] => Err(Fault::unbuilt("crawling")),
            ["recording", _] | ["recording", _, "network"] => Err(Fault::unbuilt("recording")),
            _ => Err(Fault::nowhere()),
        }
    }
}

/// What `GET` is answered with.
async fn get<B>(
    request: &Request<B>,
    answer: impl Future<Output = Result<Response<Said>, Fault>>,
) -> Result<Response<Said>, Fault> {
    match *request.method() {
        Method::GET => answer.await,
        _ => Err(Fault::method()),
    }
}

/// How sessions and connections are written.
#[must_use]
pub fn uuid(id: u128) -> String {
    let digits = format!("{id:032x}");
    let ends = [0..8, 8..12, 12..16, 16..20, 20..32];
    ends.map(|range| &digits[range]).join("-")
}

/// A session's name as [`uuid`] wrote it; anything else names none.
fn session_id(text: &str) -> Result<SessionId, Fault> {
    let digits: String = text.split('-').collect();
    let read = Some(digits)
        .filter(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .and_then(|digits| u128::from_str_radix(&digits, 16).ok());
    // Written in another way it is no name of ours.
    let read = read.filter(|&id| uuid(id).eq_ignore_ascii_case(text));
    read.map(SessionId)
        .ok_or_else(|| crate::sessions::Missing::Unknown.into())
}

/// The value of a parameter of the query; an empty one counts as not given.
fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut values = pairs.filter(|(found, value)| found == name && !value.is_empty());
    values.next().map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_was_written_and_nothing_else_is() {
        let id = 0x1acf_0ca1_b849_46bc_9f6a_3497_16f3_cf5d;
        assert_eq!(uuid(id), "1acf0ca1-b849-46bc-9f6a-349716f3cf5d");
        assert_eq!(session_id(&uuid(id)).ok(), Some(SessionId(id)));
        for text in [
            "",
            "1acf0ca1b84946bc9f6a349716f3cf5d",
            "1acf0ca1-b849-46bc-9f6a-349716f3cf5",
            "1acf0ca1-b849-46bc-9f6a-349716f3cf5g",
            "+1acf0ca-b849-46bc-9f6a-349716f3cf5d",
        ] {
            assert!(session_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_parameter_is_none() {
        for (query, value) in [
            (None, None),
            (Some(""), None),
            (Some("keep_alive="), None),
            (Some("a=1&keep_alive=10000"), Some("10000")),
            (Some("keep_alive=%310"), Some("10")),
        ] {
            assert_eq!(parameter(query, "keep_alive").as_deref(), value);
        }
    }
}
