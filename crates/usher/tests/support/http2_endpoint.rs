//! Endpoints that speak HTTP/2: well-behaved ones, and the frames of one that is told what to say.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsAcceptor;

use super::endpoint::Visit;
use super::http2::{Frame, Frames, SETTINGS};
use super::wire::Wire;

/// One stream at the endpoint.
pub struct Call {
    pub request: Request<()>,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
}

impl Call {
    /// Reads the whole body, and the trailers.
    pub async fn read(&mut self) -> Option<(Vec<u8>, HeaderMap)> {
        let mut body = Vec::new();
        while let Some(piece) = self.body.data().await {
            let piece = piece.ok()?;
            let _ = self.body.flow_control().release_capacity(piece.len());
            body.extend_from_slice(&piece);
        }
        let trailers = self.body.trailers().await.ok()?;
        Some((body, trailers.unwrap_or_default()))
    }

    /// Sends the head of an answer.
    pub fn head(&mut self, response: Response<()>) -> SendStream<Bytes> {
        self.respond.send_response(response, false).unwrap()
    }

    /// Answers 200 with this body, which must fit into the window.
    pub fn ok(&mut self, body: impl Into<Bytes>) {
        let mut send = self.head(Response::new(()));
        let _ = send.send_data(body.into(), true); // the client may have gone: its test says so
    }
}

/// What [`serve`] does with each stream.
pub type Served = Pin<Box<dyn Future<Output = ()>>>;

/// Speaks HTTP/2 on a connection in the clear until it ends.
pub fn serve(visit: &Visit, builder: &Builder, handle: impl Fn(Call) -> Served) {
    run(async {
        let socket = tokio_of(visit);
        accept(socket, builder, handle).await;
    });
}

/// The same under TLS. False: the client did not choose `h2`.
pub fn serve_tls(
    visit: &Visit,
    config: Arc<ServerConfig>,
    builder: &Builder,
    handle: impl Fn(Call) -> Served,
) {
    run(async {
        let accepted = TlsAcceptor::from(config).accept(tokio_of(visit)).await;
        if let Ok(stream) = accepted {
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            accept(stream, builder, handle).await;
        }
    });
}

fn tokio_of(visit: &Visit) -> TcpStream {
    let socket = visit.take_socket();
    socket.set_nonblocking(true).unwrap();
    TcpStream::from_std(socket).unwrap()
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, story);
}

async fn accept(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    builder: &Builder,
    handle: impl Fn(Call) -> Served,
) {
    let Ok(mut connection) = builder.handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (parts, body) = request.into_parts();
        spawn_local(handle(Call {
            request: Request::from_parts(parts, ()),
            body,
            respond,
        }));
    }
}

/// Plays the endpoint frame by frame: answers SETTINGS and PING by itself.
pub struct Played(Frames);

impl Played {
    /// Reads the client's preface, and says `settings`.
    pub fn on(visit: &Visit, settings: &[u8]) -> Option<Self> {
        let mut wire = Wire::over(visit.take_socket());
        let preface = wire.try_bytes(24).ok()?;
        assert_eq!(preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut played = Self(Frames::of(wire));
        played.send(SETTINGS, 0, 0, settings);
        Some(played)
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let _ = self.0.try_send(kind, flags, stream, payload); // the client may have gone
    }

    /// The next frame of this kind.
    pub fn next(&mut self, kind: u8) -> Option<Frame> {
        const PING: u8 = 6;
        const ACK: u8 = 1;
        loop {
            let frame = self.0.next()?;
            match frame.kind {
                PING if frame.flags & ACK == 0 => self.send(PING, ACK, 0, &frame.payload),
                SETTINGS if frame.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]),
                _ => {}
            }
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }
}
