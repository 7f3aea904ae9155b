//! One endpoint of the demonstration: says who it is, and fails its monitor when told to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};

/// An endpoint that answers on a thread of its own until the process ends.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
}

#[derive(Debug)]
struct Shown {
    name: &'static str,
    colour: &'static str,
    fails: AtomicBool,
    served: AtomicU64,
}

impl Endpoint {
    /// Starts one on a free port of loopback.
    pub(crate) fn start(name: &'static str, colour: &'static str) -> io::Result<Endpoint> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shown = Arc::new(Shown {
            name,
            colour,
            fails: AtomicBool::new(false),
            served: AtomicU64::new(0),
        });
        let app = Router::new()
            .route("/healthz", get(health))
            .route("/fail", post(fail))
            .route("/recover", post(recover))
            .fallback(serve)
            .with_state(shown);
        thread::Builder::new()
            .name(format!("demo-{name}"))
            .spawn(move || {
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    axum::serve(listener, app).await
                })
            })?;
        Ok(Endpoint { address })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn health(State(shown): State<Arc<Shown>>) -> (StatusCode, &'static str) {
    if shown.fails.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "failing\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn fail(State(shown): State<Arc<Shown>>) -> String {
    shown.fails.store(true, Ordering::Relaxed);
    format!("{} now fails its monitor\n", shown.name)
}

async fn recover(State(shown): State<Arc<Shown>>) -> String {
    shown.fails.store(false, Ordering::Relaxed);
    format!("{} passes its monitor again\n", shown.name)
}

async fn serve(State(shown): State<Arc<Shown>>, uri: Uri, headers: HeaderMap) -> Response {
    let served = shown.served.fetch_add(1, Ordering::Relaxed) + 1;
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let (name, colour) = (shown.name, shown.colour);
    if !accept.is_some_and(|accept| accept.contains("text/html")) {
        return format!("{name} served {} (its request {served})\n", uri.path()).into_response();
    }
    Html(format!(
        r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name}</title>
<style>
body {{ margin: 0; min-height: 100vh; display: grid; place-content: center; text-align: center;
  font: 1.1rem/1.5 system-ui, sans-serif; background: {colour}; color: #fff; }}
h1 {{ font-size: 4rem; margin: 0; }}
a {{ color: inherit; }}
</style>
<main><h1>{name}</h1><p>served this, its request number {served}.</p>
<p><a href="">Ask again</a>: two of three go to blue, one to green.</p></main>
</html>
"#
    ))
    .into_response()
}
