//! Connections to endpoints: made by one policy, kept per core, and used again.
//!
//! The pool belongs to one core and is touched by one thread, so it has no lock. The connection
//! used last is taken first, so that those not needed grow old and are closed. An idle connection
//! that the endpoint closed, or on which it said something unasked, is never used again: its
//! socket is asked at check-out, which costs a system call only when an event came in for it.

mod http2;
mod shared;
mod side;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsConnector, TlsStream};
use usher_core::catalog::Address;
use usher_core::snapshot::{EndpointView, TlsProfile, Transport};

pub(crate) use self::http2::{Http2, Kept, Terms};
use self::shared::Shared;
pub(crate) use self::shared::{Dialled, Opened};
pub(crate) use self::side::{Deaf, Http1, Unanswered, Upstream};
use super::book::Connected;
use super::buffer::BufferPool;
use super::refusal::Failure;
use super::settings::{Settings, Timeouts};
use super::stream::Stream;
use crate::resolve::Addresses;
use crate::tls::{self, ClientConfigs, TlsFailure, TrustProfile};

/// Idle connections that one core keeps to one endpoint.
const IDLE_PER_ENDPOINT_MAX: usize = 512;

/// Idle connections that one core keeps in all.
const IDLE_MAX: usize = 8 * 1024;

/// What is spoken, as TLS names it.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Between two looks for idle connections that are too old or closed by their endpoint.
const SWEEP: Duration = Duration::from_secs(5);

/// An endpoint could not be connected to; nothing of the request was sent. Each may be retried
/// once at another endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectFailure {
    /// Nobody listens.
    Refused,
    /// No answer within `timeouts.connect`.
    Timeout,
    /// No route, or no address: its name does not resolve.
    Unreachable,
    /// The TLS handshake failed, or took longer than `timeouts.tls_handshake`.
    Tls,
    /// Its certificate is not valid for it.
    Certificate,
    /// It was to speak HTTP/2 and does not.
    Http2,
}

impl ConnectFailure {
    /// The status that the client gets.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            ConnectFailure::Http2 => 520,
            ConnectFailure::Refused => 521,
            ConnectFailure::Timeout => 522,
            ConnectFailure::Unreachable => 523,
            ConnectFailure::Tls => 525,
            ConnectFailure::Certificate => 526,
        }
    }

    /// One stable word for logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ConnectFailure::Refused => "connect-refused",
            ConnectFailure::Timeout => "connect-timeout",
            ConnectFailure::Unreachable => "unreachable",
            ConnectFailure::Tls => "tls-handshake",
            ConnectFailure::Certificate => "certificate",
            ConnectFailure::Http2 => "no-http2",
        }
    }

    fn of(error: &io::Error) -> ConnectFailure {
        match error.kind() {
            io::ErrorKind::TimedOut => ConnectFailure::Timeout,
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                ConnectFailure::Refused
            }
            _ => ConnectFailure::Unreachable,
        }
    }
}

impl From<ConnectFailure> for Failure {
    fn from(failure: ConnectFailure) -> Failure {
        Failure::new(failure.status(), failure.as_str())
    }
}

/// Where to connect to and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) endpoint: &'a EndpointView,
    pub(crate) transport: Transport<'a>,
    /// The name to ask for and to check under TLS.
    pub(crate) sni: &'a str,
}

/// What makes two connections interchangeable: one endpoint, one trust, one name.
#[derive(Debug, PartialEq)]
struct Identity {
    endpoint: u64,
    port: u16,
    tls: Option<OwnTls>,
}

#[derive(Debug, PartialEq)]
struct OwnTls {
    verify: bool,
    sni: Box<str>,
    ca: Option<Box<str>>,
    client_cert: Option<(Box<str>, Box<str>)>,
}

impl OwnTls {
    fn is(&self, profile: &TlsProfile<'_>, sni: &str) -> bool {
        let client_cert = self
            .client_cert
            .as_ref()
            .map(|(cert, key)| (&**cert, &**key));
        self.verify == profile.verify
            && *self.sni == *sni
            && self.ca.as_deref() == profile.ca
            && client_cert == profile.client_cert
    }
}

