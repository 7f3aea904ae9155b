//! Browsers for programs with a token: sessions, their WebSockets, and what is done with one page.
//!
//! Both prefixes of the hosted service, `browser-rendering` and `browser-run`, lead here. Here it is
//! settled who asks and whether they may, and that the body is there; the answer is given by
//! [`BrowserFront`], behind which are brokers that this crate does not know. So nobody comes as far as
//! an account's limits or a browser without a token of that account.
//!
//! Two ways to write failures meet in this place. What is asked under `devtools/` is answered without
//! an envelope, everything else in it ([`Style`]). What is refused *here* under `devtools/` is written
//! in both ways at once: clients look for `error`, or for the number of the refusal in `errors`.
//!
//! - `calls` says what a token needs for what,
//! - `tickets` are addresses that open a WebSocket once.
//!
//! Source: browser specification 2.2 to 2.5 and 4.

pub(crate) mod calls;
mod tickets;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use axum::body::Body;
use axum::body::{Bytes, to_bytes};
use axum::response::{IntoResponse as _, Response};
use http::header::{ALLOW, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use usher_core::id::Id;

use crate::access::{self, Product};
use crate::dashboard::Unspoken;
use crate::envelope::ApiError;
use crate::rest::{App, Caller, account};
use crate::server::{BODY_MAX, BODY_TIMEOUT};
use crate::wire::reader::ACCOUNT;
use calls::Does;
use tickets::Tickets;

/// The last segment of both prefixes.
pub(crate) const PREFIXES: [&str; 2] = ["browser-rendering", "browser-run"];

/// Bytes of the body of what is done with one page: it may bring the page along.
const PAGE_MAX: usize = 50 << 20;

/// Bodies at once that may be larger than those of other calls. Further ones wait.
const LARGE_MAX: usize = 8;

/// For a whole large body, and its turn.
const LARGE_TIMEOUT: Duration = Duration::from_secs(120);

/// Names one answer, for whoever looks for it in a log.
const REQUEST_ID: HeaderName = HeaderName::from_static("usher-request-id");

/// What answers for browsers.
pub trait BrowserFront: Send + Sync + 'static {
    /// The accounts that there are, with their names.
    fn accounts(&self) -> Vec<(Id, String)>;

    /// Answers. Whoever drops this wants no answer any more.
    fn answer(&self, asked: Asked) -> Answering;
}

/// An answer that will be. `None`: the browsers are another process's, which has not let go of them.
pub type Answering = Pin<Box<dyn Future<Output = Option<Response>> + Send>>;

/// A request that may be answered.
#[derive(Debug)]
pub struct Asked {
    /// For whom.
    pub account: Id,
    /// How failures are written.
    pub style: Style,
    /// Below the prefix, without the `/` before it. As it came: nothing is decoded.
    pub path: String,
    /// What the addresses of WebSockets begin with, up to `/devtools`: scheme, host and path, with
    /// the prefix of the request.
    pub base: String,
    /// The same of an address that opens the browser that is asked about once, without a token.
    pub once: Option<String>,
    /// With its whole body, and what is needed to make a WebSocket of it.
    pub request: Request<Bytes>,
}

/// How failures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `{"error": text}`.
    Bare,
    /// The envelope of all other calls of the API.
    Envelope,
}

impl Style {
    fn of(path: &str) -> Style {
        match path.split('/').next() {
            Some("devtools" | ONCE) => Style::Bare,
            _ => Style::Envelope,
        }
    }

    fn refuse(self, error: ApiError) -> Response {
        match self {
            Style::Bare => error.said_twice(),
            Style::Envelope => error.into_response(),
        }
    }
}

/// What stands before a secret in a path.
const ONCE: &str = "once";

/// Both prefixes of a node.
pub(crate) struct Surface {
    app: Arc<App>,
    tickets: Tickets,
    large: Arc<Semaphore>,
}

