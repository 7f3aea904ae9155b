//! The page for people, under `/`: its files, their sessions, and the stream that keeps it true.
//!
//! The page has no interface of its own: what it shows and changes goes over `/client/v4`, with a
//! session in the place of a token. Its files are built beforehand and lie in the binary, and it
//! may load and run nothing else: the policy below names no source but this listener.

mod live;
mod session;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::uri::Uri;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rust_embed::RustEmbed;

use crate::envelope::ApiError;
use crate::server::Control;

use live::Live;

/// Nothing inline, nothing from elsewhere, in nobody's frame. What it frames itself are previews of
/// waiting pages, each in an origin of its own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What `dashboard/` was built to.
#[derive(RustEmbed)]
#[folder = "../../dashboard/dist"]
struct Files;

/// What the routes of the dashboard share.
#[derive(Debug, Clone)]
pub(crate) struct Dashboard {
    control: Arc<dyn Control>,
    sign_ins: Arc<SignIns>,
    live: Arc<Live>,
}

impl Dashboard {
    /// Begins to sample the figures of the node; call it within a runtime.
    pub(crate) fn new(control: &Arc<dyn Control>) -> Dashboard {
        Dashboard {
            control: Arc::clone(control),
            sign_ins: control.sign_ins(),
            live: Live::start(control),
        }
    }

    /// The page and its sessions: what lies outside of `/client/v4`.
    pub(crate) fn pages<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        Router::new()
            .route(
                "/",
                get(|headers: HeaderMap| async move { page(&headers, "index.html") }),
            )
            .route(
                "/icon.svg",
                get(|headers: HeaderMap| async move { page(&headers, "icon.svg") }),
            )
            .route("/assets/{name}", get(asset))
            .merge(session::routes(self))
    }

    /// The stream, to stand under `/client/v4`.
    pub(crate) fn stream<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        live::routes(self)
    }
}

pub use live::{Answers, Figures};
pub use session::SignIns;
pub(crate) use session::{Unspoken, with_session};

/// A file that keeps its name when its content changes: asked for again each time.
fn page(headers: &HeaderMap, name: &str) -> Response {
    let Some(file) = Files::get(name) else {
        return ApiError::NoRoute(format!("/{name}")).into_response();
    };
    let tag = format!("\"{}\"", hex(&file.metadata.sha256_hash()[..16]));
    let known = headers.get(IF_NONE_MATCH);
    let mut answer = if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        content(name, file.data)
    };
    let fields = answer.headers_mut();
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = tag.parse() {
        fields.insert(ETAG, tag);
    }
    guarded(answer)
}

/// A file whose name holds the hash of its content: it never changes.
async fn asset(Path(name): Path<String>, uri: Uri) -> Response {
    let Some(file) = Files::get(&format!("assets/{name}")) else {
        return ApiError::NoRoute(uri.path().to_owned()).into_response();
    };
    let mut answer = content(&name, file.data);
    let lasting = HeaderValue::from_static("public, max-age=31536000, immutable");
    answer.headers_mut().insert(CACHE_CONTROL, lasting);
    guarded(answer)
}

fn content(name: &str, data: std::borrow::Cow<'static, [u8]>) -> Response {
    let kind = match name.rsplit_once('.').map_or("", |(_, kind)| kind) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let body = match data {
        std::borrow::Cow::Borrowed(data) => Body::from(data),
        std::borrow::Cow::Owned(data) => Body::from(data),
    };
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
}

/// What holds for every file.
fn guarded(mut answer: Response) -> Response {
    let fields: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fields {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_files_that_are_there_and_runs_nothing_inline() {
        let page = Files::get("index.html").expect("built");
        let page = std::str::from_utf8(&page.data).expect("text");
        let named: Vec<&str> = page
            .split('"')
            .filter(|part| part.starts_with('/'))
            .collect();
        assert!(named.iter().any(|name| name.ends_with(".js")), "{named:?}");
        for name in named {
            assert!(Files::get(&name[1..]).is_some(), "{name}");
        }
        assert!(!page.contains("<style") && !page.contains("style=\""));
        let scripts = page.matches("<script").count();
        assert_eq!(scripts, page.matches("src=\"/assets/").count());
    }

    #[test]
    fn a_page_that_is_known_is_not_sent_again() {
        let first = page(&HeaderMap::new(), "index.html");
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[CONTENT_SECURITY_POLICY], POLICY);
        let tag = first.headers()[ETAG].clone();
        let again = page(&HeaderMap::from_iter([(IF_NONE_MATCH, tag)]), "index.html");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(again.headers()[CONTENT_SECURITY_POLICY], POLICY);
    }

    #[test]
    fn all_files_together_are_small() {
        let size: usize = Files::iter()
            .filter_map(|name| Files::get(&name))
            .map(|file| file.data.len())
            .sum();
        assert!(size <= 300 * 1024, "{size} bytes");
    }
}