impl Target<'_> {
    /// Equal for equal targets; different ones are told apart by [`Target::is`].
    fn hash(&self) -> u64 {
        let mut hash = self.endpoint.id.short() ^ u64::from(self.transport.port);
        if self.transport.tls.is_some() {
            let mut hasher = std::collections::hash_map::DefaultHasher::new();
            self.sni.hash(&mut hasher);
            hash ^= hasher.finish();
        }
        hash
    }

    fn is(&self, identity: &Identity) -> bool {
        let tls = match (&identity.tls, &self.transport.tls) {
            (None, None) => true,
            (Some(own), Some(profile)) => own.is(profile, self.sni),
            (None, Some(_)) | (Some(_), None) => false,
        };
        tls && identity.endpoint == self.endpoint.id.short() && identity.port == self.transport.port
    }

    fn identity(&self) -> Identity {
        let tls = self.transport.tls.map(|profile| OwnTls {
            verify: profile.verify,
            sni: self.sni.into(),
            ca: profile.ca.map(Into::into),
            client_cert: profile
                .client_cert
                .map(|(cert, key)| (cert.into(), key.into())),
        });
        Identity {
            endpoint: self.endpoint.id.short(),
            port: self.transport.port,
            tls,
        }
    }
}

/// A connection to an endpoint, in nobody's pool while somebody holds it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) io: Stream,
    ip: IpAddr,
    hash: u64,
    identity: Rc<Identity>,
    /// It served a request before, so the endpoint may have closed it meanwhile.
    pub(crate) reused: bool,
    /// As long as it is here, it counts as open at its endpoint.
    _counted: Option<Connected>,
}

impl Connection {
    /// The same, counted by `counted` for as long as it lives.
    pub(crate) fn counted(mut self, counted: Connected) -> Connection {
        self._counted = Some(counted);
        self
    }

    /// Whether the endpoint left it alone: no end, no error, nothing said unasked.
    fn is_quiet(&mut self) -> bool {
        // With a waker of nobody: the task that used it last is not to be woken, or kept, for it.
        let mut cx = Context::from_waker(Waker::noop());
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        // Whatever is left of this task's turn: `Pending` has to mean that nothing is there.
        let read = poll_fn(|cx| Pin::new(&mut self.io).poll_read(cx, &mut byte));
        pin!(unconstrained(read)).poll(&mut cx).is_pending()
    }
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    until: Instant,
}

/// The connections of one core that nobody holds, and those that are shared.
#[derive(Debug, Default)]
pub struct Pool {
    shared: Shared,
    idle: RefCell<HashMap<u64, Vec<Idle>, std::hash::BuildHasherDefault<Identical>>>,
    count: Cell<usize>,
    sweeping: Cell<bool>,
}

/// The keys are hashes already.
#[derive(Debug, Default)]
struct Identical(u64);

impl Hasher for Identical {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new() -> Rc<Pool> {
        Rc::default()
    }

    /// Takes the connection to `target` that was used last, if one is fit to be used.
    pub(crate) fn take(&self, target: &Target<'_>, addresses: &Addresses) -> Option<Connection> {
        let mut pool = self.idle.borrow_mut();
        let idle = pool.get_mut(&target.hash())?;
        let now = Instant::now();
        let current = match &target.endpoint.address {
            Address::Ip(_) => None,
            Address::Host(host) => Some(addresses.of(host)?),
        };
        while let Some(place) = idle
            .iter()
            .rposition(|idle| target.is(&idle.connection.identity))
        {
            let Idle {
                mut connection,
                until,
            } = idle.swap_remove(place);
            self.count.set(self.count.get() - 1);
            let moved = current
                .as_ref()
                .is_some_and(|all| !all.contains(&connection.ip));
            if until > now && !moved && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps `connection` for `keep`, unless the endpoint closed it or there are enough.
    pub(crate) fn put(self: &Rc<Self>, mut connection: Connection, keep: Duration) {
        if self.count.get() >= IDLE_MAX || !connection.is_quiet() {
            return;
        }
        connection.reused = true;
        let mut pool = self.idle.borrow_mut();
        let idle = pool.entry(connection.hash).or_default();
        if idle.len() >= IDLE_PER_ENDPOINT_MAX {
            return;
        }
        idle.push(Idle {
            connection,
            until: Instant::now() + keep,
        });
        self.count.set(self.count.get() + 1);
        if !self.sweeping.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    /// Idle connections kept.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.count.get()
    }

    /// Closes what is too old or was closed by its endpoint. Whether something is left.
    fn sweep(&self) -> bool {
        let now = Instant::now();
        let mut left = 0;
        self.idle.borrow_mut().retain(|_, idle| {
            idle.retain_mut(|idle| idle.until > now && idle.connection.is_quiet());
            left += idle.len();
            !idle.is_empty()
        });
        self.count.set(left);
        self.sweeping.set(left > 0);
        left > 0
    }
}

/// Runs while there is something to sweep: an idle core has no timer.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        match pool.upgrade() {
            Some(pool) if pool.sweep() => {}
            _ => return,
        }
    }
}

