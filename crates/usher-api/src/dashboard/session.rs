//! Sessions of people: a token is typed once, and a cookie stands for it afterwards.
//!
//! The cookie holds a random secret. From it come, each by a hash of its own, the name under which
//! the session is kept, the key that its token is sealed with, and the word that a page must send
//! with every change. So memory alone opens nothing, and no page of another site can write:
//! the cookie is not sent across sites, and the word is not known there.
//!
//! A request with a session goes on as one with its token: permissions, limits, the end of a token
//! and the name in the audit log are decided in one place, for programs and people alike.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, digest, rand};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, COOKIE, ORIGIN, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use usher_core::time::Mono;

use super::Dashboard;
use crate::access::{self, Denied};
use crate::envelope::{ApiError, envelope, ok};

/// How long a session lasts, from when the token was typed. A day at work; it is not prolonged.
const LIFE: Duration = Duration::from_secs(8 * 3600);

/// Sessions at once. One more ends the oldest.
const SESSIONS_MAX: usize = 1024;

const NAME: &str = "usher_session";

const CSRF: HeaderName = HeaderName::from_static("x-usher-csrf");

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The longest token that is passed on, sealed.
const SEALED_MAX: usize = 4096;

/// The sessions of people at this node. They end with their process, unless another one follows it.
#[derive(Debug, Default)]
pub struct SignIns(Mutex<HashMap<[u8; 32], SignIn>>);

#[derive(Debug)]
struct SignIn {
    /// The token, sealed with the cookie's secret.
    token: Vec<u8>,
    ends: Mono,
}

/// A request that goes on as one with a token did not say the session's word, as reading need not.
/// To be looked at where a `GET` does more than that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unspoken;

/// What a cookie stands for.
struct Opened {
    token: String,
    csrf: String,
    left: Duration,
}

impl SignIns {
    /// Keeps `token`; what to put into the cookie.
    fn begin(&self, token: &str, now: Mono) -> Option<String> {
        let mut secret = [0; 32];
        rand::fill(&mut secret).ok()?;
        let mut sealed = token.as_bytes().to_vec();
        key(&secret)?
            .seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
            .ok()?;
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.ends > now);
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.ends);
            if let Some(oldest) = oldest.map(|(name, _)| *name) {
                sessions.remove(&oldest);
            }
        }
        let session = SignIn {
            token: sealed,
            ends: now.after(LIFE),
        };
        sessions.insert(part(&secret, "name"), session);
        Some(URL_SAFE_NO_PAD.encode(secret))
    }

    fn open(&self, headers: &HeaderMap, now: Mono) -> Option<Opened> {
        let secret = secret(headers)?;
        let (mut token, ends) = {
            let sessions = self.lock();
            let session = sessions.get(&part(&secret, "name"))?;
            (session.token.clone(), session.ends)
        };
        let left = ends.since(now);
        if left.is_zero() {
            return None;
        }
        let token = key(&secret)?
            .open_in_place(nonce(), Aad::empty(), &mut token)
            .ok()?;
        Some(Opened {
            token: std::str::from_utf8(token).ok()?.to_owned(),
            csrf: URL_SAFE_NO_PAD.encode(part(&secret, "csrf")),
            left,
        })
    }

    fn end(&self, headers: &HeaderMap) {
        if let Some(secret) = secret(headers) {
            self.lock().remove(&part(&secret, "name"));
        }
    }

    /// What the process that follows this one needs to know them: a line each, at most 8 KiB long,
    /// that opens nothing without its cookie.
    #[must_use]
    pub fn bequest(&self, now: Mono) -> Vec<String> {
        let sessions = self.lock();
        let whole = sessions
            .iter()
            .filter(|(_, session)| session.ends > now && session.token.len() <= SEALED_MAX);
        let lines = whole.map(|(name, session)| {
            let [name, token] =
                [&name[..], &session.token].map(|part| URL_SAFE_NO_PAD.encode(part));
            let left = session.ends.since(now).as_millis();
            format!("{name} {token} {left}")
        });
        lines.collect()
    }

    /// Those of the process before this one, as it told of them. A line of another form is passed
    /// over: whoever it was signs in again.
    #[must_use]
    pub fn inherited<'a>(lines: impl IntoIterator<Item = &'a str>, now: Mono) -> SignIns {
        let read = |line: &str| {
            let mut words = line.split(' ');
            let mut bytes = || URL_SAFE_NO_PAD.decode(words.next()?).ok();
            let (name, token) = (bytes()?.try_into().ok()?, bytes()?);
            let left = Duration::from_millis(words.next()?.parse().ok()?);
            let ends = now.after(left.min(LIFE));
            Some((name, SignIn { token, ends }))
        };
        let known = lines.into_iter().filter_map(read).take(SESSIONS_MAX);
        SignIns(Mutex::new(known.collect()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], SignIn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the values that a secret stands for; none tells another.
fn part(secret: &[u8; 32], what: &str) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"usher session ");
    context.update(what.as_bytes());
    context.update(secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

fn key(secret: &[u8; 32]) -> Option<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, &part(secret, "key")).ok()?;
    Some(LessSafeKey::new(key))
}

