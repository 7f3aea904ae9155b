//! Pipes in the kernel, through which a long body goes from socket to socket without being copied
//! into this process and out again.
//!
//! Only bytes that nobody here has to see can take this way: both sides in the clear, and no
//! framing between them. The rest of the body is then the kernel's, and what is left for us is to
//! count. A pipe is filled only while it is empty: then "would block" means that the socket has
//! nothing, and what is under way stays bounded by the size of one pipe.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes of a body from which on a pipe is worth its two extra system calls.
const SPLICED_MIN: u64 = 32 * 1024;

/// Bytes that a pipe may hold. The system may grant less.
const PIPE_SIZE: usize = 256 * 1024;

/// A pipe that holds less is worth nothing. Such are given to who has used up their share of the
/// system's memory for pipes.
const PIPE_MIN: usize = 64 * 1024;

/// Pipes that one core lends at a time. Two descriptors each; who gets none copies.
const PIPES_MAX: usize = 128;

/// Pipes that a core keeps when nobody uses them.
const KEPT_MAX: usize = 32;

/// The pipes of one core.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pipes(Rc<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    kept: RefCell<Vec<Ends>>,
    /// Lent at the moment.
    lent: Cell<usize>,
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

impl Ends {
    /// None without descriptors or memory for it: the body is copied, as it could be all along.
    fn make() -> Option<Ends> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let size = fcntl_setpipe_size(&write, PIPE_SIZE).or_else(|_| fcntl_getpipe_size(&write));
        (size.ok()? >= PIPE_MIN).then_some(Ends { read, write })
    }
}

impl Pipes {
    /// Sees to it that `pipe` is there while it is of use: it holds bytes, or there is a source. A
    /// new one is worth having when enough is expected from it. Whether it is there.
    pub(crate) fn settle(&self, pipe: &mut Option<Pipe>, source: Option<Source<'_>>) -> bool {
        match (&pipe, source) {
            (None, Some(source)) if source.expected >= SPLICED_MIN => *pipe = self.lend(),
            (Some(used), None) if used.is_empty() => *pipe = None,
            _ => {}
        }
        pipe.is_some()
    }

    /// An empty pipe, if there is one to be had.
    pub(crate) fn lend(&self) -> Option<Pipe> {
        let shelf = &self.0;
        if shelf.lent.get() >= PIPES_MAX {
            return None;
        }
        let kept = shelf.kept.borrow_mut().pop();
        let ends = kept.or_else(Ends::make)?;
        shelf.lent.set(shelf.lent.get() + 1);
        Some(Pipe {
            ends: Some(ends),
            held: 0,
            home: Rc::clone(shelf),
        })
    }
}

/// What a pipe may take from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) socket: &'a TcpStream,
    /// At most so many bytes.
    pub(crate) left: u64,
    /// So many are likely to come.
    pub(crate) expected: u64,
}

/// What a step moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes out of the source. 0: it has ended.
    Took(usize),
    /// So many bytes, at least one, into the sink.
    Gave(usize),
}

/// Which side failed.
#[derive(Debug)]
pub(crate) enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

/// A pipe, lent to one direction of one exchange.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// There until it is dropped.
    ends: Option<Ends>,
    held: usize,
    home: Rc<Shelf>,
}

impl Pipe {
    /// Whether all that went in came out.
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Goes one step: gives `to` what the pipe holds, or takes as much as may be taken `from` when
    /// it holds nothing. Pending: [`Pipe::is_empty`] says whose turn it is. A side that is not there
    /// any more has failed.
    pub(crate) fn poll_step(
        &mut self,
        from: Option<Source<'_>>,
        to: Option<&TcpStream>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Step, Broken>> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        if self.is_empty() {
            let from = from.ok_or_else(gone).map_err(Broken::Source)?;
            let took = ready!(self.poll_take(from, cx));
            Poll::Ready(took.map(Step::Took).map_err(Broken::Source))
        } else {
            let to = to.ok_or_else(gone).map_err(Broken::Sink)?;
            let gave = ready!(self.poll_give(to, cx));
            Poll::Ready(gave.map(Step::Gave).map_err(Broken::Sink))
        }
    }

