//! The listener for Workers.
//!
//! A Worker's runtime sends requests with a made-up host to whatever address it was given, so the
//! path alone says what is meant, and a secret that the runtime adds says whose it is.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::answer::{Fault, Said, Style, empty};
use super::{Account, Caller, Front, uuid};
use crate::chance;

/// Connections that are not WebSockets yet; further ones wait in the listen queue.
const CONNECTIONS_MAX: usize = 4_096;
/// For a whole request head.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What addresses begin with that lead back through a binding. Clients put any host there.
const BASE: &str = "ws://fake.host/v1";

/// The binding of all accounts.
pub struct Binding {
    front: Arc<Front>,
    accounts: ArcSwap<Vec<Arc<Account>>>,
}

impl Binding {
    /// For these accounts.
    #[must_use]
    pub fn new(front: Arc<Front>, accounts: Vec<Account>) -> Arc<Binding> {
        let binding = Binding {
            front,
            accounts: ArcSwap::default(),
        };
        binding.accounts(accounts);
        Arc::new(binding)
    }

    /// For these accounts from now on.
    pub fn accounts(&self, accounts: Vec<Account>) {
        let accounts = accounts.into_iter().map(Arc::new).collect();
        self.accounts.store(Arc::new(accounts));
    }

    /// Serves `listener` until `stop`, and then what is under way to its end, but for WebSockets,
    /// which go on by themselves. Whoever drops this cuts the rest.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (ends, ended) = watch::channel(());
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = async {
                let permit = Arc::clone(&room).acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (binding, ended) = (Arc::clone(&self), ended.clone());
                    connections.spawn(async move {
                        binding.converse(stream, ended).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the browser binding cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((listener, ends));
        while connections.join_next().await.is_some() {}
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, mut ended: watch::Receiver<()>) {
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| {
            let binding = Arc::clone(&self);
            async move {
                let mut response = binding.answer(request).await;
                if let Ok(id) = HeaderValue::try_from(uuid(chance::name())) {
                    response.headers_mut().insert("usher-request-id", id);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut served = pin!(served);
        let served = tokio::select! {
            served = &mut served => served,
            // Nothing is ever said but that it ends.
            _ = ended.changed() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection to the browser binding ended early");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Said> {
        let Some(account) = self.account(request.headers()) else {
            let text = "Authentication failed";
            return Fault::new(StatusCode::UNAUTHORIZED, text).written(Style::Binding);
        };
        let path = request.uri().path().to_owned();
        let Some(path) = path.strip_prefix("/v1/") else {
            return empty(StatusCode::NOT_FOUND);
        };
        let caller = Caller {
            account,
            style: Style::Binding,
            base: BASE.into(),
            once: None,
        };
        self.front.answer(caller, path, request).await
    }

    /// Whose secret is shown.
    fn account(&self, headers: &HeaderMap) -> Option<Arc<Account>> {
        let shown = shown(headers)?;
        let accounts = self.accounts.load();
        // All are compared, so that how long it takes tells nothing.
        let mut found = None;
        for account in accounts.iter() {
            let secret = account.secret.as_deref().unwrap_or_default().as_bytes();
            if !secret.is_empty() && is_same(secret, &shown) {
                found = Some(Arc::clone(account));
            }
        }
        found
    }
}

/// The secret in a request: in a header of its own, as a token, or as the password of a program
/// that was given all in one address.
fn shown(headers: &HeaderMap) -> Option<Cow<'_, [u8]>> {
    if let Some(value) = headers.get("usher-binding") {
        return Some(value.as_bytes().into());
    }
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let space = value.iter().position(|&byte| byte == b' ')?;
    let (scheme, shown) = (&value[..space], value[space + 1..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(shown.into());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = STANDARD.decode(shown).ok()?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some(pair[colon + 1..].to_vec().into())
}

/// Takes as long whether they are near or far.
fn is_same(secret: &[u8], shown: &[u8]) -> bool {
    let differs = |(a, b): (&u8, &u8)| a ^ b;
    let fold = |all: u8, one: u8| all | one;
    secret.len() == shown.len() && secret.iter().zip(shown).map(differs).fold(0, fold) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_in_one_of_three_ways() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a value"));
            shown(&headers).map(Cow::into_owned)
        };
        for (name, value) in [
            ("usher-binding", "a:b c"),
            ("authorization", "Bearer a:b c"),
            ("authorization", "bearer  a:b c"),
            ("authorization", "Basic cHJvZ3JhbTphOmIgYw=="),
        ] {
            assert_eq!(of(name, value).as_deref(), Some(&b"a:b c"[..]), "{value}");
        }
        for value in ["", "Bearer", "a:b c", "Digest a:b", "Basic YQ==", "Basic !"] {
            assert_eq!(of("authorization", value), None, "{value}");
        }
    }
}
