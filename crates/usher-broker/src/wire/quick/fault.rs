//! How the failures of quick actions are written: in the envelope of the hosted service, on every
//! surface.
//!
//! Source: browser specification 2.4 A, 6.4.

use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;
use usher_core::lease::refusal::Refusal;

use super::fields::Problem;
use crate::quick::Why;
use crate::wire::answer::{Said, UNBUILT, json};

/// How long somebody waits who comes while bodies fill the memory that there is for them.
const ROOM_RETRY: u64 = 5;

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    problems: Vec<Problem>,
    retry_after: Option<u64>,
    used: Duration,
}

impl Fault {
    fn new(status: StatusCode, code: Option<u16>, message: impl Into<String>) -> Fault {
        let problem = Problem {
            path: String::new(),
            message: message.into(),
            code,
        };
        Fault {
            status,
            problems: vec![problem],
            retry_after: None,
            used: Duration::ZERO,
        }
    }

    pub(super) fn bad(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, None, message)
    }

    pub(super) fn body(problems: Vec<Problem>) -> Fault {
        Fault {
            problems,
            ..Fault::bad("")
        }
    }

    pub(super) fn method() -> Fault {
        Fault::new(
            StatusCode::METHOD_NOT_ALLOWED,
            None,
            "POST is expected here",
        )
    }

    pub(super) fn unbuilt(action: &str) -> Fault {
        let text = format!("{action} is not built here");
        Fault::new(StatusCode::NOT_IMPLEMENTED, Some(UNBUILT), text)
    }

    pub(super) fn large() -> Fault {
        let text = "Error: request entity too large";
        Fault::new(StatusCode::PAYLOAD_TOO_LARGE, None, text)
    }

    pub(super) fn late() -> Fault {
        Fault::new(StatusCode::REQUEST_TIMEOUT, None, "Request timed out")
    }

    pub(super) fn no_room() -> Fault {
        Fault {
            retry_after: Some(ROOM_RETRY),
            ..Fault::of_refusal(Refusal::Capacity { draw: 0 })
        }
    }

    fn of_refusal(refusal: Refusal) -> Fault {
        let status = StatusCode::from_u16(refusal.status());
        let status = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        Fault {
            retry_after: Some(refusal.retry_after_secs()),
            ..Fault::new(status, None, refusal.to_string())
        }
    }

    /// Of a request that browsers worked for as long as `used`.
    pub(super) fn of(why: &Why, used: Duration) -> Fault {
        let fault = match why {
            Why::Refused(refusal) => Fault::of_refusal(*refusal),
            Why::Ceiling => Fault::late(),
            Why::Ours => Fault::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                Some(2000),
                "Internal Error",
            ),
            Why::Page { code, message } if code == "refused" => {
                let (path, message) = message.split_once(": ").unwrap_or(("", message));
                Fault::body(vec![Problem {
                    path: path.to_owned(),
                    message: message.to_owned(),
                    code: None,
                }])
            }
            Why::Page { code, message } => {
                let (status, code) = of_page(code, message);
                let text = match (status, code) {
                    (StatusCode::INTERNAL_SERVER_ERROR, _) => "Internal Error",
                    (_, Some(6000)) => DESTROYED,
                    _ => message.as_str(),
                };
                Fault::new(status, code, text)
            }
        };
        Fault { used, ..fault }
    }

    pub(super) fn written(self) -> Response<Said> {
        let errors: Vec<_> = self
            .problems
            .iter()
            .map(|problem| {
                let mut error = json!({"message": problem.message});
                if let Some(code) = problem.code {
                    error["code"] = code.into();
                }
                if !problem.path.is_empty() {
                    error["path"] = problem.path.as_str().into();
                }
                error
            })
            .collect();
        let mut response = json(&json!({"success": false, "errors": errors}));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(http::header::ALLOW, HeaderValue::from_static("POST"));
        }
        if self.status == StatusCode::NOT_IMPLEMENTED {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if self.status.as_u16() < 500 {
            super::tell_used(headers, self.used);
        }
        response
    }
}

const DESTROYED: &str = "Execution context was destroyed";

