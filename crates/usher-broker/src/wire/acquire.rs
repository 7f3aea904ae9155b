//! Browsers given away.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use serde_json::Value;
use usher_core::lease::line::Class;
use usher_core::lease::session::keep_alive;
use usher_core::lease::{Flavour, RequestId, Stock};

use super::answer::{Fault, Said, json, tell_place};
use super::guardrails::{self, Written};
use super::{Caller, Front, parameter, uuid};
use crate::ask::Ask;
use crate::broker::Offer;
use crate::chance;
use crate::hosts::Prepared;
use crate::queue::Stood;

/// Bytes of the body of a wish.
const BODY_MAX: usize = 64 << 10;

/// A browser, and what its client is told beside.
pub(super) struct Given {
    pub(super) offer: Offer,
    keep_alive: Duration,
    /// It asked to be somewhere, which nobody can grant here.
    elsewhere: bool,
    /// Where it stood in line, if it did.
    stood: Option<Stood>,
}

impl Given {
    /// The browser, and `response` with what is told beside.
    pub(super) fn told<T>(self, mut response: Response<T>) -> (Response<T>, Offer) {
        let headers = response.headers_mut();
        let millis = u64::try_from(self.keep_alive.as_millis()).unwrap_or(u64::MAX);
        headers.insert("usher-keep-alive", millis.into());
        if self.elsewhere {
            let ignored = http::HeaderValue::from_static("ignored");
            headers.insert("usher-location", ignored);
        }
        tell_place(headers, self.stood);
        (response, self.offer)
    }
}

impl Front {
    pub(super) async fn acquire<B>(
        &self,
        caller: &Caller,
        request: Request<B>,
    ) -> Result<Response<Said>, Fault>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await;
        let body = body.map_err(|fault| Fault::bad(format!("body: {fault}")))?;
        let guardrails = guardrails::of_body(&body.to_bytes())?;
        let given = self.give(caller, &head.uri, guardrails).await?;
        let session = given.offer.picked.session;
        let mut told = serde_json::json!({"sessionId": uuid(session.0)});
        if caller.style == super::Style::Api {
            told["webSocketDebuggerUrl"] = caller.browser_url(session).into();
        }
        if parameter(head.uri.query(), "targets").as_deref() == Some("true") {
            told["targets"] = Value::Array(self.targets(caller, session).await?);
        }
        let (response, offer) = given.told(json(&told));
        Ok(response.map(|said| said.offering(offer)))
    }

    /// A browser for what the query asks.
    pub(super) async fn give(
        &self,
        caller: &Caller,
        uri: &Uri,
        guardrails: Option<Written>,
    ) -> Result<Given, Fault> {
        let asked = |name| parameter(uri.query(), name);
        if let Some(engine) = asked("browser") {
            let text = format!("browser {engine:?} is not available here");
            return Err(Fault::bad(text));
        }
        if asked("recording").as_deref() == Some("true") {
            return Err(Fault::unbuilt("recording"));
        }
        let asked_ms = asked("keep_alive").map(|text| {
            let read = text.parse::<u64>();
            read.map_err(|_| Fault::bad(format!("keep_alive {text:?}: a number of milliseconds")))
        });
        let keep_alive = keep_alive(asked_ms.transpose()?);
        let wait = asked("wait").map(|text| wait(&text)).transpose()?;
        let flavour = match asked("lab").as_deref() {
            Some("true") => Flavour::Lab,
            _ => Flavour::Stable,
        };
        let account = &caller.account;
        let node = Prepared {
            hosts: Arc::clone(self.sessions.hosts()),
            keep_alive,
            policy: guardrails::policy(account, &self.lists, guardrails).await?,
        };
        let ask = Ask {
            request: RequestId(chance::name()),
            account: account.id,
            limits: account.limits,
            weight: account.weight,
            stock: Stock {
                flavour,
                ..Stock::default()
            },
            class: Class::Session,
            paid: false,
            keep_alive,
            wait,
            only: None,
        };
        let (stood, offer) = self.broker.acquire_in_line(ask, Arc::new(node)).await;
        let offer = offer.map_err(|refusal| Fault::from(refusal).stood(stood))?;
        Ok(Given {
            offer,
            stood,
            keep_alive,
            elsewhere: asked("location").is_some(),
        })
    }
}

/// A span as `30s`, `1500ms`, or a number of seconds.
pub(super) fn wait(text: &str) -> Result<Duration, Fault> {
    let (number, unit_ms) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1_000),
    };
    let millis = number.parse::<u32>().ok();
    millis
        .map(|number| Duration::from_millis(u64::from(number) * unit_ms))
        .ok_or_else(|| Fault::bad(format!("wait {text:?}: a span such as 30s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_read_in_seconds_or_milliseconds() {
        for (text, millis) in [("30s", 30_000), ("1500ms", 1_500), ("2", 2_000)] {
            assert_eq!(wait(text).ok(), Some(Duration::from_millis(millis)));
        }
        for text in ["", "s", "ms", "-1s", "1m", "1.5s", "99999999999"] {
            assert!(wait(text).is_err(), "{text}");
        }
    }
}
