//! Before anything else is decided: the waiting room that owns a request, and the paths that are
//! ours.
//!
//! Seat holders pass and waiting visitors are answered without waiting for anybody; only who needs
//! the room's owner waits for it. Whoever is let in by a request has that very request go on, body
//! and all.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use usher_core::request::Scheme;
use usher_core::rules::facts::Facts;
use usher_rooms::cookie::{TOKEN, token_in};
use usher_rooms::door::{Bypass, Kind, Look, Outcome, Outside, Step, Told};
use usher_rooms::json;
use usher_rooms::view::Stage;
use usher_rooms::words::Language;

use super::{End, Exchange, HTTP2, Lines};
use crate::http::client::{Client, ClientFault, RequestFields};
use crate::http::refusal::Failure;
use crate::http::rooms::answer::{Asker, Reply, beside};
use crate::http::rooms::path::{Call, Found, Own};
use crate::http::rooms::visit::Visit;
use crate::http::rooms::{Room, RoomSeen};

/// How often a stream looks whether its visitor is called.
const LOOK: Duration = Duration::from_millis(250);

/// A stream says something at least this often, so that nobody between takes it for dead.
const BEAT: Duration = Duration::from_secs(15);

/// A stream ends after this, and its page opens another with the cookie that it has by then.
const STREAM_MAX: Duration = Duration::from_secs(600);

/// What a room may have to say, beside [`End`].
type GoesOn = Option<End>;

impl<'a, C: Client, F: RequestFields> Exchange<'a, C, F> {
    /// `None`: the request goes on.
    pub(super) async fn rooms(&mut self) -> GoesOn {
        let (view, asked) = (self.view, self.asked);
        if view.rooms.is_idle() {
            return None;
        }
        let found = view.rooms.find(asked.host, asked.uri);
        if let Found::Nobody = found {
            return None;
        }
        // A visitor over plain HTTP would not even get a cookie for HTTPS.
        if self.visitor.scheme == Scheme::Http && view.snapshot.redirects(asked.host) {
            return None;
        }
        self.report.balancer = view.snapshot.balancer_for(asked.host);
        match found {
            Found::Nobody => None,
            Found::Room(room) => self.enter(room).await,
            // Boxed: it would set the size of every connection.
            Found::Own(own) => Some(Box::pin(self.own(&own)).await),
            Found::Ambiguous => Some(Box::pin(self.refuse(Failure::AMBIGUOUS_PATH)).await),
        }
    }

    async fn enter(&mut self, room: &'a Arc<Room>) -> GoesOn {
        let (look, step) = self.ask_room(room);
        let told = match step {
            Step::Now(told) => told,
            Step::Ask(asking) => Box::pin(room.door.finish(asking)).await,
        };
        self.report.room = RoomSeen::of(room.door.room, &told);
        match told.outcome {
            Outcome::Bypass(_) => self.visit = Some(Box::new(Visit::new(room, None, false))),
            Outcome::Pass(pass) => {
                let visit = Visit::new(room, Some(pass), self.takes_token());
                self.visit = Some(Box::new(visit));
            }
            Outcome::Outside(outside) => {
                let answered = self.keep_out(room, look, outside, told.stranger);
                return Some(Box::pin(answered).await);
            }
        }
        None
    }

    /// By itself, so that nothing of it is held while anything waits.
    fn ask_room(&self, room: &Room) -> (Look, Step) {
        let lines = Lines(self.asked.fields);
        let request = self.as_decided(&lines);
        let look = room.door.look(&request, self.asked.websocket);
        let facts = Facts::of("", &request, &request.location, request.time);
        let mut presence = self.worker.presence();
        let step = (room.door).decide(&request, look.kind, Some(&facts), &mut presence, fresh);
        (look, step)
    }

    async fn keep_out(
        &mut self,
        room: &Room,
        look: Look,
        mut outside: Outside,
        stranger: bool,
    ) -> End {
        let asked = self.asked;
        let repeatable = matches!(asked.method_name, "GET" | "HEAD");
        // The page was here before and no cookie came with it. There is one once more: a visitor
        // whose cookie had only run out is shown its place the next time.
        if stranger
            && repeatable
            && look.kind == Kind::Navigation
            && !look.json
            && outside.place.is_some()
            && self.comes_from_itself()
        {
            outside.stage = Stage::CookiesNeeded;
        }
        let request_id = self.request_id;
        let asker = Asker {
            look,
            host: asked.host,
            repeatable,
            tunnel: asked.websocket && asked.protocol == HTTP2,
            accept_language: self.text("accept-language"),
            request_id: &request_id,
        };
        let mut reply = Reply::waiting(room, &outside, asker);
        self.give_token(&mut reply, &outside);
        self.reply(&reply).await
    }

