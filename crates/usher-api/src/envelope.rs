//! The v4 envelope: every answer of the API has the same four keys.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::access::Denied;
use crate::wire::reader::Fault;

/// A refusal with the codes that the official clients know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// No readable credentials: 400, code 6003.
    Unauthenticated,
    /// Credentials that do not open this: 403, code 10000.
    Forbidden,
    /// No such path: 404, codes 7003 and 7000.
    NoRoute(String),
    /// The path takes other methods: 405, code 10405.
    Method,
    /// The body is over the limit, in bytes: 413, code 10413.
    BodyTooLarge(usize),
    /// The body is no JSON: 400, code 6007.
    Malformed(String),
    /// The head tells two lengths of the body: 400, code 6003.
    TwoLengths,
    /// Fields that are wrong: 400, code 1002 each, with its JSON pointer.
    Invalid(Vec<Fault>),
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> ApiError {
        match denied {
            Denied::Missing => ApiError::Unauthenticated,
            Denied::Wrong => ApiError::Forbidden,
        }
    }
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            ApiError::Unauthenticated
            | ApiError::Malformed(_)
            | ApiError::TwoLengths
            | ApiError::Invalid(_) => StatusCode::BAD_REQUEST,
            ApiError::Forbidden => StatusCode::FORBIDDEN,
            ApiError::NoRoute(_) => StatusCode::NOT_FOUND,
            ApiError::Method => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    fn errors(&self) -> Vec<Value> {
        let one = |code: u32, message: &str| vec![json!({"code": code, "message": message})];
        match self {
            ApiError::Unauthenticated => one(6003, "Invalid request headers"),
            ApiError::Forbidden => one(10000, "Authentication error"),
            ApiError::NoRoute(path) => vec![
                json!({"code": 7003, "message": format!(
                    "Could not route to {path}, perhaps your object identifier is invalid?"
                )}),
                json!({"code": 7000, "message": "No route for that URI"}),
            ],
            ApiError::Method => one(10405, "Method not allowed"),
            ApiError::BodyTooLarge(limit) => {
                one(10413, &format!("request body is larger than {limit} bytes"))
            }
            ApiError::Malformed(what) => {
                one(6007, &format!("Malformed JSON in request body: {what}"))
            }
            ApiError::TwoLengths => one(
                6003,
                "Invalid request headers: Transfer-Encoding beside Content-Length",
            ),
            ApiError::Invalid(faults) => faults
                .iter()
                .map(|fault| {
                    json!({
                        "code": 1002,
                        "message": format!("{fault}: validation failed"),
                        "source": {"pointer": fault.pointer},
                    })
                })
                .collect(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "success": false,
            "errors": self.errors(),
            "messages": [],
            "result": null,
        });
        answer(self.status(), &body)
    }
}

/// A result in its envelope, 200, with what is odd about the request: code 1000 each.
pub(crate) fn success(result: &Value, notes: &[Fault]) -> Response {
    let messages = notes.iter().map(|note| {
        json!({"code": 1000, "message": note.to_string(), "source": {"pointer": note.pointer}})
    });
    let body = json!({
        "success": true,
        "errors": [],
        "messages": messages.collect::<Vec<_>>(),
        "result": result,
    });
    answer(StatusCode::OK, &body)
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, body.to_string()).into_response()
}
