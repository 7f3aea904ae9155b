//! Listening sockets: one for each worker on the same port, and the loop that accepts from one.
//!
//! The kernel spreads new connections over the sockets by hash, which is uneven for few
//! connections; so a worker that has clearly more than another hands the new one over. Accepting
//! pauses, rather than fails, when there is no room: clients then wait in the kernel's queue.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

use super::census::Seat;
use super::connection::canonical;
use super::forward::trusts;
use super::worker::Worker;

/// Connections that may wait in the kernel's queue; `net.core.somaxconn` bounds it further.
const BACKLOG: i32 = 4096;

/// Pause after the process ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Between two complaints that there is no room.
const COMPLAINT: Duration = Duration::from_secs(60);

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program, or another copy of this one, has it.
    #[error("listen on {0}: the port is taken; stop the program that has it or name another port")]
    Taken(SocketAddr),
    /// Not allowed.
    #[error(
        "listen on {0}: not allowed; ports below 1024 need root or the capability \
         CAP_NET_BIND_SERVICE"
    )]
    Denied(SocketAddr),
    /// No interface has it.
    #[error("listen on {0}: this machine does not have the address")]
    Absent(SocketAddr),
    /// Anything else.
    #[error("listen on {address}")]
    Other {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl ListenError {
    fn of(address: SocketAddr, source: io::Error) -> ListenError {
        match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken(address),
            io::ErrorKind::PermissionDenied => ListenError::Denied(address),
            io::ErrorKind::AddrNotAvailable => ListenError::Absent(address),
            _ => ListenError::Other { address, source },
        }
    }
}

/// Listens on `address` with `count` sockets that share the port. Port 0: the system chooses one.
pub(crate) fn bind(
    address: SocketAddr,
    count: usize,
) -> Result<Vec<std::net::TcpListener>, ListenError> {
    bind_all(address, count).map_err(|source| ListenError::of(address, source))
}

fn bind_all(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // Bound before it may share, so that a port which another process shares counts as taken.
    let first = socket(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < count {
        let socket = socket_of(&address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address)?;
        sockets.push(socket);
    }
    sockets
        .iter()
        .try_for_each(|socket| socket.listen(BACKLOG))?;
    Ok(sockets
        .into_iter()
        .map(std::net::TcpListener::from)
        .collect())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    socket_of(&address.into())
}

/// Options that every accepted connection inherits are set here, once.
fn socket_of(address: &socket2::SockAddr) -> io::Result<Socket> {
    let domain = if address.is_ipv6() {
        Domain::IPV6
    } else {
        Domain::IPV4
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    // A peer that vanished is noticed, whatever the exchange waits for.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// A connection that was accepted and has not been served yet.
#[derive(Debug)]
pub(crate) struct Accepted<S> {
    pub(crate) socket: S,
    pub(crate) peer: SocketAddr,
    pub(crate) seat: Seat,
}

/// A connection, and the worker that it is for.
type Found = (usize, Accepted<TcpStream>);

/// Accepts from one socket.
pub(crate) struct Acceptor {
    socket: TcpListener,
    worker: Rc<Worker>,
    complained: Option<Instant>,
}

/// Why nothing is accepted for a while.
enum Pause {
    /// `limits.connections` is reached.
    Full,
    /// The process or the machine has run out of something.
    Starved(io::Error),
}

impl Acceptor {
    pub(crate) fn new(socket: std::net::TcpListener, worker: Rc<Worker>) -> io::Result<Acceptor> {
        Ok(Acceptor {
            socket: TcpListener::from_std(socket)?,
            worker,
            complained: None,
        })
    }

    /// Accepts for ever.
    pub(crate) async fn run(&mut self, mut take: impl FnMut(Found)) {
        loop {
            match poll_fn(|cx| self.poll(cx)).await {
                Ok(found) => take(found),
                Err(Pause::Full) => {
                    self.complain("limits.connections is reached, new connections wait");
                    self.worker.plane().ledger().census().room().await;
                }
                Err(Pause::Starved(error)) => {
                    self.complain(error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Found, Pause>> {
        loop {
            let limit = self.worker.view().settings.limits.connections;
            let Some(seat) = self.worker.plane().ledger().census().reserve(limit) else {
                return Poll::Ready(Err(Pause::Full));
            };
            match ready!(self.socket.poll_accept(cx)) {
                Ok((socket, peer)) => {
                    if let Some(found) = self.place(socket, peer, seat) {
                        return Poll::Ready(Ok(found));
                    }
                }
                Err(error) if is_shortage(&error) => {
                    return Poll::Ready(Err(Pause::Starved(error)));
                }
                // The connection broke before it was taken; the next may be fine.
                Err(_) => {}
            }
        }
    }

    /// Finds a worker for a connection, unless its client has enough of them.
    fn place(&self, socket: TcpStream, peer: SocketAddr, mut seat: Seat) -> Option<Found> {
        let peer = canonical(peer);
        let view = self.worker.view();
        self.worker.tally().accepted();
        let limit = view.settings.limits.connections_per_client;
        let exempt = limit == 0 || trusts(&view.settings.trusted_proxies, peer.ip());
        if !exempt && !seat.belong(peer.ip(), limit) {
            self.worker.tally().refused();
            return None;
        }
        let worker = self
            .worker
            .plane()
            .ledger()
            .census()
            .place(self.worker.index());
        seat.sit(worker);
        Some((worker, Accepted { socket, peer, seat }))
    }

    /// Stops, and takes what the kernel has accepted already: closing the socket would reset it.
    pub(crate) fn close(self, mut take: impl FnMut(Found)) -> io::Result<()> {
        // Asked directly, because the runtime has not yet heard of what came last.
        let socket = rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)?;
        let socket = std::net::TcpListener::from(socket);
        while let Ok((accepted, peer)) = socket.accept() {
            let limit = self.worker.view().settings.limits.connections;
            let Some(seat) = self.worker.plane().ledger().census().reserve(limit) else {
                break;
            };
            accepted.set_nonblocking(true)?;
            self.place(TcpStream::from_std(accepted)?, peer, seat)
                .map(&mut take);
        }
        Ok(())
    }

    fn complain(&mut self, what: impl std::fmt::Display) {
        if self
            .complained
            .is_none_or(|last| last.elapsed() >= COMPLAINT)
        {
            self.complained = Some(Instant::now());
            let connections = self.worker.plane().ledger().connections();
            warn!(connections, "accepting pauses: {what}");
        }
    }
}

fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| shortages.contains(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_share_a_port_that_nobody_else_can_take() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = bind(local, 3).expect("a free port");
        let address = sockets[0].local_addr().expect("bound");
        assert!(
            sockets
                .iter()
                .all(|socket| socket.local_addr().is_ok_and(|at| at == address))
        );
        let taken = bind(address, 3).expect_err("taken").to_string();
        assert!(
            taken.starts_with(&format!("listen on {address}: the port is taken")),
            "{taken}"
        );
        drop(sockets);
        bind(address, 1).expect("free again");
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        let error = bind(SocketAddr::from(([192, 0, 2, 1], 0)), 1).expect_err("not ours");
        assert!(matches!(error, ListenError::Absent(_)), "{error}");
    }
}
