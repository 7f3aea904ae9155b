//! One end of a connection, plain or TLS: send any bytes, read messages, tell how it ended.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use super::PATIENCE;
use super::message::{Message, fields_of};

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The other side said that it has no more to send.
    Closed,
    /// The other side cut it.
    Reset,
}

/// A message that did not arrive whole.
#[derive(Debug)]
pub enum Broken {
    /// The connection ended before the first byte.
    NoAnswer(End),
    /// It ended inside the message, of which this much had come.
    Cut(Message, End),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub struct Wire {
    stream: Box<dyn Stream>,
    /// The socket under the stream: closing and timeouts are its business.
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap_or_else(|e| panic!("connect {address}: {e}")))
    }

    pub fn over(socket: TcpStream) -> Self {
        let stream = socket.try_clone().unwrap();
        Self::with(socket, stream)
    }

    /// `stream` speaks over `socket`, of which it holds a clone.
    pub fn with(socket: TcpStream, stream: impl Read + Write + Send + 'static) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: Box::new(stream),
            socket,
            buffer: Vec::new(),
        }
    }

    /// Waits without a bound from now on: for a side that others end.
    pub fn patient(self) -> Self {
        self.socket.set_read_timeout(None).unwrap();
        self
    }

    /// A second handle on the socket.
    pub fn socket(&self) -> TcpStream {
        self.socket.try_clone().unwrap()
    }

    pub fn local(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    pub fn peer(&self) -> SocketAddr {
        self.socket.peer_addr().unwrap()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|e| panic!("send: {e}"));
    }

    /// For bytes that the other side may refuse to read.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Says that nothing more comes from here, and goes on reading.
    pub fn finish(&self) {
        let _ = self.socket.shutdown(Shutdown::Write); // the other side may have gone first
    }

    /// Ends the connection with a reset, as a crashed machine does.
    pub fn reset(self) {
        self.cut();
    }

    /// The same while others hold a handle on the socket: dissolving the association is what
    /// makes the kernel send the reset at once.
    pub fn cut(&self) {
        SockRef::from(&self.socket)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        let _ = rustix::net::connect_unspec(&self.socket); // gone already: nothing to cut
    }

    /// Makes this side a slow reader: the kernel holds at most about `bytes` for it.
    pub fn receive_little(&self, bytes: usize) {
        SockRef::from(&self.socket)
            .set_recv_buffer_size(bytes)
            .unwrap();
    }

    /// The next request, or None when the connection ended instead.
    pub fn request(&mut self) -> Option<Message> {
        let mut message = self.head().ok()?;
        let length = Length::of_request(&message);
        self.body(&mut message, length).ok()?;
        Some(message)
    }

    /// The head of the next request; its body is left on the wire.
    pub fn request_head(&mut self) -> Option<Message> {
        self.head().ok()
    }

    /// The next response, whole. 1xx are responses of their own here.
    pub fn response(&mut self) -> Message {
        self.response_to("GET")
    }

    pub fn response_to(&mut self, method: &str) -> Message {
        self.try_response_to(method)
            .unwrap_or_else(|broken| panic!("no whole response: {broken:?}"))
    }

    pub fn try_response(&mut self) -> Result<Message, Broken> {
        self.try_response_to("GET")
    }

    fn try_response_to(&mut self, method: &str) -> Result<Message, Broken> {
        let mut message = self.head()?;
        let length = Length::of_response(&message, method);
        match self.body(&mut message, length) {
            Ok(()) => Ok(message),
            Err(end) => Err(Broken::Cut(message, end)),
        }
    }

    /// Sends, and reads the answer.
    pub fn exchange(&mut self, request: impl AsRef<[u8]>) -> Message {
        self.send(request);
        self.response()
    }

    /// `GET path` on a connection that stays open.
    pub fn get(&mut self, host: &str, path: &str) -> Message {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// Exactly the next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.try_bytes(count)
            .unwrap_or_else(|end| panic!("{end:?} before {count} bytes"))
    }

    pub fn try_bytes(&mut self, count: usize) -> Result<Vec<u8>, End> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// Waits for the end, and insists that nothing comes before it.
    pub fn expect_end(&mut self) -> End {
        let (rest, end) = self.rest();
        assert!(
            rest.is_empty(),
            "bytes before the end: {:?}",
            String::from_utf8_lossy(&rest)
        );
        end
    }

    /// Everything up to the end.
    pub fn rest(&mut self) -> (Vec<u8>, End) {
        loop {
            if let Err(end) = self.fill() {
                return (std::mem::take(&mut self.buffer), end);
            }
        }
    }

    /// True when the other side stayed silent and connected for that long.
    pub fn stays_open(&mut self, time: Duration) -> bool {
        if !self.buffer.is_empty() {
            return false;
        }
        let patience = self.socket.read_timeout().unwrap();
        self.socket.set_read_timeout(Some(time)).unwrap();
        let mut byte = [0];
        let silent = match self.stream.read(&mut byte) {
            Ok(count) => {
                self.buffer.extend_from_slice(&byte[..count]);
                false
            }
            Err(e) => is_timeout(&e),
        };
        self.socket.set_read_timeout(patience).unwrap();
        silent
    }

    fn head(&mut self) -> Result<Message, Broken> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Ok(Message::of_head(&head));
            }
            if let Err(end) = self.fill() {
                return Err(if self.buffer.is_empty() {
                    Broken::NoAnswer(end)
                } else {
                    Broken::Cut(Message::of_head(&self.buffer), end)
                });
            }
        }
    }

    fn body(&mut self, message: &mut Message, length: Length) -> Result<(), End> {
        match length {
            Length::Exactly(count) => {
                while self.buffer.len() < count {
                    if let Err(end) = self.fill() {
                        message.body.append(&mut self.buffer);
                        return Err(end);
                    }
                }
                message.body = self.buffer.drain(..count).collect();
                Ok(())
            }
            Length::Chunked => self.chunks(message),
            Length::UntilClose => match self.rest() {
                (body, End::Closed) => {
                    message.body = body;
                    Ok(())
                }
                (body, End::Reset) => {
                    message.body = body;
                    Err(End::Reset)
                }
            },
        }
    }

    fn chunks(&mut self, message: &mut Message) -> Result<(), End> {
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16)
                .unwrap_or_else(|_| panic!("not a chunk size: {line:?}"));
            if size == 0 {
                break;
            }
            while self.buffer.len() < size + 2 {
                if let Err(end) = self.fill() {
                    let come = self.buffer.len().min(size);
                    message.body.extend(self.buffer.drain(..come));
                    return Err(end);
                }
            }
            message.body.extend(self.buffer.drain(..size));
            assert_eq!(
                self.buffer.drain(..2).collect::<Vec<_>>(),
                b"\r\n",
                "end of a chunk"
            );
        }
        let mut lines = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        message.trailers = fields_of(lines.iter().map(String::as_str));
        Ok(())
    }

    fn line(&mut self) -> Result<String, End> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), End> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(End::Closed),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(e) if is_timeout(&e) => panic!(
                "nothing came for {PATIENCE:?}; before it: {:?}",
                String::from_utf8_lossy(&self.buffer)
            ),
            // TLS: a close without close_notify is the end of a connection all the same.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(End::Closed),
            Err(_) => Err(End::Reset),
        }
    }
}

enum Length {
    Exactly(usize),
    Chunked,
    UntilClose,
}

impl Length {
    fn of_request(message: &Message) -> Self {
        Self::announced(message).unwrap_or(Self::Exactly(0))
    }

    fn of_response(message: &Message, method: &str) -> Self {
        let status = message.status();
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return Self::Exactly(0);
        }
        Self::announced(message).unwrap_or(Self::UntilClose)
    }

    fn announced(message: &Message) -> Option<Self> {
        if message.names("transfer-encoding", "chunked") {
            return Some(Self::Chunked);
        }
        let length = message.field("content-length")?;
        Some(Self::Exactly(
            length
                .parse()
                .unwrap_or_else(|_| panic!("not a length: {length:?}")),
        ))
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len())
        .position(|window| window == needle)
}
