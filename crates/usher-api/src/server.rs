//! The listener for programs and people: REST under `/client/v4`, metrics, health of the process.
//!
//! It runs beside the traffic and shares nothing with it but what [`Control`] shows.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::{StatusCode, Uri};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use usher_core::affinity::Pins;
use usher_core::catalog::{Address, EndpointIx};
use usher_core::id::Id;
use usher_core::probe::{Probe, ProbeResult};
use usher_core::region::Place;
use usher_core::request::{self, Headers};
use usher_core::snapshot::{Counts, Snapshot};
use usher_core::time::{Mono, Wall};
use usher_rooms::route::Ambiguous;
use usher_store::{Revision, Stamp};

use crate::access::Access;
use crate::browsers::{self, BrowserFront, Surface};
use crate::dashboard::{self, Dashboard};
use crate::envelope::ApiError;
use crate::lengths::Lengths;
use crate::patient::Patient;
use crate::rest::{App, Desired, Letter, show_draft};
use crate::wire::browsers::BrowserPool;
use crate::wire::explain::{RoomSays, Surroundings, wall};
use crate::wire::rooms::RoomStatus;
use crate::wire::state::state;

pub use crate::dashboard::{Answers, Figures, SignIns};

/// The largest body of a request.
pub(crate) const BODY_MAX: usize = 1024 * 1024;

/// Connections at once; further ones wait in the listen queue.
const CONNECTIONS_MAX: usize = 512;

/// For a whole request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// For a whole request body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What the API may know of the node it speaks for.
pub trait Control: Send + Sync + 'static {
    /// What is declared, and where everything else is kept.
    fn desired(&self) -> Arc<Desired>;
    /// What traffic is decided with right now, and the counts that go with it.
    fn view(&self) -> View;
    /// Who may call.
    fn access(&self) -> Arc<Access>;
    /// Version of the binary.
    fn version(&self) -> &str;
    /// Since the process started.
    fn uptime(&self) -> Duration;
    /// Whether `ready` was said and no stop has begun.
    fn ready(&self) -> bool;
    /// Whether a stop has begun: each connection then ends with its next answer, so that its client
    /// finds whoever answers from now on.
    fn stopping(&self) -> bool;
    /// Now, on the clock of the node's engine.
    fn now(&self) -> Mono;
    /// 64 random bits.
    fn draw(&self) -> u64;
    /// Scheme, host and port under which this API is reached: what absolute URLs begin with.
    fn public_origin(&self) -> String;
    /// All metrics in the text format of Prometheus.
    fn metrics(&self) -> String;
    /// The last results of probes at an endpoint of `pool`, newest first.
    fn probed(&self, pool: Id, address: &Address, port: Option<u16>) -> Vec<Probed>;
    /// Carries these attempts out, a bounded number at once: each result comes with the place of its
    /// attempt. What is wanted no more ends with the receiver.
    fn attempt(&self, wanted: Vec<Attempt>) -> mpsc::Receiver<(usize, ProbeResult)>;
    /// Posts a message to a destination once. The error is for its operator.
    fn post(&self, letter: Letter) -> Posted;
    /// How the last messages to a destination went, as far as this process knows.
    fn delivered(&self, destination: Id) -> Delivered;
    /// Whether notifications may go to private addresses.
    fn posts_privately(&self) -> bool;
    /// What is true of a waiting room right now. `None`: nobody has come to it yet.
    fn room(&self, room: Id) -> Option<RoomStatus>;
    /// How browsers stand in each region; a second old at most. Nothing where there are none.
    fn browsers(&self) -> Arc<Vec<BrowserPool>>;
    /// What the front has counted since the process started.
    fn figures(&self) -> Figures;
    /// Waits, a bounded time, until what the store kept at this revision decides on this node.
    fn in_force(&self, revision: Revision) -> InForce;
    /// The people who are signed in to the dashboard.
    fn sign_ins(&self) -> Arc<SignIns>;
    /// What answers for browsers. `None`: none run here.
    fn browser_front(&self) -> Option<Arc<dyn BrowserFront>>;
}