    fn poll_take(&mut self, from: Source<'_>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let count = usize::try_from(from.left).map_or(PIPE_SIZE, |left| left.min(PIPE_SIZE));
        let ends = self.ends()?;
        let take = || shift(from.socket, &ends.write, count);
        self.held = loop {
            ready!(from.socket.poll_read_ready(cx))?;
            match from.socket.try_io(Interest::READABLE, take) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                took => break took?,
            }
        };
        Poll::Ready(Ok(self.held))
    }

    fn poll_give(&mut self, to: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let ends = self.ends()?;
        let give = || shift(&ends.read, to, self.held);
        let gave = loop {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, give) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                gave => break gave?,
            }
        };
        self.held -= gave;
        Poll::Ready(Ok(gave))
    }

    fn ends(&self) -> io::Result<&Ends> {
        self.ends.as_ref().ok_or(io::ErrorKind::BrokenPipe.into())
    }
}

fn shift(from: impl AsFd, to: impl AsFd, count: usize) -> io::Result<usize> {
    // Not `MORE`, although more will follow: it may be long in coming, and would hold back the
    // last packet of what is there.
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(splice(from, None, to, None, count, flags)?)
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.home.lent.set(self.home.lent.get() - 1);
        // One that holds bytes of a broken exchange must not give them to another.
        if let Some(ends) = self.ends.take()
            && self.held == 0
        {
            let mut kept = self.home.kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(ends);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("connect"), far.expect("accept").0)
    }

    async fn step(pipe: &mut Pipe, from: &TcpStream, to: &TcpStream, left: u64) -> Step {
        let from = Source {
            socket: from,
            left,
            expected: left,
        };
        let step = poll_fn(|cx| pipe.poll_step(Some(from), Some(to), cx)).await;
        step.expect("both sides are there")
    }

    #[tokio::test]
    async fn bytes_go_through_in_order_and_the_end_is_seen() {
        let ((mut client, from), (to, mut endpoint)) = (pair().await, pair().await);
        let mut pipe = Pipes::default().lend().expect("a pipe");
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        client.write_all(&sent).await.expect("send");
        drop(client);
        let (mut took, mut gave) = (0, 0);
        loop {
            match step(&mut pipe, &from, &to, 70_000).await {
                Step::Took(0) => break,
                Step::Took(count) if count <= 70_000 => took += count,
                Step::Took(count) => panic!("{count} is more than was allowed"),
                Step::Gave(count) => gave += count,
            }
        }
        drop(to);
        let mut received = Vec::new();
        endpoint.read_to_end(&mut received).await.expect("receive");
        assert_eq!((took, gave), (sent.len(), sent.len()));
        assert!(received == sent);
    }

    #[tokio::test]
    async fn a_pipe_with_bytes_of_a_broken_exchange_is_not_lent_again() {
        let ((mut client, from), (to, _endpoint)) = (pair().await, pair().await);
        let pipes = Pipes::default();
        let mut pipe = pipes.lend().expect("a pipe");
        client.write_all(b"secret").await.expect("send");
        assert_eq!(step(&mut pipe, &from, &to, 9).await, Step::Took(6));
        drop(pipe);
        assert_eq!((pipes.0.kept.borrow().len(), pipes.0.lent.get()), (0, 0));
        drop(pipes.lend().expect("another"));
        assert_eq!((pipes.0.kept.borrow().len(), pipes.0.lent.get()), (1, 0));
    }

    #[test]
    fn a_core_lends_and_keeps_a_bounded_number() {
        let pipes = Pipes::default();
        let lent: Vec<_> = std::iter::from_fn(|| pipes.lend())
            .take(PIPES_MAX + 1)
            .collect();
        assert!(lent.len() <= PIPES_MAX);
        drop(lent);
        assert_eq!(pipes.0.lent.get(), 0);
        assert!(pipes.0.kept.borrow().len() <= KEPT_MAX);
    }
}
