//! A connection that switched protocols: bytes both ways until both ends have said all.
//!
//! Each direction ends by itself (half-close): the end of one side is passed to the other, whose
//! answer may still be on its way. A direction holds a buffer only while it has bytes, so a silent
//! WebSocket costs two sockets and a task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::buffer::{Buffer, LARGE};
use super::deadline::Deadline;

/// One direction.
struct Way {
    buffer: Buffer,
    ended: bool,
    shut: bool,
    bytes: u64,
}

impl Way {
    fn new(buffer: Buffer) -> Way {
        Way {
            buffer,
            ended: false,
            shut: false,
            bytes: 0,
        }
    }

    /// Moves what can be moved. Ready when the end was passed on.
    fn poll<F, T>(
        &mut self,
        from: &mut F,
        to: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>>
    where
        F: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
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
            match self.buffer.poll_fill(from, cx) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(_)) if self.buffer.has_room() => {}
                Poll::Ready(Ok(_)) => self.buffer.grow(LARGE),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    return Poll::Pending;
                }
            }
        }
    }
}

/// What went through a tunnel, and what ended it.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Bytes from the client.
    pub(crate) received: u64,
    /// Bytes to the client.
    pub(crate) sent: u64,
    /// The reason word, unless both ends closed in an orderly way.
    pub(crate) error: Option<&'static str>,
}

/// Runs a tunnel to its end. `client_said` and `endpoint_said` were read already. It ends as well
/// when nothing moves for `idle`.
pub(crate) async fn run<C, E>(
    client: &mut C,
    client_said: Buffer,
    endpoint: &mut E,
    endpoint_said: Buffer,
    deadline: &mut Deadline,
    idle: Duration,
) -> Passed
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let (mut up, mut down) = (Way::new(client_said), Way::new(endpoint_said));
    deadline.set_after(idle);
    let error = poll_fn(|cx| {
        let before = (up.bytes, down.bytes);
        let ends = (
            up.poll(client, endpoint, cx),
            down.poll(endpoint, client, cx),
        );
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
    .await;
    Passed {
        received: up.bytes,
        sent: down.bytes,
        error,
    }
}
