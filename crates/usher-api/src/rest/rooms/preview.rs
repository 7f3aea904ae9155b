//! Previews of waiting pages: a draft is shown under an address of its own before anybody waits.
//!
//! Drafts live in this process, for a day at most and within bounds: they are nothing that a node
//! goes by. Whoever knows the address sees the page, so addresses are drawn and not counted. The
//! page is somebody's draft and is treated like a stranger's: it runs in an origin of its own, with
//! nobody's session in reach.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use usher_core::catalog::PAGE_BYTES_MAX;
use usher_core::id::Id;
use usher_core::time::{Mono, Wall};
use usher_rooms::page::{self, PREVIEW_POLICY, Preview, WELCOME};
use usher_rooms::template::{self, Cover, Template};
use usher_rooms::words::Language;

use super::{PAGED_BODY_MAX, PATH};
use crate::access::Product;
use crate::envelope::{ApiError, messages};
use crate::rest::{App, Call, Needs, Reply, Route, fields, route};
use crate::wire::reader::{Cursor, Mode, Object, Report, Shape, built};
use crate::wire::rooms::page_of;

/// How long a draft can be looked at.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Drafts that are kept; beyond that the oldest makes room.
const DRAFTS_MAX: usize = 64;

/// Bytes of all drafts together; beyond that the oldest make room.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The built-in page is shown with no script: there is no room that it could ask.
const BUILT_IN_POLICY: &str =
    "sandbox; connect-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'";

/// What a preview is made of.
static PREVIEW: Shape = Shape {
    name: "preview of a waiting page",
    keys: &[built("custom_html"), built("usher")],
};

/// What Usher adds to a preview.
static PREVIEW_USHER: Shape = Shape {
    name: "usher of a preview",
    keys: &[built("replaces")],
};

/// The drafts of this process.
#[derive(Debug, Default)]
pub(crate) struct Drafts(Mutex<HashMap<Id, Draft>>);

#[derive(Debug, Clone)]
struct Draft {
    made: Mono,
    /// `None`: the built-in page.
    page: Option<Arc<Template>>,
}

impl Draft {
    fn bytes(&self) -> usize {
        self.page.as_ref().map_or(0, |page| page.text().len())
    }
}

impl Drafts {
    fn put(&self, id: Id, draft: Draft) {
        let mut all = self.all();
        let now = draft.made;
        all.retain(|_, old| now.since(old.made) < KEPT);
        all.insert(id, draft);
        while all.len() > DRAFTS_MAX || all.values().map(Draft::bytes).sum::<usize>() > BYTES_MAX {
            let others = all.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = others.min_by_key(|(_, old)| old.made).map(|(id, _)| *id) else {
                return;
            };
            all.remove(&oldest);
        }
    }

