//! The v4 envelope: every answer of the API has the same four keys.
//!
//! The official clients repeat 408, 409, 429 and everything from 500 on: what will be refused again
//! is 400, 404 or 412, and where a number above 500 cannot be avoided, `x-should-retry: false`
//! stands beside it.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use usher_store::{Conflict, Fault as StoreFault, StoreError};

use crate::access::Denied;
use crate::wire::reader::Fault;

/// What clients ask whether to try again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The code of messages that do not fail a call.
const NOTE: u32 = 1100;

/// A refusal with the codes that the official clients know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// No readable credentials: 400, code 6003.
    Unauthenticated,
    /// Credentials that do not open this: 403, code 10000.
    Forbidden,
    /// None or the wrong ones, where browsers are asked for: 401, code 10000.
    Stranger,
    /// No such path: 404, codes 7003 and 7000.
    NoRoute(String),
    /// No such object: 404, code 1001.
    NotFound,
    /// The path takes these methods: 405, code 10405.
    Method(String),
    /// The body is over the limit, in bytes: 413, code 10413.
    BodyTooLarge(usize),
    /// The same of what is done with one page: 413, code 10413.
    PageTooLarge,
    /// The body did not come in time: 408, code 10408.
    BodyTooSlow,
    /// The body is no JSON: 400, code 6007.
    Malformed(String),
    /// The head tells two lengths of the body: 400, code 6003.
    TwoLengths,
    /// Fields that are wrong: 400, code 1002 or 1003 each, with its JSON pointer.
    Invalid(Vec<Fault>),
    /// Fields of a waiting room that are wrong: 400, code 1100 to 1108 each, with its JSON pointer.
    InvalidRoom(Vec<Fault>),
    /// No such waiting room, rule or event: 404, code 1001.
    NoRoom,
    /// The file named here declares it: 400, code 1109.
    Declared(String),
    /// Others refer to it: 412, code 1005.
    Referenced(Vec<String>),
    /// A part that is named and not there: 501, code 10501.
    Unbuilt(String),
    /// More calls than the token may make: 429, code 1015.
    Limited(Duration),
    /// Another process has not let go of what is asked for: 503, code 10503.
    Elsewhere,
    /// The store did not do it: 503, code 10503.
    Store(StoreError),
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> ApiError {
        match denied {
            Denied::Missing => ApiError::Unauthenticated,
            Denied::Wrong => ApiError::Forbidden,
        }
    }
}

impl From<Conflict> for ApiError {
    fn from(conflict: Conflict) -> ApiError {
        match conflict {
            Conflict::Missing { .. } => ApiError::NotFound,
            // The limits of the store, in its own words.
            other => ApiError::wrong("", other.to_string()),
        }
    }
}

impl ApiError {
    /// One field that is wrong.
    pub(crate) fn wrong(pointer: &str, message: impl Into<String>) -> ApiError {
        ApiError::Invalid(vec![Fault {
            pointer: pointer.to_owned(),
            at_key: false,
            inside: 0,
            place: String::new(),
            message: message.into(),
        }])
    }

    /// All that is wrong with a body: only if nothing else is, that parts are not built.
    pub(crate) fn of_faults(faults: Vec<Fault>) -> ApiError {
        if !faults.is_empty() && faults.iter().all(Fault::is_unbuilt) {
            let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return ApiError::Unbuilt(all.join("; "));
        }
        ApiError::Invalid(faults)
    }

