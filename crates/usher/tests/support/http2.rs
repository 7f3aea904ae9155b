//! HTTP/2 clients: a well-behaved one, and one that writes any frame.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::PATIENCE;
use super::tls::Authority;
use super::wire::Wire;

/// Runs a story on a runtime of its own, within [`PATIENCE`].
pub fn block_on<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let bounded = async { tokio::time::timeout(PATIENCE, story).await };
    runtime
        .block_on(bounded)
        .unwrap_or_else(|_| panic!("not done within {PATIENCE:?}"))
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
}

pub struct Client(pub SendRequest<Bytes>);

impl Client {
    /// Cleartext, by prior knowledge.
    pub async fn plain(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap()).await
    }

    /// TLS with ALPN `h2`.
    pub async fn secure(authority: &Authority, address: SocketAddr, name: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(authority.client(&["h2"]));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let stream = connector.connect(name, socket).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Self::over(stream).await
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection); // its end is seen by the streams on it
        Self(sender)
    }

    pub async fn get(&mut self, url: &str) -> Result<Answer, h2::Error> {
        self.exchange(Request::get(url).body(()).unwrap(), None, None)
            .await
    }

    /// Sends a request with its body and trailers, and reads the whole answer.
    pub async fn exchange(
        &mut self,
        request: Request<()>,
        body: Option<Bytes>,
        trailers: Option<HeaderMap>,
    ) -> Result<Answer, h2::Error> {
        let mut sender = self.0.clone().ready().await?;
        let bare = body.is_none() && trailers.is_none();
        let (response, mut stream) = sender.send_request(request, bare)?;
        if let Some(body) = body {
            stream.send_data(body, trailers.is_none())?;
        }
        if let Some(trailers) = trailers {
            stream.send_trailers(trailers)?;
        }
        let (head, mut incoming) = response.await?.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece?;
            incoming.flow_control().release_capacity(piece.len())?;
            body.extend_from_slice(&piece);
        }
        let trailers = incoming.trailers().await?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            trailers,
        })
    }
}

/// One frame, as it stood on the wire.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// What became of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was answered; the code when it is one of HPACK's static table.
    Answered(Option<u16>),
    /// It was reset with this error code.
    Reset(u32),
    /// The connection ended, with the error code of its GOAWAY if there was one.
    Gone(Option<u32>),
}

/// A client that writes frames as it is told, sound or not.
pub struct Frames(Wire);

impl Frames {
    /// Sends the preface and empty settings.
    pub fn over(mut wire: Wire) -> Self {
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut frames = Self(wire);
        frames.send(SETTINGS, 0, 0, &[]);
        frames
    }

    /// Over a connection that has begun already.
    pub fn of(wire: Wire) -> Self {
        Self(wire)
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_send(kind, flags, stream, payload)
            .unwrap_or_else(|e| panic!("send: {e}"));
    }

    /// For frames that the other side may no longer want.
    pub fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.0.try_send(frame)
    }

    /// Opens a stream with these fields, none of them checked.
    pub fn request(&mut self, stream: u32, fields: &[(&str, &str)]) {
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block(fields));
    }

    /// The next frame, or None when the connection ended.
    pub fn next(&mut self) -> Option<Frame> {
        let head = self.0.try_bytes(9).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload: self.0.try_bytes(length as usize).ok()?,
        })
    }

    /// Reads on until it is known what became of the stream.
    pub fn fate(&mut self, stream: u32) -> Fate {
        while let Some(frame) = self.next() {
            let code =
                |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
            match frame.kind {
                HEADERS if frame.stream == stream => return Fate::Answered(status(&frame.payload)),
                RST_STREAM if frame.stream == stream => return Fate::Reset(code(0)),
                GOAWAY if code(4) != 0 => return Fate::Gone(Some(code(4))),
                _ => {}
            }
        }
        Fate::Gone(None)
    }
}

/// A field block of literals without indexing and without Huffman coding.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An integer with a prefix of seven bits (RFC 7541, section 5.1).
fn integer(block: &mut Vec<u8>, value: usize) {
    if value < 127 {
        block.push(value as u8);
        return;
    }
    block.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// `:status` where it is an entry of the static table.
fn status(block: &[u8]) -> Option<u16> {
    let first = block.iter().find(|byte| **byte & 0xe0 != 0x20)?; // after size updates
    const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let index = usize::from(first & 0x7f).checked_sub(8)?;
    if first & 0x80 == 0 {
        None
    } else {
        STATIC.get(index).copied()
    }
}