/// Makes a new connection for HTTP/1.1. `told` hears why TLS failed: the failure itself has no room
/// for it.
pub(crate) async fn connect(
    target: &Target<'_>,
    timeouts: &Timeouts,
    addresses: &Addresses,
    clients: &ClientConfigs,
    told: impl FnOnce(IpAddr, &dyn fmt::Display),
) -> Result<Connection, ConnectFailure> {
    let offered: &[&[u8]] = if target.transport.http2 {
        &[HTTP1]
    } else {
        &[]
    };
    make(target, timeouts, addresses, clients, offered, told).await
}

/// Makes a new connection for HTTP/2, or for HTTP/1.1 where the endpoint prefers that.
pub(crate) async fn dial(
    target: &Target<'_>,
    settings: &Settings,
    addresses: &Addresses,
    clients: &ClientConfigs,
    buffers: &BufferPool,
    told: impl FnOnce(IpAddr, &dyn fmt::Display),
) -> Result<Dialled, ConnectFailure> {
    let (timeouts, offered) = (&settings.timeouts, &[HTTP2, HTTP1]);
    let connection = make(target, timeouts, addresses, clients, offered, told).await?;
    if let Stream::Tls(tls) = &connection.io
        && tls.get_ref().1.alpn_protocol() != Some(HTTP2)
    {
        return Ok(Dialled::Http1(connection));
    }
    let Connection { io, ip, .. } = connection;
    let header_bytes = settings.limits.header_bytes;
    let greeted = shared::greet(io, ip, buffers, header_bytes, timeouts.connect).await?;
    Ok(Dialled::Http2(Box::new(greeted)))
}

async fn make(
    target: &Target<'_>,
    timeouts: &Timeouts,
    addresses: &Addresses,
    clients: &ClientConfigs,
    offered: &[&[u8]],
    told: impl FnOnce(IpAddr, &dyn fmt::Display),
) -> Result<Connection, ConnectFailure> {
    let socket = match &target.endpoint.address {
        Address::Ip(ip) => connect_any(&[*ip], target.transport.port, timeouts.connect).await?,
        Address::Host(host) => {
            let all = addresses.of(host).ok_or(ConnectFailure::Unreachable)?;
            connect_any(&all, target.transport.port, timeouts.connect).await?
        }
    };
    let ip = socket
        .peer_addr()
        .map_err(|error| ConnectFailure::of(&error))?
        .ip();
    let io = match target.transport.tls {
        None => Stream::Plain(socket),
        Some(profile) => {
            let handshake = handshake(socket, &profile, target.sni, clients, offered);
            // Boxed: a handshake is rare and large, and would set the size of every exchange.
            match timeout(timeouts.tls_handshake, Box::pin(handshake)).await {
                Ok(Ok(tls)) => Stream::Tls(tls),
                Ok(Err((failure, why))) => {
                    told(ip, &why);
                    return Err(failure);
                }
                Err(_) => {
                    let limit = timeouts.tls_handshake;
                    told(
                        ip,
                        &format_args!("the handshake took longer than {limit:?}"),
                    );
                    return Err(ConnectFailure::Tls);
                }
            }
        }
    };
    Ok(Connection {
        io,
        ip,
        hash: target.hash(),
        identity: Rc::new(target.identity()),
        reused: false,
        _counted: None,
    })
}