/// Always the same: each key seals one token and is never used to seal again.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The secret in the cookie of a request.
fn secret(headers: &HeaderMap) -> Option<[u8; 32]> {
    let lines = headers.get_all(COOKIE).iter();
    let mut pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let value = pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == NAME).then_some(value)
    })?;
    URL_SAFE_NO_PAD.decode(value).ok()?.try_into().ok()
}

/// Lets a request with a session go on as one with its token. A change needs the session's word.
pub(crate) async fn with_session(
    State(dashboard): State<Dashboard>,
    mut request: Request,
    next: Next,
) -> Response {
    // A program that says who it is means that, whatever cookies it carries.
    if access::presents(request.headers()) {
        return next.run(request).await;
    }
    let opened = dashboard
        .sign_ins
        .open(request.headers(), dashboard.control.now());
    if let Some(opened) = opened {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let word = request.headers().get(CSRF).map(HeaderValue::as_bytes);
        let same =
            |word| constant_time::verify_slices_are_equal(word, opened.csrf.as_bytes()).is_ok();
        if !reads && !word.is_some_and(same) {
            return ApiError::Forbidden.into_response();
        }
        if let Some(bearer) = bearer(&opened.token) {
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        if reads {
            request.extensions_mut().insert(Unspoken);
        }
    }
    next.run(request).await
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    bearer.set_sensitive(true);
    Some(bearer)
}

pub(super) fn routes<S: Clone + Send + Sync + 'static>(dashboard: &Dashboard) -> Router<S> {
    Router::new()
        .route("/session", post(sign_in).get(show).delete(sign_out))
        .with_state(dashboard.clone())
}

/// `{"token"}` becomes a session.
async fn sign_in(
    State(dashboard): State<Dashboard>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    // Another site must not sign somebody in here, either.
    let elsewhere = |site: &HeaderValue| site != "same-origin" && site != "none";
    if headers.get(SITE).is_some_and(elsewhere) {
        return Err(ApiError::Forbidden);
    }
    let body: Value =
        serde_json::from_slice(&body).map_err(|error| ApiError::Malformed(error.to_string()))?;
    let token = body.get("token").and_then(Value::as_str);
    let token = token.map(str::trim).filter(|token| !token.is_empty());
    let Some((token, bearer)) = token.and_then(|token| Some((token, bearer(token)?))) else {
        return Err(ApiError::wrong("/token", "token is required"));
    };
    let headers_of_token = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
    let now = dashboard.control.now();
    let who = who(&dashboard, &headers_of_token)?;
    let Some(cookie) = dashboard.sign_ins.begin(token, now) else {
        tracing::error!("a session cannot be begun: no random numbers");
        return Err(ApiError::Forbidden);
    };
    let secure = headers
        .get(ORIGIN)
        .is_some_and(|origin| origin.as_bytes().starts_with(b"https:"));
    let secure = if secure { "; Secure" } else { "" };
    let seconds = LIFE.as_secs();
    let line =
        format!("{NAME}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    let sent = HeaderMap::from_iter([(
        COOKIE,
        HeaderValue::try_from(format!("{NAME}={cookie}")).map_err(|_| ApiError::Forbidden)?,
    )]);
    let opened = dashboard.sign_ins.open(&sent, now);
    let opened = opened.ok_or(ApiError::Forbidden)?;
    let mut shown = answer(&told(&opened, who));
    if let Ok(line) = HeaderValue::try_from(line) {
        shown.headers_mut().insert(SET_COOKIE, line);
    }
    Ok(shown)
}

/// Who is signed in.
async fn show(
    State(dashboard): State<Dashboard>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let now = dashboard.control.now();
    let opened = dashboard.sign_ins.open(&headers, now);
    let opened = opened.ok_or(ApiError::Unauthenticated)?;
    let bearer = bearer(&opened.token).ok_or(ApiError::Unauthenticated)?;
    let token = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
    Ok(answer(&told(&opened, who(&dashboard, &token)?)))
}