/// A request's path, taken apart.
struct Place<'a> {
    account: &'a str,
    prefix: &'a str,
    /// The secret in it.
    secret: Option<&'a str>,
    /// Below the prefix and the secret.
    path: &'a str,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Option<Place<'a>> {
        let (account, rest) = path.strip_prefix("/client/v4/accounts/")?.split_once('/')?;
        let (prefix, path) = rest.split_once('/')?;
        let told = path.strip_prefix(ONCE).and_then(|it| it.strip_prefix('/'));
        let (secret, path) = match told.and_then(|told| told.split_once('/')) {
            Some((secret, path)) => (Some(secret), path),
            None => (None, path),
        };
        PREFIXES.contains(&prefix).then_some(Place {
            account,
            prefix,
            secret,
            path,
        })
    }

    /// What is looked up: a `/` at the end means nothing.
    fn meant(&self) -> &'a str {
        self.path.strip_suffix('/').unwrap_or(self.path)
    }

    fn nowhere(&self) -> ApiError {
        ApiError::NoRoute(format!("{}/{}", self.prefix, self.meant()))
    }
}

impl Surface {
    pub(crate) fn new(app: Arc<App>) -> Surface {
        Surface {
            app,
            tickets: Tickets::default(),
            large: Arc::new(Semaphore::new(LARGE_MAX)),
        }
    }

    /// Answers one request under one of the prefixes.
    pub(crate) async fn answer(self: Arc<Surface>, request: Request<Body>) -> Response {
        let path = request.uri().path().to_owned();
        let Some(place) = Place::of(&path) else {
            return ApiError::NoRoute(path).into_response();
        };
        let style = match place.secret {
            Some(_) => Style::Bare,
            None => Style::of(place.path),
        };
        let answer = self.ask(&place, style, request).await;
        let mut answer = answer.unwrap_or_else(|error| style.refuse(error));
        let control = &self.app.control;
        let id = format!("{:016x}{:016x}", control.draw(), control.draw());
        // Without the path: a secret may stand in it.
        tracing::debug!(
            request = id,
            status = answer.status().as_u16(),
            "browsers were asked"
        );
        let headers = answer.headers_mut();
        if let Ok(id) = HeaderValue::try_from(id) {
            headers.insert(REQUEST_ID, id);
        }
        if answer.status() == StatusCode::METHOD_NOT_ALLOWED {
            let methods = calls::of(place.meant()).map(|line| line.method.as_str());
            let methods = methods.collect::<Vec<_>>().join(", ");
            if let Ok(methods) = HeaderValue::try_from(methods) {
                answer.headers_mut().insert(ALLOW, methods);
            }
        }
        answer
    }

    async fn ask(
        &self,
        place: &Place<'_>,
        style: Style,
        mut request: Request<Body>,
    ) -> Result<Response, ApiError> {
        if request.method() == Method::HEAD && !upgrades(&request) {
            *request.method_mut() = Method::GET;
        }
        let (of, connects) = self.admit(place, &request)?;
        let lines = || calls::of(place.meant());
        if style == Style::Envelope {
            // There is nothing beside what is listed.
            if lines().next().is_none() {
                return Err(place.nowhere());
            }
            if lines().all(|line| line.method != *request.method()) {
                return Err(ApiError::Method(String::new()));
            }
        }
        let Some(browsers) = self.app.control.browser_front() else {
            let text = "no browsers run here: the configuration has no browsers";
            return Err(ApiError::Unbuilt(text.to_owned()));
        };
        let asked = connects.then(|| calls::only(calls::VERSION, place.meant()));
        let (head, body) = request.into_parts();
        let (body, _turn) = self.body(style, &head.method, &head.headers, body).await?;
        let origin = self.app.control.public_origin();
        let origin = origin.strip_prefix("http").unwrap_or(&origin);
        let base = format!("ws{origin}/client/v4/accounts/{of}/{}", place.prefix);
        let now = self.app.control.now();
        let asked = asked.flatten();
        let secret = asked.and_then(|session| self.tickets.issue(of, session, now));
        let answer = browsers.answer(Asked {
            account: of,
            style,
            path: place.path.to_owned(),
            once: secret
                .as_ref()
                .map(|secret| format!("{base}/{ONCE}/{secret}")),
            base,
            request: Request::from_parts(head, body),
        });
        let answer = answer.await;
        let told = |answer: &Response| answer.status() == StatusCode::OK;
        if let Some(secret) = secret.filter(|_| !answer.as_ref().is_some_and(told)) {
            self.tickets.forget(&secret);
        }
        answer.ok_or(ApiError::Elsewhere)
    }

