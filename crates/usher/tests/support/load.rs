//! Clients that go on asking until they are told to stop, and take every failure for one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use h2::client::SendRequest;
use http::Request;

use super::config::HOST;
use super::eventually;
use super::http2;
use super::tls::Authority;
use super::wire::Wire;

/// What they ask for.
const PATH: &str = "/small";

/// What clients have in common.
struct Count {
    answered: AtomicUsize,
    enough: AtomicBool,
}

impl Count {
    fn goes_on(&self) -> bool {
        !self.enough.load(Ordering::SeqCst)
    }

    fn one(&self) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }
}

/// A thread with a client of one kind.
pub struct Client {
    name: String,
    count: Arc<Count>,
    thread: JoinHandle<()>,
}

impl Client {
    fn start(name: &str, ask: impl FnOnce(&Count) + Send + 'static) -> Self {
        let count = Arc::new(Count {
            answered: AtomicUsize::new(0),
            enough: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&count);
        let thread = thread::Builder::new().name(name.to_owned());
        Self {
            name: name.to_owned(),
            count,
            thread: thread.spawn(move || ask(&of_thread)).unwrap(),
        }
    }

    /// HTTP/1.1, a connection for each request.
    pub fn fresh(name: &str, connect: impl Fn() -> Wire + Send + 'static) -> Self {
        Self::start(name, move |count| {
            while count.goes_on() {
                let mut wire = connect();
                let answer = wire.exchange(format!(
                    "GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
                ));
                assert_eq!(answer.status(), 200, "{answer:?}");
                wire.expect_end();
                count.one();
            }
        })
    }

    /// HTTP/1.1, a connection for as long as it is kept.
    pub fn kept(name: &str, connect: impl Fn() -> Wire + Send + 'static) -> Self {
        Self::start(name, move |count| {
            while count.goes_on() {
                let mut wire = connect();
                loop {
                    let answer = wire.get(HOST, PATH);
                    assert_eq!(answer.status(), 200, "{answer:?}");
                    count.one();
                    if answer.names("connection", "close") {
                        wire.expect_end();
                        break;
                    }
                    if !count.goes_on() {
                        return;
                    }
                }
            }
        })
    }

    /// HTTP/2, on a connection until the server says that it goes away. With an authority: over TLS.
    pub fn streams(name: &str, authority: Option<Arc<Authority>>, address: SocketAddr) -> Self {
        Self::start(name, move |count| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                while count.goes_on() {
                    let client = match &authority {
                        Some(authority) => http2::Client::secure(authority, address, HOST).await,
                        None => http2::Client::plain(address).await,
                    };
                    let scheme = if authority.is_some() { "https" } else { "http" };
                    let url = format!("{scheme}://{HOST}{PATH}");
                    // Several at once, each on streams of its own.
                    let one = || until_away(&client.0, &url, count);
                    tokio::join!(one(), one(), one(), one());
                }
            });
        })
    }

    /// What kind it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many requests were answered so far.
    pub fn answered(&self) -> usize {
        self.count.answered.load(Ordering::SeqCst)
    }

    /// Waits until so many more requests are answered.
    pub fn wait_answers(&self, more: usize) {
        let wanted = self.answered() + more;
        eventually(&format!("{more} answers for {}", self.name), || {
            assert!(!self.thread.is_finished(), "{} has failed", self.name);
            (self.answered() >= wanted).then_some(())
        });
    }

    /// Stops it, and tells how many requests were answered; none may have failed.
    pub fn stop(self) -> usize {
        self.count.enough.store(true, Ordering::SeqCst);
        let ended = self.thread.join();
        assert!(ended.is_ok(), "{} has failed", self.name);
        self.count.answered.load(Ordering::SeqCst)
    }
}

/// Asks until the server goes away; a stream that was opened has to be answered all the same.
async fn until_away(sender: &SendRequest<bytes::Bytes>, url: &str, count: &Count) {
    while count.goes_on() {
        let Ok(mut ready) = sender.clone().ready().await else {
            return;
        };
        let request = Request::get(url).body(()).unwrap();
        let Ok((response, _)) = ready.send_request(request, true) else {
            return;
        };
        let mut response = response
            .await
            .expect("a stream that was opened is answered");
        assert_eq!(response.status(), 200);
        let mut body = 0;
        while let Some(piece) = response.body_mut().data().await {
            let piece = piece.expect("the whole body");
            body += piece.len();
            let flow = response.body_mut().flow_control();
            flow.release_capacity(piece.len()).unwrap();
        }
        assert!(body > 0);
        count.one();
    }
}