/// One attempt at each address in order. All of them share `within`, so that one that does not
/// answer leaves time for the next. The last failure is the one reported.
async fn connect_any(
    ips: &[IpAddr],
    port: u16,
    within: Duration,
) -> Result<TcpStream, ConnectFailure> {
    let start = Instant::now();
    let mut failure = ConnectFailure::Unreachable;
    for (place, &ip) in ips.iter().enumerate() {
        let share = within / ips.len() as u32 * (place as u32 + 1);
        match timeout_at(start + share, TcpStream::connect(SocketAddr::new(ip, port))).await {
            Ok(Ok(socket)) => match socket.set_nodelay(true) {
                Ok(()) => return Ok(socket),
                Err(error) => failure = ConnectFailure::of(&error),
            },
            Ok(Err(error)) => failure = ConnectFailure::of(&error),
            Err(_) => failure = ConnectFailure::Timeout,
        }
    }
    Err(failure)
}

async fn handshake(
    socket: TcpStream,
    profile: &TlsProfile<'_>,
    sni: &str,
    clients: &ClientConfigs,
    offered: &[&[u8]],
) -> Result<Box<TlsStream<TcpStream>>, (ConnectFailure, String)> {
    let trust = TrustProfile {
        verify: profile.verify,
        ca: profile.ca.map(PathBuf::from),
        client_cert: profile.client_cert.map(|(cert, _)| PathBuf::from(cert)),
        client_key: profile.client_cert.map(|(_, key)| PathBuf::from(key)),
    };
    // Configurations are published with the catalog that names them; between the two a reload
    // may leave one out for a moment.
    let failed = |why: String| (ConnectFailure::Tls, why);
    let config = clients.get(&trust);
    let config = config.ok_or_else(|| failed("its trust is being reloaded".to_owned()))?;
    let name = ServerName::try_from(sni.to_owned())
        .map_err(|_| failed(format!("{sni:?} is no name that a certificate can have")))?;
    let offered = offered.iter().map(|protocol| protocol.to_vec()).collect();
    match TlsConnector::from(Arc::clone(config))
        .with_alpn(offered)
        .connect(name, socket)
        .await
    {
        Ok(tls) => Ok(Box::new(TlsStream::Client(tls))),
        Err(error) => {
            let failure = match tls::failure(&error) {
                TlsFailure::Handshake => ConnectFailure::Tls,
                TlsFailure::Certificate => ConnectFailure::Certificate,
            };
            Err((failure, error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener};

    use tokio::task::LocalSet;
    use usher_core::catalog::PoolIx;
    use usher_core::id::{Id, Kind};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// An endpoint, with the far ends of its connections in hand.
    struct Endpoint {
        view: EndpointView,
        listener: TcpListener,
        addresses: Addresses,
    }

    impl Endpoint {
        fn new() -> Endpoint {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
            let view = EndpointView {
                id: Id::derive("default", Kind::Endpoint, "a"),
                pool: PoolIx(0),
                name: "a".to_owned(),
                address: Address::Ip(Ipv4Addr::LOCALHOST.into()),
                port: Some(listener.local_addr().expect("address").port()),
                host_header: None,
            };
            Endpoint {
                view,
                listener,
                addresses: Addresses::default(),
            }
        }

        fn target(&self) -> Target<'_> {
            let transport = Transport {
                port: self.view.port.expect("port"),
                tls: None,
                http2: false,
            };
            Target {
                endpoint: &self.view,
                transport,
                sni: "",
            }
        }

        async fn connect(&self) -> (Connection, std::net::TcpStream) {
            let timeouts = Timeouts::default();
            let clients = ClientConfigs::default();
            let connection = connect(
                &self.target(),
                &timeouts,
                &self.addresses,
                &clients,
                |_, _| (),
            )
            .await;
            (
                connection.expect("connect"),
                self.listener.accept().expect("accept").0,
            )
        }

        fn take(&self, pool: &Pool) -> Option<SocketAddr> {
            let taken = pool.take(&self.target(), &self.addresses)?;
            Some(taken.io.socket().local_addr().expect("address"))
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        LocalSet::new().block_on(&runtime.expect("runtime"), test);
    }

    #[test]
    fn the_connection_used_last_is_taken_first() {
        run(async {
            let (endpoint, pool) = (Endpoint::new(), Pool::new());
            let (first, _first) = endpoint.connect().await;
            let (second, _second) = endpoint.connect().await;
            let ends = [&first, &second].map(|end| end.io.socket().local_addr().expect("address"));
            pool.put(first, LONG);
            pool.put(second, LONG);
            assert_eq!(pool.idle(), 2);
            assert_eq!(endpoint.take(&pool), Some(ends[1]));
            assert_eq!(endpoint.take(&pool), Some(ends[0]));
            assert_eq!(endpoint.take(&pool), None);
            assert_eq!(pool.idle(), 0);
        });
    }

    #[test]
    fn what_is_old_closed_or_talkative_is_not_used() {
        run(async {
            let (endpoint, pool) = (Endpoint::new(), Pool::new());
            let (old, _old) = endpoint.connect().await;
            pool.put(old, Duration::ZERO);
            assert_eq!(endpoint.take(&pool), None);
            let (closed, far) = endpoint.connect().await;
            drop(far);
            closed.io.socket().readable().await.expect("readable");
            pool.put(closed, LONG);
            assert_eq!(pool.idle(), 0);
            let (talkative, mut far) = endpoint.connect().await;
            far.write_all(b"x").expect("write");
            talkative.io.socket().readable().await.expect("readable");
            pool.put(talkative, LONG);
            assert_eq!(pool.idle(), 0);
        });
    }

    #[test]
    fn another_port_trust_or_name_is_another_connection() {
        run(async {
            let (endpoint, pool) = (Endpoint::new(), Pool::new());
            let (connection, _far) = endpoint.connect().await;
            pool.put(connection, LONG);
            let plain = endpoint.target();
            let mut other_port = plain;
            other_port.transport.port += 1;
            let tls = TlsProfile {
                verify: false,
                sni: None,
                ca: None,
                client_cert: None,
            };
            let mut secure = plain;
            secure.transport.tls = Some(tls);
            for target in [other_port, secure] {
                assert!(pool.take(&target, &endpoint.addresses).is_none());
            }
            let own = secure.identity();
            assert!(secure.is(&own));
            let strict = TlsProfile {
                verify: true,
                ..tls
            };
            for (tls, sni) in [(tls, "other.example.com"), (strict, "")] {
                let mut target = secure;
                (target.transport.tls, target.sni) = (Some(tls), sni);
                assert!(!target.is(&own), "{target:?}");
            }
        });
    }

    #[test]
    fn a_core_keeps_a_bounded_number_to_one_endpoint() {
        run(async {
            let (endpoint, pool) = (Endpoint::new(), Pool::new());
            let mut far = Vec::new();
            for _ in 0..=IDLE_PER_ENDPOINT_MAX {
                let (connection, end) = endpoint.connect().await;
                pool.put(connection, LONG);
                far.push(end);
            }
            assert_eq!(pool.idle(), IDLE_PER_ENDPOINT_MAX);
        });
    }

    #[test]
    fn every_address_is_tried_once_in_order() {
        run(async {
            let endpoint = Endpoint::new();
            let port = endpoint.view.port.expect("port");
            let [bad, good] = [[127, 0, 0, 2], [127, 0, 0, 1]].map(IpAddr::from);
            let socket = connect_any(&[bad, good], port, LONG)
                .await
                .expect("the second");
            assert_eq!(socket.peer_addr().expect("address").ip(), good);
            assert_eq!(
                connect_any(&[bad], port, LONG).await.err(),
                Some(ConnectFailure::Refused)
            );
            assert_eq!(
                connect_any(&[], port, LONG).await.err(),
                Some(ConnectFailure::Unreachable)
            );
        });
    }

    #[test]
    fn a_name_without_address_is_unreachable() {
        run(async {
            let mut endpoint = Endpoint::new();
            endpoint.view.address = Address::Host("nowhere.example.com".to_owned());
            let (timeouts, clients) = (Timeouts::default(), ClientConfigs::default());
            let connected = connect(
                &endpoint.target(),
                &timeouts,
                &endpoint.addresses,
                &clients,
                |_, _| (),
            )
            .await;
            assert_eq!(connected.err(), Some(ConnectFailure::Unreachable));
        });
    }
}