    /// Whether the page that led here is the one that is asked for.
    fn comes_from_itself(&self) -> bool {
        let asked = self.asked;
        let referer = self.text("referer").as_bytes();
        let rest = memchr::memmem::find(referer, b"://").map(|at| &referer[at + 3..]);
        let path = rest.and_then(|rest| rest.strip_prefix(asked.authority));
        path == Some(asked.uri.as_bytes())
    }

    /// Whether a program asks, which keeps no cookies.
    fn takes_token(&self) -> bool {
        let mut fields = self.asked.fields.all();
        fields.any(|(name, _)| name.eq_ignore_ascii_case(TOKEN.as_bytes()))
    }

    fn give_token<'r>(&self, reply: &mut Reply<'r>, outside: &'r Outside) {
        if let Some(set_cookie) = outside.set_cookie.as_deref().filter(|_| self.takes_token()) {
            reply.add(TOKEN, token_in(set_cookie));
        }
    }

    /// The first value of this field, as far as it is text.
    fn text(&self, name: &str) -> &'a str {
        let asked = self.asked;
        let mut found = asked.fields.all();
        let found = found.find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        found.map_or("", |(_, value)| {
            std::str::from_utf8(value).unwrap_or_default()
        })
    }

    async fn own(&mut self, own: &Own<'a>) -> End {
        let request_id = self.request_id;
        let refusal =
            |status, reason, message| Reply::refusal(status, reason, message, &request_id);
        let reply = match (own.call, own.room) {
            (Call::Unknown, _) => refusal(404, "unknown-path", "there is nothing at this path"),
            (call, _) if !call.takes(self.asked.method_name) => {
                let mut reply =
                    refusal(405, "method-not-allowed", "this path takes another method");
                reply.add("allow", call.allow());
                reply
            }
            (Call::Challenge, _) => {
                let mut reply = refusal(501, "no-challenge", "challenges are not served here");
                reply.add("x-should-retry", "false");
                reply
            }
            (_, None) => refusal(404, "unknown-room", "no room of this host has this id"),
            (Call::Status, Some(room)) => return self.status(room, own).await,
            (Call::Stream, Some(room)) if room.status_stream => {
                return self.stream(room, own.page).await;
            }
            (Call::Stream, Some(_)) => refusal(404, "no-stream", "this room has no stream"),
            (Call::Leave, Some(_)) if self.is_cross_site() => refusal(
                403,
                "cross-site",
                "only a page of this host may ask for this",
            ),
            (Call::Leave, Some(room)) => {
                let lines = Lines(self.asked.fields);
                let clear = room.door.leave(&self.as_decided(&lines));
                let mut reply = Reply::nothing(&request_id);
                if let Some(clear) = clear {
                    reply.add("set-cookie", clear);
                }
                reply
            }
        };
        self.reply(&reply).await
    }

    /// Whether another site's page sent this.
    fn is_cross_site(&self) -> bool {
        match self.text("sec-fetch-site") {
            "" => {}
            site => return !matches!(site, "same-origin" | "none"),
        }
        let origin = self.text("origin").as_bytes();
        let host = memchr::memmem::find(origin, b"://").map(|at| &origin[at + 3..]);
        let same = host.is_some_and(|host| host.eq_ignore_ascii_case(self.asked.authority));
        !origin.is_empty() && !same
    }

    /// How things stand for the visitor who asks.
    async fn status(&mut self, room: &'a Arc<Room>, own: &Own<'_>) -> End {
        let newcomer = own.newcomer && self.asked.method_name == "GET";
        let step = {
            let lines = Lines(self.asked.fields);
            let request = self.as_decided(&lines);
            let mut presence = self.worker.presence();
            let page = own.page.is_some();
            (room.door).state(&request, page, newcomer, &mut presence, fresh)
        };
        let told = match step {
            Step::Now(told) => told,
            Step::Ask(asking) => room.door.finish(asking).await,
        };
        self.report.room = RoomSeen::of(room.door.room, &told);
        let outside = stand(room, told);
        let request_id = self.request_id;
        let mut reply = Reply::state(room, &outside, own.page, &request_id);
        self.give_token(&mut reply, &outside);
        self.reply(&reply).await
    }

    /// The same, told again and again for as long as the visitor waits.
    async fn stream(&mut self, room: &'a Arc<Room>, page: Option<Language>) -> End {
        let request_id = self.request_id;
        let claims = {
            let lines = Lines(self.asked.fields);
            room.door.waiting(&self.as_decided(&lines))
        };
        let Some(mut claims) = claims else {
            // Browsers take this for the end, and do not come back.
            return self.reply(&Reply::nothing(&request_id)).await;
        };
        let Some(_open) = self.worker.open_stream() else {
            let mut reply = Reply::refusal(503, "busy", "too many streams are open", &request_id);
            reply.add("retry-after", "60");
            return self.reply(&reply).await;
        };
        let head = Reply::stream(&request_id);
        self.report.status = head.status;
        if self.client.begin(head.status, head.fields()).is_err() {
            return End::Cut;
        }
        let id = room.door.room;
        let began = Instant::now();
        let mut heard = None;
        let mut said: Option<(Stage, Instant)> = None;
        let mut piece = Vec::new();
        loop {
            let now = Instant::now();
            let view = self.worker.view();
            // Its page asks once more, and hears that it is gone or stands somewhere else.
            let room = view.rooms.by_id(id).filter(|room| room.status_stream);
            let Some(room) = room.filter(|_| now - began < STREAM_MAX) else {
                break;
            };
            if self.conn.drain.started() {
                break;
            }
            let refresh = Duration::from_millis(room.door.refresh_ms());
            let counts = heard.is_none_or(|heard| now - heard >= refresh);
            let outside = {
                let mut presence = self.worker.presence();
                room.door.stand(&mut claims, counts, &mut presence)
            };
            if counts {
                heard = Some(now);
            }
            piece.clear();
            match said {
                Some((stage, _)) if stage == outside.stage && !counts => {}
                _ => {
                    piece.extend_from_slice(b"data: ");
                    json::write(&room.door.view(&outside), beside(room, page), &mut piece);
                    piece.extend_from_slice(b"\n\n");
                }
            }
            if piece.is_empty() && said.is_some_and(|(_, at)| now - at >= BEAT) {
                piece.extend_from_slice(b":\n\n");
            }
            if !piece.is_empty() {
                said = Some((outside.stage, now));
                if self.send(&piece).await.is_err() {
                    return End::Over;
                }
            }
            if matches!(outside.stage, Stage::Called | Stage::Rejected) {
                break;
            }
            drop(view);
            self.deadline.set_after(LOOK);
            let left = poll_fn(|cx| match self.client.poll_gone(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => self.deadline.poll(cx).map(|()| false),
            });
            if left.await {
                return End::Over;
            }
        }
        let ended = self.client.finish(std::iter::empty());
        match self.flush(ended).await {
            // The connection goes with its listener.
            End::Answered if self.conn.drain.started() => End::Refused,
            end => end,
        }
    }

    /// Sends a piece of an answer that has begun.
    async fn send(&mut self, piece: &[u8]) -> Result<(), ClientFault> {
        self.deadline
            .set_after(self.view.settings.timeouts.body_idle);
        let mut sent = 0;
        poll_fn(|cx| {
            while sent < piece.len() {
                match self.client.poll_send(cx, &piece[sent..])? {
                    Poll::Ready(count) => sent += count,
                    Poll::Pending => {
                        return self.deadline.poll(cx).map(|()| Err(ClientFault::Gone));
                    }
                }
            }
            match self.client.poll_flush(cx) {
                Poll::Pending => self.deadline.poll(cx).map(|()| Err(ClientFault::Gone)),
                flushed => flushed,
            }
        })
        .await
    }

    async fn reply(&mut self, reply: &Reply<'_>) -> End {
        self.report.status = reply.status;
        let closes = super::closes(reply.status) && reply.status != 405 && reply.status != 501;
        let queued = (self.client).answer(reply.status, reply.fields(), &reply.body, closes);
        self.flush(queued).await
    }
}

/// What the visitor who asks for its state is told: inside, where nothing keeps it out.
fn stand(room: &Room, told: Told) -> Outside {
    let inside = || Outside::new(Stage::Active, room.door.clock.now());
    match told.outcome {
        Outcome::Outside(outside) => outside,
        Outcome::Bypass(
            Bypass::Suspended | Bypass::Rule | Bypass::Seatless | Bypass::Unanswered,
        ) => inside(),
        Outcome::Pass(mut pass) => Outside {
            set_cookie: room.door.answered(&mut pass, None),
            ..inside()
        },
    }
}

/// A number that nobody can guess.
fn fresh() -> u128 {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has entropy");
    u128::from_le_bytes(bytes)
}