/// Ends the session. Who has none is signed out already.
async fn sign_out(State(dashboard): State<Dashboard>, headers: HeaderMap) -> Response {
    dashboard.sign_ins.end(&headers);
    let mut shown = answer(&json!({}));
    let gone = "usher_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0";
    shown
        .headers_mut()
        .insert(SET_COOKIE, HeaderValue::from_static(gone));
    shown
}

fn answer(result: &Value) -> Response {
    ok(envelope(&result.to_string(), &[], None))
}

/// Name and permissions of the token.
fn who(dashboard: &Dashboard, headers: &HeaderMap) -> Result<(String, Vec<String>), Denied> {
    let state = dashboard.control.desired().state();
    let caller = dashboard.control.access().caller(headers, &state)?;
    let permissions = caller.permissions.iter().map(ToString::to_string).collect();
    Ok((caller.name, permissions))
}

fn told(opened: &Opened, (name, permissions): (String, Vec<String>)) -> Value {
    json!({
        "csrf": opened.csrf,
        "name": name,
        "permissions": permissions,
        "expires_in": opened.left.as_secs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(value: &str) -> HeaderMap {
        let line = format!("a=b; {NAME}={value}; c=d");
        HeaderMap::from_iter([(COOKIE, line.parse().expect("valid"))])
    }

    #[test]
    fn a_session_opens_with_its_cookie_until_it_ends() {
        let sessions = SignIns::default();
        let begun = Mono::ZERO;
        let value = sessions.begin("opensesame", begun).expect("random");
        let opened = sessions.open(&cookie(&value), begun).expect("open");
        assert_eq!(opened.token, "opensesame");
        assert_eq!(opened.left, LIFE);
        let last = begun.after(LIFE - Duration::from_secs(1));
        assert!(sessions.open(&cookie(&value), last).is_some());
        assert!(sessions.open(&cookie(&value), begun.after(LIFE)).is_none());
        sessions.end(&cookie(&value));
        assert!(sessions.open(&cookie(&value), begun).is_none());
    }

    #[test]
    fn the_next_process_knows_them_for_as_long_as_this_one_would() {
        let before = SignIns::default();
        let value = before.begin("opensesame", Mono::ZERO).expect("random");
        let hour = Duration::from_secs(3600);
        let lines = before.bequest(Mono::ZERO.after(hour));
        let told = lines.iter().map(String::as_str);
        let after = SignIns::inherited(told.chain(["", "a b c", "of another form"]), Mono::ZERO);
        let opened = after.open(&cookie(&value), Mono::ZERO).expect("open");
        assert_eq!(
            (opened.token.as_str(), opened.left),
            ("opensesame", LIFE - hour)
        );
        assert_eq!(after.lock().len(), 1);
        assert!(before.bequest(Mono::ZERO.after(LIFE)).is_empty());
    }

    #[test]
    fn what_is_passed_on_is_bounded() {
        let before = SignIns::default();
        before
            .begin(&"x".repeat(SEALED_MAX), Mono::ZERO)
            .expect("random");
        assert!(before.bequest(Mono::ZERO).is_empty());
        let name = URL_SAFE_NO_PAD.encode([7; 32]);
        let lasting = format!("{name} AAAA {}", u64::MAX);
        let after = SignIns::inherited([lasting.as_str()], Mono::ZERO);
        assert!(after.bequest(Mono::ZERO.after(LIFE)).is_empty());
    }

    #[test]
    fn what_is_no_cookie_of_ours_opens_nothing() {
        let sessions = SignIns::default();
        let value = sessions.begin("opensesame", Mono::ZERO).expect("random");
        let other = URL_SAFE_NO_PAD.encode([7; 32]);
        for value in ["", "a", "===", &value[1..], &other] {
            assert!(sessions.open(&cookie(value), Mono::ZERO).is_none());
        }
        assert!(sessions.open(&HeaderMap::new(), Mono::ZERO).is_none());
    }

    #[test]
    fn memory_alone_does_not_show_the_token() {
        let sessions = SignIns::default();
        sessions.begin("opensesame", Mono::ZERO).expect("random");
        let kept = sessions.lock();
        let token = &kept.values().next().expect("kept").token;
        assert!(!token.windows(4).any(|part| part == b"open"));
    }

    #[test]
    fn one_more_than_there_is_room_for_ends_the_oldest() {
        let sessions = SignIns::default();
        let first = sessions.begin("first", Mono::ZERO).expect("random");
        let later = Mono::ZERO.after(Duration::from_secs(1));
        for _ in 0..SESSIONS_MAX {
            sessions.begin("more", later).expect("random");
        }
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
        assert!(sessions.open(&cookie(&first), later).is_none());
    }
}