    /// Whose browsers are asked for, and whether an address may be told that opens one.
    ///
    /// # Errors
    /// Nobody knows who asks, or they may not.
    fn admit(&self, place: &Place<'_>, request: &Request<Body>) -> Result<(Id, bool), ApiError> {
        let mut lines = calls::of(place.meant());
        let does = lines.find(|line| line.method == *request.method());
        let does = does.map_or(Does::Edit, |line| line.does);
        let id = place.account.parse::<Id>().ok();
        let caller = match place.secret {
            // A client that does take its token along may come as often as it likes.
            Some(secret) if !access::presents(request.headers()) => {
                let session = calls::only(calls::BROWSER, place.meant());
                let session = session.filter(|_| does == Does::Connect && upgrades(request));
                let now = self.app.control.now();
                let opens = session
                    .zip(id)
                    .is_some_and(|(session, id)| self.tickets.redeem(secret, id, session, now));
                opens.then_some(None).ok_or(ApiError::Stranger)?
            }
            _ => Some(self.app.caller(request.headers())?),
        };
        let accounts = match self.app.control.browser_front() {
            Some(browsers) => browsers.accounts(),
            None => vec![(account(), ACCOUNT.to_owned())],
        };
        let known = accounts.into_iter().find(|(known, _)| Some(*known) == id);
        let (of, name) = known.ok_or_else(|| place.nowhere())?;
        match caller {
            Some(caller) => Ok((of, may(&caller, does, &name, request)?)),
            None => Ok((of, false)),
        }
    }

    /// The whole body, and its place among the large ones.
    async fn body(
        &self,
        style: Style,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), ApiError> {
        if *method == Method::GET {
            return Ok((Bytes::new(), None));
        }
        let max = match style {
            Style::Bare => BODY_MAX,
            Style::Envelope => PAGE_MAX,
        };
        let too_large = || match style {
            Style::Bare => ApiError::BodyTooLarge(max),
            Style::Envelope => ApiError::PageTooLarge,
        };
        let length = headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > max) {
            return Err(too_large());
        }
        let large = max > BODY_MAX && length.is_none_or(|length| length > BODY_MAX);
        let patience = if large { LARGE_TIMEOUT } else { BODY_TIMEOUT };
        let whole = async {
            let turn = match large {
                // It is never closed.
                true => Arc::clone(&self.large).acquire_owned().await.ok(),
                false => None,
            };
            let body = to_bytes(body, max).await;
            body.map(|body| (body, turn)).map_err(|_| too_large())
        };
        timeout(patience, whole)
            .await
            .unwrap_or(Err(ApiError::BodyTooSlow))
    }
}

fn upgrades(request: &Request<Body>) -> bool {
    request.headers().contains_key(UPGRADE)
}

/// Whether they may connect to browsers.
///
/// # Errors
/// They may not do this.
fn may(
    caller: &Caller,
    does: Does,
    account: &str,
    request: &Request<Body>,
) -> Result<bool, ApiError> {
    let own = caller.accounts.is_empty() || caller.accounts.iter().any(|own| own == account);
    // A page of another site can make a browser send a cookie, but not the word that goes with it.
    let spoken = request.extensions().get::<Unspoken>().is_none();
    let edits = caller.edits(Product::Browsers) && spoken;
    let allowed = match does {
        Does::Read if !upgrades(request) => caller.reads(Product::Browsers),
        Does::Read | Does::Edit | Does::Connect => edits,
    };
    (own && allowed).then_some(edits).ok_or(ApiError::Forbidden)
}

impl fmt::Debug for dyn BrowserFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserFront").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