/// What became of a message.
pub type Posted = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Whether it does.
pub type InForce = Pin<Box<dyn Future<Output = bool> + Send>>;

/// How the last messages to a destination went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// When one arrived last.
    pub success: Option<Stamp>,
    /// When one did not arrive last.
    pub failure: Option<Stamp>,
}

/// A probe that is carried out once.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// What to do.
    pub probe: Arc<Probe>,
    /// Further attempts, each after one that timed out. Range 0..=5.
    pub retries: u32,
}

/// One attempt of a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probed {
    /// When it ended.
    pub at: Wall,
    /// How.
    pub result: ProbeResult,
}

/// A snapshot and what is known beside it.
pub struct View {
    /// What traffic is decided with.
    pub snapshot: Arc<Snapshot>,
    /// Requests under way at its endpoints, and what is known of visitors.
    pub around: Box<dyn Surroundings + Send>,
}

impl Counts for View {
    fn open_requests(&self, endpoint: EndpointIx) -> u32 {
        self.around.open_requests(endpoint)
    }

    fn open_connections(&self, endpoint: EndpointIx) -> u32 {
        self.around.open_connections(endpoint)
    }
}

impl Surroundings for View {
    fn place(&self, client: IpAddr) -> Option<Place> {
        self.around.place(client)
    }

    fn locates(&self) -> bool {
        self.around.locates()
    }

    fn sessions(&self) -> Arc<HashMap<Id, u64>> {
        self.around.sessions()
    }

    fn pins<'a>(&'a self, headers: &'a dyn Headers) -> Box<dyn Pins + 'a> {
        self.around.pins(headers)
    }

    fn room(&self, request: &request::Request<'_>) -> Result<Option<RoomSays>, Ambiguous> {
        self.around.room(request)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("revision", &self.snapshot.revision())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for dyn Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

type Shared = Arc<dyn Control>;

/// Answers on `listener` until `stop` is done.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    control: Shared,
    stop: impl Future<Output = ()>,
) {
    accept(listener, tls, router(control), CONNECTIONS_MAX, stop).await;
}

/// Answers `places` connections at once.
async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    places: usize,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(places));
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = &mut stop => return,
            accepted = accepted => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely; trying again at once would spin.
                tracing::warn!(%error, "the API cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // What a WebSocket carries are small messages that somebody waits for.
        let _ = stream.set_nodelay(true);
        let (app, tls) = (app.clone(), tls.clone());
        tokio::spawn(async move {
            let _place = place;
            let Some(tls) = tls else {
                return converse(stream, app).await;
            };
            match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => converse(stream, app).await,
                Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client of the API"),
                Err(_) => tracing::debug!("a client of the API was too slow for TLS"),
            }
        });
    }
}

/// Answers one connection until it ends.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, app: Router) {
    let switched = Arc::new(AtomicBool::new(false));
    let (stream, refused) = Lengths::new(Patient::new(stream, Arc::clone(&switched)));
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |request| {
        let is_refused = refused.next();
        let (app, refused) = (app.clone(), Arc::clone(&refused));
        let switched = Arc::clone(&switched);
        async move {
            if is_refused {
                return Ok(closing(ApiError::TwoLengths.into_response()));
            }
            let answer = app.call(request).await;
            if let Ok(answer) = &answer
                && answer.status() == StatusCode::SWITCHING_PROTOCOLS
            {
                // Before its first byte is written, so that no byte after it is taken for HTTP.
                switched.store(true, Ordering::Relaxed);
                refused.no_more();
            }
            answer
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        // What becomes a WebSocket leaves its place here to others: browsers bound how many there are.
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the API ended early");
    }
}