    fn find(&self, id: Id, now: Mono) -> Option<Draft> {
        let all = self.all();
        all.get(&id)
            .filter(|draft| now.since(draft.made) < KEPT)
            .cloned()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Id, Draft>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn routes() -> Vec<Route> {
    let summary = "Shows a waiting page under an address of its own, for a day, before it is used";
    vec![
        route(
            Method::POST,
            &format!("{PATH}/preview"),
            "create_waiting_room_preview",
            summary,
            Needs::Edit(Product::WaitingRooms),
            |call| Box::pin(async move { make(&call) }),
        )
        .with_body(fields::ROOM_PREVIEW)
        .with_body_max(PAGED_BODY_MAX),
    ]
}

fn make(call: &Call) -> Result<Reply, ApiError> {
    let body = Value::from(call.object()?);
    let report = Report::new(Mode::Api);
    let cursor = Cursor::root(&report, &body);
    let asked = cursor.object(&PREVIEW);
    let page = asked.as_ref().and_then(|asked| read(asked));
    let replaced = asked.and_then(|asked| {
        let usher = asked.get("usher")?.object(&PREVIEW_USHER)?;
        let replaces = usher.get("replaces")?;
        let id = replaces.text()?.replace('-', "").parse().ok();
        if id.is_none() {
            replaces.fault("is not the last part of a preview_url");
        }
        id
    });
    let (faults, notes) = report.into_parts();
    if !faults.is_empty() {
        return Err(ApiError::of_faults(faults));
    }
    let (drafts, now) = (&call.app.drafts, call.app.control.now());
    // One that is gone is not brought back: its address may have been given to others.
    let id = replaced.filter(|id| drafts.find(*id, now).is_some());
    let id = id.unwrap_or_else(|| crate::rest::write::draw(call));
    let page = page.map(Arc::new);
    drafts.put(id, Draft { made: now, page });
    let origin = call.app.control.public_origin();
    let result = json!({"preview_url": format!("{origin}/preview/{}", hyphened(id))});
    Ok(Reply::Result(result.to_string(), messages(&notes), None))
}

/// The page of the body; `None` for the built-in one, and for none that can be shown.
fn read(asked: &Object<'_>) -> Option<Template> {
    let html = asked.need("custom_html")?;
    let found = html.text()?.len();
    if found > PAGE_BYTES_MAX {
        html.fault(format_args!(
            "has {found} bytes, more than {PAGE_BYTES_MAX}"
        ));
        return None;
    }
    page_of(
        &html,
        &Cover {
            routes: &[],
            challenge: false,
        },
    )
}

/// An id as addresses of previews spell it.
fn hyphened(id: Id) -> String {
    let text = id.to_string();
    [
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..],
    ]
    .join("-")
}

/// What stands under the address of a preview.
pub(crate) fn show(app: &App, id: &str, query: &str) -> Response {
    let now = app.control.now();
    let id = Some(id).filter(|id| id.len() == 36);
    let id = id.and_then(|id| id.replace('-', "").parse().ok());
    let Some(draft) = id.and_then(|id| app.drafts.find(id, now)) else {
        let gone = "There is no such preview any more: each is kept for a day, and no longer than its node runs.\n";
        return plain(StatusCode::NOT_FOUND, gone.to_owned());
    };
    let asked = match Preview::parse(query) {
        Ok(asked) => asked,
        Err(fault) => return plain(StatusCode::BAD_REQUEST, format!("{fault}\n")),
    };
    let language = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("language="));
    let language = language.and_then(Language::parse);
    let language = language.unwrap_or(Language::ALL[0]);
    let Some(view) = asked.view(wall()) else {
        return sandboxed(WELCOME.as_bytes().to_vec(), BUILT_IN_POLICY);
    };
    let nonce = format!("{:016x}{:016x}", app.control.draw(), app.control.draw());
    let mut html = Vec::new();
    let Some(page) = &draft.page else {
        let facts = page::Facts {
            room: "",
            base: "",
            site: "",
            nonce: &nonce,
            repeatable: true,
            stream: false,
            newcomer: false,
        };
        page::write(&view, language, &facts, &mut html);
        return sandboxed(html, BUILT_IN_POLICY);
    };
    let facts = template::Facts {
        room_name: "preview",
        language,
        csp_nonce: &nonce,
    };
    match page.render(&view, &facts, &mut html) {
        Ok(()) => sandboxed(html, &format!("{PREVIEW_POLICY}; frame-ancestors 'self'")),
        Err(fault) => plain(StatusCode::UNPROCESSABLE_ENTITY, format!("{fault}\n")),
    }
}

fn sandboxed(html: Vec<u8>, policy: &str) -> Response {
    let mut answer = Response::new(Body::from(html));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    if let Ok(policy) = HeaderValue::from_str(policy) {
        answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    guarded(answer)
}

fn plain(status: StatusCode, text: String) -> Response {
    guarded((status, text).into_response())
}

/// Nobody keeps it, finds it or takes it for something else.
fn guarded(mut answer: Response) -> Response {
    for (name, value) in [
        (CACHE_CONTROL, "private, no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("x-robots-tag"), "noindex"),
    ] {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

fn wall() -> Wall {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    Wall::from_millis(time.map_or(0, |since| since.as_millis() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> Id {
        let mut bytes = [0; Id::LEN];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Id::from_bytes(bytes)
    }

    fn draft(at: u64, bytes: usize) -> Draft {
        let text = "x".repeat(bytes);
        Draft {
            made: Mono::ZERO.after(Duration::from_secs(at)),
            page: Some(Arc::new(Template::parse(&text).expect("a template"))),
        }
    }

    #[test]
    fn drafts_are_bounded_in_number_size_and_time() {
        let drafts = Drafts::default();
        for at in 0..=DRAFTS_MAX as u64 {
            drafts.put(id(at), draft(at, 1));
        }
        let now = Mono::ZERO.after(Duration::from_secs(DRAFTS_MAX as u64));
        assert_eq!(drafts.all().len(), DRAFTS_MAX);
        assert!(drafts.find(id(0), now).is_none());
        // Two of the largest fit, beside nothing else; the newest always stays.
        drafts.put(id(100), draft(100, BYTES_MAX / 2));
        drafts.put(id(101), draft(101, BYTES_MAX / 2));
        assert_eq!(drafts.all().len(), 2);
        drafts.put(id(102), draft(102, 1));
        assert_eq!(drafts.all().len(), 2);
        // A draft that is put again is another's no more.
        drafts.put(id(102), draft(103, 2));
        let late = Mono::ZERO.after(Duration::from_secs(103) + KEPT);
        assert!(drafts.find(id(102), late).is_none());
        drafts.put(id(200), draft(103 + 24 * 60 * 60, 1));
        assert_eq!(drafts.all().len(), 1);
    }

    #[test]
    fn an_address_has_the_form_of_a_uuid() {
        assert_eq!(
            hyphened(id(0x0123_4567_89ab_cdef)),
            "01234567-89ab-cdef-0000-000000000000"
        );
    }
}