/// Status and code of what a page did.
fn of_page(code: &str, message: &str) -> (StatusCode, Option<u16>) {
    let unprocessable = |code| (StatusCode::UNPROCESSABLE_ENTITY, code);
    match code {
        "scheme" => (StatusCode::BAD_REQUEST, Some(5010)),
        "net" => unprocessable(Some(net(message))),
        "load_late" | "wait_late" | "action_late" => unprocessable(Some(6002)),
        "closed" | "memory" => unprocessable(Some(6001)),
        // The page went on to another document under our script.
        "script" | "capture" if is_destroyed(message) => unprocessable(Some(6000)),
        "capture" | "no_element" => unprocessable(Some(6003)),
        "script" | "crashed" | "gone" => unprocessable(None),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, Some(2000)),
    }
}

fn is_destroyed(message: &str) -> bool {
    [
        DESTROYED,
        "Cannot find context with specified id",
        "Cannot find default execution context",
        "Inspected target navigated or closed",
    ]
    .iter()
    .any(|known| message.contains(known))
}

/// The code of a name that begins with `net::ERR_`.
fn net(name: &str) -> u16 {
    match name.strip_prefix("net::ERR_").unwrap_or_default() {
        name if name.starts_with("CERT_") => 5000,
        "ADDRESS_UNREACHABLE" => 5001,
        "ABORTED" | "CONNECTION_TIMED_OUT" | "TIMED_OUT" => 5002,
        "TOO_MANY_REDIRECTS" => 5003,
        "HTTP2_PROTOCOL_ERROR" => 5004,
        "NAME_NOT_RESOLVED" | "DNS_TIMED_OUT" => 5005,
        "CONNECTION_CLOSED" | "CONNECTION_RESET" | "TUNNEL_CONNECTION_FAILED" => 5006,
        "HTTP_RESPONSE_CODE_FAILURE" => 5007,
        "CONNECTION_REFUSED" => 5008,
        "INVALID_URL" | "BLOCKED_BY_ADMINISTRATOR" => 5010,
        name if name.starts_with("FILE") => 5010,
        "EMPTY_RESPONSE" => 5011,
        _ => 5009,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(code: &str, message: &str) -> (u16, Option<u16>) {
        let (status, code) = of_page(code, message);
        (status.as_u16(), code)
    }

    #[test]
    fn what_a_page_did_has_the_number_that_programs_know() {
        for (name, code) in [
            ("net::ERR_CERT_DATE_INVALID", 5000),
            ("net::ERR_ADDRESS_UNREACHABLE", 5001),
            ("net::ERR_ABORTED", 5002),
            ("net::ERR_TOO_MANY_REDIRECTS", 5003),
            ("net::ERR_NAME_NOT_RESOLVED", 5005),
            ("net::ERR_CONNECTION_RESET", 5006),
            ("net::ERR_CONNECTION_REFUSED", 5008),
            ("net::ERR_UNSAFE_REDIRECT", 5009),
            ("net::ERR_BLOCKED_BY_ADMINISTRATOR", 5010),
            ("net::ERR_FILE_NOT_FOUND", 5010),
            ("net::ERR_EMPTY_RESPONSE", 5011),
            ("something", 5009),
        ] {
            assert_eq!(page("net", name), (422, Some(code)), "{name}");
        }
        let destroyed = "Runtime.evaluate: Execution context was destroyed.";
        for (code, message, told) in [
            ("scheme", "", (400, Some(5010))),
            ("load_late", "", (422, Some(6002))),
            ("closed", "", (422, Some(6001))),
            ("script", "SyntaxError", (422, None)),
            ("script", destroyed, (422, Some(6000))),
            ("capture", "Unable to capture screenshot", (422, Some(6003))),
            ("crashed", "", (422, None)),
            ("new_one", "", (500, Some(2000))),
        ] {
            assert_eq!(page(code, message), told, "{code}");
        }
    }

    #[test]
    fn a_failure_is_an_envelope_with_all_that_is_known() {
        let why = Why::Page {
            code: "load_late".to_owned(),
            message: "Navigation timeout of 5 ms exceeded".to_owned(),
        };
        let response = Fault::of(&why, Duration::from_millis(12)).written();
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()["x-browser-ms-used"], "12");
        let response = Fault::of(&Why::Ours, Duration::from_millis(12)).written();
        assert_eq!(response.status(), 500);
        assert!(!response.headers().contains_key("x-browser-ms-used"));
        let refusal = Refusal::Rate {
            wait: Duration::from_millis(1_500),
        };
        let response = Fault::of(&Why::Refused(refusal), Duration::ZERO).written();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(response.headers()["x-browser-ms-used"], "0");
        assert_eq!(Fault::no_room().written().status(), 503);
    }
}
