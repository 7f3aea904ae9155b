//! Servers that follow a script.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A port that nobody listens on, and that nobody else can take while this lives.
pub(super) struct Closed(socket2::Socket);

impl Closed {
    pub(super) fn new() -> Closed {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket
            .bind(&SocketAddr::new(LOCAL, 0).into())
            .expect("a free port");
        Closed(socket)
    }

    pub(super) fn port(&self) -> u16 {
        port_of(&self.0)
    }
}

pub(super) fn port_of(socket: &socket2::Socket) -> u16 {
    let address = socket.local_addr().expect("bound");
    address.as_socket().expect("an IP socket").port()
}

/// A listener with a full queue: the kernel drops further handshakes.
pub(super) struct Hole {
    listener: socket2::Socket,
    _queued: Vec<std::net::TcpStream>,
}

impl Hole {
    pub(super) fn on(ip: IpAddr, port: u16) -> Hole {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let listener = listener.expect("a socket");
        listener
            .bind(&SocketAddr::new(ip, port).into())
            .expect("a free port");
        listener.listen(0).expect("listening");
        let address = listener
            .local_addr()
            .expect("bound")
            .as_socket()
            .expect("an IP socket");
        let queued = vec![std::net::TcpStream::connect(address).expect("a queue of one")];
        Hole {
            listener,
            _queued: queued,
        }
    }

    pub(super) fn port(&self) -> u16 {
        port_of(&self.listener)
    }
}

/// Runs a script for each connection; ends with the test.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) heads: mpsc::UnboundedReceiver<String>,
    pub(super) names: mpsc::UnboundedReceiver<Option<String>>,
    pub(super) resumed: Arc<AtomicUsize>,
}

impl Server {
    pub(super) async fn start<F>(script: impl Fn(TcpStream) -> F + Send + 'static) -> Server
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((LOCAL, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(script(stream));
            }
        });
        let (_, heads) = mpsc::unbounded_channel();
        let (_, names) = mpsc::unbounded_channel();
        Server {
            port,
            heads,
            names,
            resumed: Arc::default(),
        }
    }

    /// Answers every request with the same bytes, then closes.
    pub(super) async fn answering(answer: impl Into<Vec<u8>>) -> Server {
        let answer = answer.into();
        Server::routing_bytes(move |_| answer.clone()).await
    }

    /// Answers by request target, then closes.
    pub(super) async fn routing(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
        Server::routing_bytes(move |target| answer(target).into_bytes()).await
    }

    pub(super) async fn routing_bytes(
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Server {
        let answer = Arc::new(answer);
        let (sender, heads) = mpsc::unbounded_channel();
        let server = Server::start(move |mut stream| {
            let (answer, sender) = (Arc::clone(&answer), sender.clone());
            async move {
                let head = read_head(&mut stream).await;
                let answer = answer(head.split(' ').nth(1).unwrap_or_default());
                let _ = sender.send(head);
                finish(stream, &answer).await;
            }
        })
        .await;
        Server { heads, ..server }
    }

    /// The next request head that came in.
    pub(super) async fn head(&mut self) -> String {
        self.heads.recv().await.expect("a request")
    }

    /// The name that the next handshake asked for.
    pub(super) async fn sni(&mut self) -> Option<String> {
        self.names.recv().await.expect("a handshake")
    }
}

pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("ASCII")
}

pub(super) async fn send(stream: &mut TcpStream, answer: &str) {
    stream.write_all(answer.as_bytes()).await.expect("sent");
}

/// Sends and closes; a probe may have left before.
pub(super) async fn finish(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
    until_closed(&mut stream).await;
}

pub(super) async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut sink = [0; 1024];
    while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {}
}

pub(super) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("a socket");
}