    /// The same in the numbers of waiting rooms.
    pub(crate) fn of_rooms(self) -> ApiError {
        match self {
            ApiError::Invalid(faults) => ApiError::InvalidRoom(faults),
            ApiError::NotFound => ApiError::NoRoom,
            other => other,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            ApiError::Unauthenticated
            | ApiError::Malformed(_)
            | ApiError::TwoLengths
            | ApiError::Invalid(_)
            | ApiError::InvalidRoom(_)
            | ApiError::Declared(_) => StatusCode::BAD_REQUEST,
            ApiError::Forbidden => StatusCode::FORBIDDEN,
            ApiError::Stranger => StatusCode::UNAUTHORIZED,
            ApiError::NoRoute(_) | ApiError::NotFound | ApiError::NoRoom => StatusCode::NOT_FOUND,
            ApiError::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::BodyTooLarge(_) | ApiError::PageTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            ApiError::Referenced(_) => StatusCode::PRECONDITION_FAILED,
            ApiError::Unbuilt(_) => StatusCode::NOT_IMPLEMENTED,
            ApiError::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            ApiError::Elsewhere | ApiError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn errors(&self) -> Vec<Value> {
        let one = |code: u32, message: &str| vec![json!({"code": code, "message": message})];
        match self {
            ApiError::Unauthenticated => one(6003, "Invalid request headers"),
            ApiError::Forbidden => one(10000, "Authentication error"),
            ApiError::Stranger => one(10000, "Authentication failed"),
            ApiError::NoRoute(path) => vec![
                json!({"code": 7003, "message": format!(
                    "Could not route to {path}, perhaps your object identifier is invalid?"
                )}),
                json!({"code": 7000, "message": "No route for that URI"}),
            ],
            ApiError::NotFound => one(1001, "object not found"),
            ApiError::Method(_) => one(10405, "Method not allowed"),
            ApiError::BodyTooLarge(limit) => {
                one(10413, &format!("request body is larger than {limit} bytes"))
            }
            ApiError::PageTooLarge => one(10413, "Error: request entity too large"),
            ApiError::BodyTooSlow => one(10408, "the request body did not come in time"),
            ApiError::Malformed(what) => {
                one(6007, &format!("Malformed JSON in request body: {what}"))
            }
            ApiError::TwoLengths => one(
                6003,
                "Invalid request headers: Transfer-Encoding beside Content-Length",
            ),
            ApiError::Invalid(faults) => faults.iter().map(invalid).collect(),
            ApiError::InvalidRoom(faults) => faults.iter().map(invalid_room).collect(),
            ApiError::NoRoom => one(1001, "Object not found."),
            ApiError::Declared(file) => one(
                1109,
                &format!("This object is declared in {file}: change it there"),
            ),
            ApiError::Referenced(names) => one(
                1005,
                &format!(
                    "This object is referenced by other objects, delete them first. Referenced by {}",
                    names.join(", ")
                ),
            ),
            ApiError::Unbuilt(what) => one(10501, what),
            ApiError::Limited(_) => one(1015, "Rate limited"),
            ApiError::Elsewhere => one(10503, "the browsers are still another process's"),
            // Where it is stays in the log.
            ApiError::Store(error) => one(10503, &format!("the store {}", error.fault)),
        }
    }
}

fn invalid(fault: &Fault) -> Value {
    // The words are the core's; the number is the wire's.
    let (code, message) = if fault.message.ends_with("is not unique") {
        (1003, format!("value not unique: {fault}"))
    } else {
        (1002, format!("{fault}: validation failed"))
    };
    json!({"code": code, "message": message, "source": {"pointer": fault.pointer}})
}

fn invalid_room(fault: &Fault) -> Value {
    let field = fault.pointer.rsplit('/').next().unwrap_or_default();
    let code = match field {
        "name" if fault.message.ends_with("is not unique") => 1101,
        _ if fault.message.ends_with("is not unique") => 1102,
        "custom_page_html" | "custom_html" if fault.message.contains(" bytes, more than ") => 1107,
        "custom_page_html" | "custom_html" if fault.message.contains(" line ") => 1105,
        "expression" => 1106,
        "host" if fault.message.contains("outside the zone") => 1108,
        _ => 1100,
    };
    json!({"code": code, "message": fault.to_string(), "source": {"pointer": fault.pointer}})
}

impl ApiError {
    /// With the first message once more, under the name by which clients look for it where there is
    /// no envelope.
    pub(crate) fn said_twice(self) -> Response {
        let mut body = self.body();
        body["error"] = body["errors"][0]["message"].clone();
        self.written(&body)
    }

    fn body(&self) -> Value {
        json!({
            "success": false,
            "errors": self.errors(),
            "messages": [],
            "result": null,
        })
    }

    fn written(self, body: &Value) -> Response {
        let mut answer = answer(self.status(), body.to_string());
        let headers = answer.headers_mut();
        match &self {
            ApiError::Method(allowed) => {
                if let Ok(allowed) = HeaderValue::from_str(allowed) {
                    headers.insert(ALLOW, allowed);
                }
            }
            ApiError::Limited(wait) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
            }
            ApiError::Unbuilt(_) => never_again(headers),
            ApiError::Elsewhere => {
                headers.insert(RETRY_AFTER, HeaderValue::from(1));
            }
            ApiError::Store(error) => {
                tracing::error!("{error}");
                match error.fault {
                    StoreFault::Busy | StoreFault::Closed | StoreFault::Held { .. } => {
                        headers.insert(RETRY_AFTER, HeaderValue::from(1));
                    }
                    _ => never_again(headers),
                }
            }
            _ => {}
        }
        answer
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        self.written(&body)
    }
}

fn never_again(headers: &mut http::HeaderMap) {
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
}

/// Things that are odd and did not fail the call, as `messages`.
pub(crate) fn messages(notes: &[Fault]) -> Vec<Value> {
    let message = |note: &Fault| {
        json!({
            "code": NOTE,
            "message": note.to_string(),
            "source": {"pointer": note.pointer},
        })
    };
    notes.iter().map(message).collect()
}

/// A result, which is JSON already, in its envelope.
pub(crate) fn envelope(result: &str, messages: &[Value], info: Option<&Value>) -> String {
    let messages = Value::from(messages);
    let info = info.map_or_else(String::new, |info| format!(r#","result_info":{info}"#));
    format!(r#"{{"success":true,"errors":[],"messages":{messages},"result":{result}{info}}}"#)
}

/// An envelope as [`envelope`] made it, with one more message.
pub(crate) fn noted(envelope: &str, message: &str) -> String {
    const BEFORE: &str = r#"{"success":true,"errors":[],"messages":["#;
    let Some(rest) = envelope.strip_prefix(BEFORE) else {
        return envelope.to_owned();
    };
    let message = json!({"code": NOTE, "message": message});
    let comma = if rest.starts_with(']') { "" } else { "," };
    format!("{BEFORE}{message}{comma}{rest}")
}

/// A whole answer, 200.
pub(crate) fn ok(envelope: String) -> Response {
    answer(StatusCode::OK, envelope)
}

fn answer(status: StatusCode, body: String) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, body).into_response()
}
