//! A connection that switched protocols: bytes both ways until both ends have said all.
//!
//! Each direction ends by itself (half-close): the end of one side is passed to the other, whose
//! answer may still be on its way. A direction holds a buffer only while it has bytes, so a silent
//! WebSocket costs two sockets and a task. While a direction comes in large pieces and both sides
//! are in the clear it goes through a pipe; short messages are cheaper to copy.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::buffer::{Buffer, LARGE};
use super::deadline::Deadline;
use super::splice::{Broken, Pipe, Pipes, Source, Step};
use super::stream::Stream;

/// One side of a tunnel: a connection or a stream of one.
pub(crate) trait Side: AsyncRead + AsyncWrite + Unpin {
    /// The socket, if its bytes are those of the tunnel.
    fn plain(&self) -> Option<&TcpStream> {
        None
    }
}

impl Side for Stream {
    fn plain(&self) -> Option<&TcpStream> {
        Stream::plain(self)
    }
}

/// One direction.
struct Way {
    buffer: Buffer,
    pipes: Pipes,
    pipe: Option<Pipe>,
    /// The last piece in the pipe is a short one.
    short: bool,
    ended: bool,
    shut: bool,
    bytes: u64,
}

impl Way {
    fn new(buffer: Buffer, pipes: &Pipes) -> Way {
        Way {
            buffer,
            pipes: pipes.clone(),
            pipe: None,
            short: false,
            ended: false,
            shut: false,
            bytes: 0,
        }
    }

    /// Moves what can be moved. Ready when the end was passed on.
    fn poll(
        &mut self,
        from: &mut impl Side,
        to: &mut impl Side,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        loop {
            if self.shut {
                return Poll::Ready(Ok(()));
            }
            while !self.buffer.is_empty() {
                let count = ready!(Pin::new(&mut *to).poll_write(cx, self.buffer.data()))?;
                if count == 0 {
                    return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
                }
                self.buffer.consume(count);
                self.bytes += count as u64;
            }
            if self.ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                self.shut = true;
                continue;
            }
            if self.pipe.is_some() {
                ready!(self.poll_splice(from, to, cx))?;
                continue;
            }
            match self.buffer.poll_fill(from, cx) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(_)) if self.buffer.has_room() => {}
                Poll::Ready(Ok(LARGE)) if from.plain().and(to.plain()).is_some() => {
                    self.pipe = self.pipes.lend();
                }
                Poll::Ready(Ok(_)) => self.buffer.grow(LARGE),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    return Poll::Pending;
                }
            }
        }
    }

    /// One step through the pipe, which is given back with a short piece.
    fn poll_splice(
        &mut self,
        from: &impl Side,
        to: &impl Side,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let Some(pipe) = &mut self.pipe else {
            return Poll::Ready(Ok(()));
        };
        let source = from.plain().map(|socket| Source {
            socket,
            left: u64::MAX,
            expected: u64::MAX,
        });
        match ready!(pipe.poll_step(source, to.plain(), cx)) {
            Ok(Step::Took(0)) => {
                self.pipe = None;
                self.ended = true;
            }
            Ok(Step::Took(count)) => self.short = count < LARGE,
            Ok(Step::Gave(count)) => {
                self.bytes += count as u64;
                if self.short && pipe.is_empty() {
                    self.pipe = None;
                }
            }
            Err(Broken::Source(error) | Broken::Sink(error)) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

/// What went through a tunnel.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// Bytes from the client.
    pub(crate) received: u64,
    /// Bytes to the client.
    pub(crate) sent: u64,
}

/// Runs a tunnel to its end. `client_said` and `endpoint_said` were read already. It ends as well
/// when nothing moves for `idle`. `passed` is true at any time, so that it can be cut.
///
/// The reason word for what ended it, unless both ends closed in an orderly way.
pub(crate) async fn run(
    (client, client_said): (&mut impl Side, Buffer),
    (endpoint, endpoint_said): (&mut impl Side, Buffer),
    pipes: &Pipes,
    deadline: &mut Deadline,
    idle: Duration,
    passed: &mut Passed,
) -> Option<&'static str> {
    let mut up = Way::new(client_said, pipes);
    let mut down = Way::new(endpoint_said, pipes);
    deadline.set_after(idle);
    poll_fn(|cx| {
        let before = (up.bytes, down.bytes);
        let ends = (
            up.poll(client, endpoint, cx),
            down.poll(endpoint, client, cx),
        );
        (passed.received, passed.sent) = (up.bytes, down.bytes);
        match ends {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => {
                return Poll::Ready(Some("tunnel-broken"));
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(None),
            (_, _) => {}
        }
        if before != (up.bytes, down.bytes) {
            deadline.set(Instant::now() + idle);
        }
        deadline.poll(cx).map(|()| Some("tunnel-idle"))
    })
    .await
}
