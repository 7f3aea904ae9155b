//! How answers and failures are written.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use usher_cdp::session::JoinFault;
use usher_core::lease::refusal::Refusal;
use usher_pool::PoolError;

use crate::broker::Offer;
use crate::queue::Stood;
use crate::sessions::Missing;

/// How a surface writes failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Plain text: clients show it as it is. Success is exactly 200.
    Binding,
    /// `{"error": text}`: what programs with a token ask of sessions.
    Api,
    /// The envelope of the v4 API: everything else that they ask.
    Envelope,
}

/// The body of an answer. A browser that it offers is the client's when it is written; who drops it
/// before gives the browser back.
#[derive(Debug, Default)]
pub struct Said {
    bytes: Option<Bytes>,
    offer: Option<Offer>,
}

impl Said {
    /// The same, with a browser that is given away by it.
    pub(super) fn offering(self, offer: Offer) -> Said {
        Said {
            offer: Some(offer),
            ..self
        }
    }
}

impl Body for Said {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(offer) = self.offer.take() {
            offer.written();
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// An answer without a word.
pub(super) fn empty(status: StatusCode) -> Response<Said> {
    let mut response = Response::new(Said::default());
    *response.status_mut() = status;
    response
}

/// An answer in JSON.
pub(super) fn json(value: &Value) -> Response<Said> {
    written(StatusCode::OK, "application/json", value.to_string())
}

impl Said {
    /// An answer of one piece.
    pub(super) fn whole(kind: &'static str, bytes: Bytes) -> Response<Said> {
        let said = Said {
            bytes: Some(bytes),
            offer: None,
        };
        let mut response = Response::new(said);
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

fn written(status: StatusCode, kind: &'static str, text: String) -> Response<Said> {
    let mut response = Said::whole(kind, text.into());
    *response.status_mut() = status;
    response
}

/// Tells whoever stood in line where, and how long it was thought to take, in milliseconds.
pub(super) fn tell_place(headers: &mut HeaderMap, stood: Option<Stood>) {
    let Some(stood) = stood else {
        return;
    };
    headers.insert("usher-wait-place", stood.place.into());
    if let Some(estimate) = stood.estimate {
        let millis = u64::try_from(estimate.as_millis()).unwrap_or(u64::MAX);
        headers.insert("usher-wait-estimate", millis.into());
    }
}

/// Why a request is not granted.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) text: String,
    /// Its number in the envelope.
    code: Option<u16>,
    retry_after: Option<u64>,
    /// Whether clients that try again by themselves should not.
    last: bool,
    /// The status says it all to a Worker.
    bare: bool,
    /// Where who asked stood in line, if it did.
    stood: Option<Stood>,
}

/// The number of what is not built.
pub(super) const UNBUILT: u16 = 10_501;

impl Fault {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Fault {
        Fault {
            status,
            text: text.into(),
            code: None,
            retry_after: None,
            last: false,
            bare: false,
            stood: None,
        }
    }

    /// No such path.
    pub(super) fn nowhere() -> Fault {
        Fault {
            bare: true,
            ..Fault::new(StatusCode::NOT_FOUND, "no such path")
        }
    }

    /// The path is there, and is asked in another way.
    pub(super) fn method() -> Fault {
        Fault {
            bare: true,
            ..Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        }
    }

    /// The same, for somebody who stood in line.
    pub(super) fn stood(self, stood: Option<Stood>) -> Fault {
        Fault { stood, ..self }
    }

    pub(super) fn bad(text: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, text)
    }

    /// What has a name and is not there yet.
    pub(super) fn unbuilt(what: &str) -> Fault {
        Fault {
            code: Some(UNBUILT),
            last: true,
            ..Fault::new(
                StatusCode::NOT_IMPLEMENTED,
                format!("{what} is not built here"),
            )
        }
    }

    fn enveloped(&self) -> Value {
        let mut error = json!({"message": self.text});
        if let Some(code) = self.code {
            error["code"] = code.into();
        }
        json!({"success": false, "errors": [error], "messages": [], "result": null})
    }

    pub(super) fn written(self, style: Style) -> Response<Said> {
        let (kind, text) = match style {
            Style::Binding if self.bare => return empty(self.status),
            Style::Binding => ("text/plain; charset=utf-8", self.text),
            Style::Api => ("application/json", json!({"error": self.text}).to_string()),
            Style::Envelope => ("application/json", self.enveloped().to_string()),
        };
        let mut response = written(self.status, kind, text);
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        tell_place(headers, self.stood);
        if self.last {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        let status = StatusCode::from_u16(refusal.status());
        Fault {
            retry_after: Some(refusal.retry_after_secs()),
            ..Fault::new(
                status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
                refusal.to_string(),
            )
        }
    }
}

impl From<Missing> for Fault {
    fn from(missing: Missing) -> Fault {
        let status = match &missing {
            Missing::Unknown | Missing::Join(JoinFault::Target | JoinFault::Ended) => {
                StatusCode::NOT_FOUND
            }
            Missing::Taken | Missing::Join(JoinFault::Full(_)) => StatusCode::CONFLICT,
            Missing::Silent => StatusCode::GATEWAY_TIMEOUT,
            Missing::Pool(error) => {
                tracing::warn!(%error, "a pool of browsers does not answer");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Fault::new(status, missing.to_string())
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Fault {
        Missing::Pool(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_written_as_its_surface_writes_them() {
        let refusal = Refusal::Concurrent { limit: 3 };
        let text = "Too many concurrent browsers: limit is 3";
        for (style, kind, body) in [
            (Style::Binding, "text/plain; charset=utf-8", text.to_owned()),
            (
                Style::Api,
                "application/json",
                json!({"error": text}).to_string(),
            ),
            (
                Style::Envelope,
                "application/json",
                json!({"success": false, "errors": [{"message": text}], "messages": [], "result": null})
                    .to_string(),
            ),
        ] {
            let response = Fault::from(refusal).written(style);
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()[CONTENT_TYPE], kind);
            assert_eq!(response.headers()[RETRY_AFTER], "5");
            assert_eq!(response.body().bytes, Some(body.into()));
        }
        for style in [Style::Binding, Style::Api, Style::Envelope] {
            let response = Fault::unbuilt("recording").written(style);
            assert_eq!(response.status(), 501);
            assert_eq!(response.headers()["x-should-retry"], "false");
        }
        // A Worker's runtime goes by the status; a program is told all the same.
        assert_eq!(Fault::nowhere().written(Style::Binding).body().bytes, None);
        let told = Fault::method().written(Style::Api).into_body().bytes;
        assert_eq!(told, Some(r#"{"error":"method not allowed"}"#.into()));
    }
}
