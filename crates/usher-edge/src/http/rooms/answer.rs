//! What somebody outside a room is answered: a page, JSON, or nothing in the place of a script or
//! an image; and that no cache keeps any of it.

use std::borrow::Cow;
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use usher_rooms::door::{Kind, Look, Outside};
use usher_rooms::json::{self, Beside};
use usher_rooms::view::View;
use usher_rooms::words::{Language, negotiate};
use usher_rooms::{page, template};

use super::{Room, WaitingPage};
use crate::http::forward::RequestId;

/// `Content-Type` of JSON.
const JSON: &str = "application/json";

/// An answer of ours.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    fields: Vec<(&'static str, Cow<'a, str>)>,
    pub(crate) body: Vec<u8>,
}

/// Who is answered, beside what the room says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) look: Look,
    pub(crate) host: &'a str,
    /// False where the request did more than read.
    pub(crate) repeatable: bool,
    /// It would open a WebSocket over HTTP/2, where a status of success is an open one.
    pub(crate) tunnel: bool,
    pub(crate) accept_language: &'a str,
    pub(crate) request_id: &'a RequestId,
}

impl<'a> Reply<'a> {
    fn new(status: u16, content_type: &'static str, request_id: &'a RequestId) -> Reply<'a> {
        let date = httpdate::fmt_http_date(SystemTime::now());
        // Room for all that may follow.
        let mut fields: Vec<(&'static str, Cow<'a, str>)> = Vec::with_capacity(20);
        if !content_type.is_empty() {
            fields.push(("content-type", content_type.into()));
        }
        let always = [
            ("cache-control", "private, no-store, max-age=0"),
            ("expires", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("cdn-cache-control", "no-store"),
            ("surrogate-control", "no-store"),
            ("vary", "Accept, Cookie"),
            ("x-robots-tag", "noindex"),
            ("referrer-policy", "same-origin"),
            ("x-request-id", request_id.as_str()),
        ];
        fields.extend(always.map(|(name, value)| (name, Cow::Borrowed(value))));
        fields.push(("date", date.into()));
        Reply {
            status,
            fields,
            body: Vec::new(),
        }
    }

    /// The fields beside those that frame the body.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.fields.iter().map(|(name, value)| (*name, &**value))
    }

    /// The waiting answer, or the one that turns away.
    pub(crate) fn waiting(room: &Room, outside: &'a Outside, asker: Asker<'a>) -> Reply<'a> {
        let view = room.door.view(outside);
        let status = if asker.tunnel { 429 } else { room.status };
        let empty = asker.look.kind == Kind::Subrequest;
        let content_type = match (asker.look.json, empty) {
            (true, _) => JSON,
            (false, true) => "text/plain; charset=utf-8",
            (false, false) => "text/html; charset=utf-8",
        };
        let mut reply = Reply::new(status, content_type, asker.request_id);
        if asker.look.json {
            let beside = Beside {
                usher: room.json_extensions,
                page: None,
            };
            json::write(&view, beside, &mut reply.body);
        } else if !empty {
            reply.page(room, &view, outside, asker);
        }
        if status == 429 && view.refresh_secs > 0 {
            reply.add("retry-after", view.refresh_secs.to_string());
        }
        reply.stand(&view, outside);
        reply
    }

    /// The visitor's state, for who asks for it alone. `page`: in which language a page shows it.
    pub(crate) fn state(
        room: &Room,
        outside: &'a Outside,
        page: Option<Language>,
        request_id: &'a RequestId,
    ) -> Reply<'a> {
        let view = room.door.view(outside);
        let mut reply = Reply::new(200, JSON, request_id);
        json::write(&view, beside(room, page), &mut reply.body);
        reply.stand(&view, outside);
        reply
    }

    /// The head of a stream.
    pub(crate) fn stream(request_id: &'a RequestId) -> Reply<'a> {
        let mut reply = Reply::new(200, "text/event-stream", request_id);
        // Other proxies keep nothing back.
        reply.add("x-accel-buffering", "no");
        reply
    }

    /// Nothing, for who has no more to hear.
    pub(crate) fn nothing(request_id: &'a RequestId) -> Reply<'a> {
        Reply::new(204, "", request_id)
    }

    /// One of our paths can not be had: `reason` is a word for programs.
    pub(crate) fn refusal(
        status: u16,
        reason: &'static str,
        message: &'static str,
        request_id: &'a RequestId,
    ) -> Reply<'a> {
        let mut reply = Reply::new(status, JSON, request_id);
        let id = request_id.as_str();
        reply.body = format!(
            "{{\"error\": {{\"status\": {status}, \"reason\": \"{reason}\", \
             \"message\": \"{message}\", \"request_id\": \"{id}\"}}}}\n"
        )
        .into_bytes();
        reply
    }

    /// Adds a field.
    pub(crate) fn add(&mut self, name: &'static str, value: impl Into<Cow<'a, str>>) {
        self.fields.push((name, value.into()));
    }

    /// What every answer to somebody outside says in its head.
    fn stand(&mut self, view: &View<'_>, outside: &'a Outside) {
        if view.outside() {
            let word = match view.refresh_secs {
                0 => Cow::Borrowed("rejected"),
                secs => format!("waiting; refresh={secs}").into(),
            };
            self.add("usher-waiting-room", word);
        }
        if let Some(set_cookie) = &outside.set_cookie {
            self.add("set-cookie", set_cookie);
        }
    }

    fn page(&mut self, room: &Room, view: &View<'_>, outside: &Outside, asker: Asker<'_>) {
        let language = if room.negotiate_language {
            negotiate(asker.accept_language, room.language)
        } else {
            room.language
        };
        let nonce = nonce();
        if let WaitingPage::Own { template, refresh } = &room.page {
            let facts = template::Facts {
                room_name: &room.name,
                language,
                csp_nonce: &nonce,
            };
            if template.render(view, &facts, &mut self.body).is_ok() {
                if *refresh && view.refresh_secs > 0 {
                    self.add("refresh", view.refresh_secs.to_string());
                }
                return;
            }
            // Too long: the page that is not takes its place.
            self.body.clear();
        }
        let id = room.door.room.to_string();
        let base = room.base();
        let facts = page::Facts {
            room: &id,
            base,
            site: asker.host,
            nonce: &nonce,
            repeatable: asker.repeatable,
            stream: room.status_stream,
            newcomer: outside.place.is_none(),
        };
        page::write(view, language, &facts, &mut self.body);
        self.add("content-security-policy", page::policy(&nonce));
    }
}

/// What the state of a visitor says beside the documented fields.
pub(crate) fn beside(room: &Room, page: Option<Language>) -> Beside {
    Beside {
        usher: room.json_extensions,
        page,
    }
}

/// What no page before had.
fn nonce() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has entropy");
    BASE64.encode(bytes)
}