fn router(control: Shared) -> Router {
    let app = Arc::new(App::new(Arc::clone(&control)));
    let drafts = Arc::clone(&app);
    let draft = get(|Path(id): Path<String>, uri: Uri| async move {
        // A page may have 4 MiB.
        apart(move || show_draft(&drafts, &id, uri.query().unwrap_or_default())).await
    });
    let browsers = browser_calls(&app);
    let v4 = any(move |request| Arc::clone(&app).answer(request));
    let dashboard = Dashboard::new(&control);
    let session = middleware::from_fn_with_state(dashboard.clone(), dashboard::with_session);
    let v4 = Router::new()
        .route("/client/v4/{*path}", v4)
        .merge(dashboard.stream())
        .layer(session.clone());
    Router::new()
        .merge(v4)
        .merge(dashboard.pages())
        .route("/preview/{id}", draft)
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(no_route)
        .method_not_allowed_fallback(|| async { ApiError::Method("GET".to_owned()) })
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn(within_time))
        // These know how long their bodies and answers may take.
        .merge(browsers.layer(session))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&control),
            last_answer,
        ))
        .with_state(control)
}

/// Both prefixes of browsers.
fn browser_calls(app: &Arc<App>) -> Router<Shared> {
    let surface = Arc::new(Surface::new(Arc::clone(app)));
    browsers::PREFIXES
        .into_iter()
        .fold(Router::new(), |router, prefix| {
            let surface = Arc::clone(&surface);
            router.route(
                &format!("/client/v4/accounts/{{account_id}}/{prefix}/{{*path}}"),
                any(move |request| Arc::clone(&surface).answer(request)),
            )
        })
}

/// A body that trickles ends the request.
async fn within_time(request: Request<Body>, next: Next) -> Result<Response, Infallible> {
    let answer = tokio::time::timeout(BODY_TIMEOUT, next.run(request)).await;
    Ok(answer.unwrap_or_else(|_| ApiError::BodyTooSlow.into_response()))
}

/// The last answer on its connection.
fn closing(mut answer: Response) -> Response {
    let close = http::HeaderValue::from_static("close");
    answer.headers_mut().insert(http::header::CONNECTION, close);
    answer
}

/// Closes a connection together with its answer once a stop has begun, and after a chunked body,
/// whose end is not followed.
async fn last_answer(
    State(control): State<Shared>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let chunked = request
        .headers()
        .contains_key(http::header::TRANSFER_ENCODING);
    let answer = next.run(request).await;
    let switches = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if (chunked || control.stopping()) && !switches {
        closing(answer)
    } else {
        answer
    }
}

/// The state of the node as scripts and the dashboard read it.
pub(crate) fn state_of(control: &dyn Control, view: &View) -> serde_json::Value {
    let (version, uptime) = (control.version(), control.uptime());
    let room = |id| control.room(id);
    let browsers = control.browsers();
    let of = (version, uptime);
    state(&view.snapshot, view, &room, &browsers, of, wall())
}

async fn no_route(uri: Uri) -> ApiError {
    ApiError::NoRoute(uri.path().to_owned())
}

/// Whether to send this node work. What is wrong with browsers does not take traffic from the rest
/// of it: it is a line of the answer, and fails whoever asks for that part.
async fn readyz(State(control): State<Shared>, uri: Uri) -> (StatusCode, String) {
    let browsers = control.browsers();
    let troubles: Vec<String> = (browsers.iter())
        .filter_map(|pool| Some(format!("browsers {}: {}\n", pool.region, pool.trouble()?)))
        .collect();
    let part = uri.query().and_then(|query| query.strip_prefix("part="));
    let ready = match part {
        None => control.ready(),
        // One region that works is enough to get a browser.
        Some("browsers") => control.ready() && troubles.len() < browsers.len(),
        Some(part) => {
            let text = format!("part {part:?}: browsers is the only one\n");
            return (StatusCode::BAD_REQUEST, text);
        }
    };
    let (status, word) = match ready {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    };
    let mut text = word.to_owned();
    if part.is_some() && browsers.is_empty() {
        text.push_str("browsers: this node runs none\n");
    }
    text.extend(troubles);
    (status, text)
}

async fn metrics(State(control): State<Shared>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = apart(move || control.metrics()).await;
    ([(http::header::CONTENT_TYPE, kind)], text)
}

/// Does what may take a while beside the tasks of this thread, among which are the probes.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

#[cfg(test)]
mod tests;
