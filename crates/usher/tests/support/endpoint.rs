//! Endpoints that follow a script: what they answer, how they break, and what reached them.

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use super::message::Message;
use super::wire::Wire;
use super::{PATIENCE, eventually};

/// The path that monitors of the kit probe. Requests for it are kept apart from the others.
pub const PROBE_PATH: &str = "/healthz";

/// What a script gets: one accepted connection.
pub struct Visit {
    pub wire: Wire,
    /// The how manieth connection it is, from 0.
    pub nth: usize,
    shared: Arc<Shared>,
}

impl Visit {
    /// Reads the next request and records it. None when the connection ended instead.
    pub fn request(&mut self) -> Option<Message> {
        let message = self.wire.request()?;
        self.record(&message);
        Some(message)
    }

    /// Reads the head of the next request and records it; the body stays on the wire.
    pub fn request_head(&mut self) -> Option<Message> {
        let message = self.wire.request_head()?;
        self.record(&message);
        Some(message)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.wire.try_send(bytes); // the other side may have gone: its test says so
    }

    /// The socket itself, for a script that speaks something else on it.
    pub fn take_socket(&self) -> TcpStream {
        self.wire.socket()
    }

    /// Cuts the connection, as a crashed machine does, and ends its endpoint's part in it.
    pub fn reset(&mut self) {
        self.wire.cut();
    }

    fn record(&self, message: &Message) {
        let _ = self.shared.arrivals.send(message.clone()); // after the test's end nobody listens
    }
}

struct Shared {
    arrivals: Sender<Message>,
    connections: AtomicUsize,
    probes: AtomicUsize,
    healthy: AtomicBool,
    stopped: AtomicBool,
    /// A second handle on every connection, so that the end of the endpoint is the end of them.
    sockets: Mutex<Vec<TcpStream>>,
}

pub struct Endpoint {
    address: SocketAddr,
    arrivals: Mutex<Receiver<Message>>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Every connection is served by `script`, each on its own thread.
    pub fn scripted(script: impl Fn(&mut Visit) + Send + Sync + 'static) -> Self {
        Self::on((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// The same on a given address: an endpoint that comes back.
    pub fn on(address: SocketAddr, script: impl Fn(&mut Visit) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (arrivals, arrived) = mpsc::channel();
        let shared = Arc::new(Shared {
            arrivals,
            connections: AtomicUsize::new(0),
            probes: AtomicUsize::new(0),
            healthy: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
            sockets: Mutex::new(Vec::new()),
        });
        let of_acceptor = Arc::clone(&shared);
        let script = Arc::new(script);
        let acceptor = thread::spawn(move || {
            for socket in listener.incoming() {
                if of_acceptor.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(socket) = socket else { continue };
                of_acceptor
                    .sockets
                    .lock()
                    .unwrap()
                    .push(socket.try_clone().unwrap());
                let nth = of_acceptor.connections.fetch_add(1, Ordering::SeqCst);
                let mut visit = Visit {
                    wire: Wire::over(socket).patient(),
                    nth,
                    shared: Arc::clone(&of_acceptor),
                };
                let script = Arc::clone(&script);
                thread::spawn(move || {
                    script(&mut visit);
                    // Others hold handles on the socket, so its end must be said.
                    let _ = visit.take_socket().shutdown(Shutdown::Both);
                });
            }
        });
        Self {
            address,
            arrivals: Mutex::new(arrived),
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Every request, on every connection, gets these bytes. The connection stays open.
    pub fn answering(answer: impl AsRef<[u8]>) -> Self {
        let answer = answer.as_ref().to_vec();
        Self::scripted(move |visit| {
            while visit.request().is_some() {
                visit.send(&answer);
            }
        })
    }

    /// Answers 200 with its name; a probe gets 200 or 503 as [`Endpoint::set_healthy`] says.
    pub fn named(name: &str) -> Self {
        Self::named_on((Ipv4Addr::LOCALHOST, 0).into(), name)
    }

    pub fn named_on(address: SocketAddr, name: &str) -> Self {
        let answer = ok(name);
        Self::on(address, move |visit| {
            while let Some(request) = visit.wire.request() {
                if request.target() != PROBE_PATH {
                    visit.record(&request);
                    visit.send(&answer);
                    continue;
                }
                visit.shared.probes.fetch_add(1, Ordering::SeqCst);
                if visit.shared.healthy.load(Ordering::SeqCst) {
                    visit.send(ok("healthy"));
                } else {
                    visit.send("HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n");
                }
            }
        })
    }

    /// Takes connections into the kernel's queue and never answers one.
    pub fn silent() -> Self {
        Self::scripted(|visit| while visit.request().is_some() {})
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// This endpoint as an origin of a pool.
    pub fn origin(&self, name: &str) -> Value {
        json!({"name": name, "address": self.address.ip().to_string(), "port": self.address.port()})
    }

    pub fn set_healthy(&self, healthy: bool) {
        self.shared.healthy.store(healthy, Ordering::SeqCst);
    }

    /// How many probes came so far.
    pub fn probes(&self) -> usize {
        self.shared.probes.load(Ordering::SeqCst)
    }

    /// Waits until `count` more probes have come.
    pub fn wait_probes(&self, count: usize) {
        let wanted = self.probes() + count;
        eventually("another probe", || (self.probes() >= wanted).then_some(()));
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The next request that was not a probe.
    pub fn next(&self) -> Message {
        let arrivals = self.arrivals.lock().unwrap();
        arrivals
            .recv_timeout(PATIENCE)
            .expect("no request reached the endpoint")
    }

    /// The requests that came and were not yet taken. Asked after the client has its answer.
    pub fn arrived(&self) -> Vec<Message> {
        self.arrivals.lock().unwrap().try_iter().collect()
    }
}

impl Drop for Endpoint {
    /// The end of a process: nobody listens, and every connection is gone.
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the acceptor, which then ends
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for socket in self.shared.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both); // most have ended by themselves
        }
    }
}
/// A plain answer with a body.
pub fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An address that refuses: it was free a moment ago and nobody listens on it.
///
/// Another loopback address than the tests connect from, so that no connection of theirs takes
/// the port meanwhile.
pub fn refusing() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap();
    listener.local_addr().unwrap()
}

/// An address as an origin of a pool.
pub fn origin_at(name: &str, address: SocketAddr) -> Value {
    json!({"name": name, "address": address.ip().to_string(), "port": address.port()})
}

/// An address at which connections are neither taken nor refused: its queue is full.
pub struct Blackhole {
    address: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

impl Blackhole {
    pub fn new() -> Self {
        use socket2::{Domain, Socket, Type};
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener
            .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
            .unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        // A queue of length 0 holds one or two connections; the others find it full.
        let queued = (0..4)
            .map(|_| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&address.into()); // in progress, and stays so
                socket
            })
            .collect();
        Self {
            address,
            _listener: listener,
            _queued: queued,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
