//! From a target to a connection: judge the name, ask once for its addresses, judge them all,
//! connect to one of them.
//!
//! One denied address denies the name. A name that is public and private at once is not what it
//! seems, and trying its better half would only tell its owner that the trick is known.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cause::Cause;
use crate::exit::Inner;
use crate::inbox::Inbox;
use crate::own::is_own;
use crate::policy::Policy;
use crate::target::Target;

/// Between the start of one attempt and of the next address's (RFC 8305 recommends 250 ms).
const STAGGER: Duration = Duration::from_millis(250);

/// A connection to a server, held to be within the limit of its browser.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) target: Target,
    pub(crate) reader: OwnedReadHalf,
    pub(crate) writer: OwnedWriteHalf,
    pub(crate) inbox: Inbox,
    _place: OwnedSemaphorePermit,
}

impl Upstream {
    /// Whether nothing came since the last answer: neither an end nor bytes that belong to none.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        self.inbox.filled().is_empty()
            && matches!(self.reader.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Why there is no connection, and the address that was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) cause: Cause,
    pub(crate) address: Option<IpAddr>,
}

impl From<Cause> for Denied {
    fn from(cause: Cause) -> Denied {
        Denied {
            cause,
            address: None,
        }
    }
}

/// Connects to `target` for the browser of `exit`.
pub(crate) async fn dial(exit: &Arc<Inner>, target: &Target) -> Result<Upstream, Denied> {
    let policy = exit.policy.get().ok_or(Cause::Unassigned)?;
    policy.judge_name(target)?;
    if exit.meter.is_spent(policy.traffic_max) {
        return Err(Cause::Traffic.into());
    }
    let place = exit.place().ok_or(Cause::Connections)?;
    let addresses = addresses(exit, target).await?;
    for &ip in addresses.iter() {
        if !may_reach(exit, policy, ip, target.port()) {
            return Err(Denied {
                cause: Cause::Address,
                address: Some(ip),
            });
        }
    }
    let stream = connect(exit, &addresses, target.port()).await?;
    // Small answers must not wait for a full segment.
    let _ = stream.set_nodelay(true);
    exit.connected();
    let (reader, writer) = stream.into_split();
    Ok(Upstream {
        target: target.clone(),
        reader,
        writer,
        inbox: Inbox::default(),
        _place: place,
    })
}

/// The one place where an address passes.
fn may_reach(exit: &Inner, policy: &Policy, ip: IpAddr, port: u16) -> bool {
    if !policy.allows(&exit.shared.ranges, ip) {
        return false;
    }
    // What is our own is private, whatever its range; and where we listen ourselves nothing opens.
    !is_own(ip) || (policy.opens(ip) && !exit.shared.listens(port))
}

async fn addresses(exit: &Inner, target: &Target) -> Result<Arc<[IpAddr]>, Cause> {
    if let Some(ip) = target.ip() {
        return Ok([ip].into());
    }
    // Waiting for other questions of this browser counts too, so that a page that asks for
    // thousands of names waits and does not pile up.
    let asked = timeout(
        exit.shared.deadlines.name,
        exit.lookup.addresses(target.host()),
    )
    .await;
    match asked {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) if error.source.kind() == io::ErrorKind::TimedOut => Err(Cause::NameTimeout),
        Ok(Err(_)) => Err(Cause::Name),
        Err(_) => Err(Cause::NameTimeout),
    }
}

/// Tries the addresses in order, the next one when one fails or [`STAGGER`] has passed; the first
/// connection wins, and the last fault is told if none does.
async fn connect(exit: &Inner, addresses: &[IpAddr], port: u16) -> Result<TcpStream, Cause> {
    let mut left = addresses.iter();
    let mut attempts = JoinSet::new();
    let mut last = Cause::Connect;
    let race = async {
        loop {
            if let Some(&ip) = left.next() {
                attempts.spawn(TcpStream::connect(SocketAddr::new(ip, port)));
            }
            let turn = async {
                match left.len() {
                    0 => std::future::pending().await,
                    _ => sleep(STAGGER).await,
                }
            };
            tokio::select! {
                biased;
                ended = attempts.join_next() => match ended {
                    Some(Ok(Ok(stream))) => return Ok(stream),
                    Some(Ok(Err(error))) => last = cause_of(&error),
                    Some(Err(_)) => {}
                    None => return Err(last),
                },
                () = turn => {}
            }
        }
    };
    let ended = timeout(exit.shared.deadlines.connect, race).await;
    ended.unwrap_or(Err(Cause::ConnectTimeout))
}

fn cause_of(error: &io::Error) -> Cause {
    use io::ErrorKind::*;
    match error.kind() {
        ConnectionRefused => Cause::Refused,
        HostUnreachable | NetworkUnreachable | NetworkDown | AddrNotAvailable => Cause::Unreachable,
        TimedOut => Cause::ConnectTimeout,
        _ => Cause::Connect,
    }
}
