//! Tells a service manager how it goes: the protocol of `sd_notify(3)`.
//!
//! A datagram of `KEY=VALUE` lines to the socket that `NOTIFY_SOCKET` names; its libraries do no
//! more. Nobody waits for the manager: what it does not take at once is not said.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    /// To the manager that the environment names; without one, nothing is said.
    #[must_use]
    pub fn of_environment() -> Notify {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Notify(None);
        };
        // An abstract name is written with @ for its leading zero byte.
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&name),
        };
        let way = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok((socket, address))
        });
        Notify(
            way.inspect_err(|error| {
                tracing::warn!(%error, ?name, "NOTIFY_SOCKET cannot be used");
            })
            .ok(),
        )
    }

    /// The process serves; said again at the end of a reload.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// The process reads its configuration again.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The process is about to end, and none follows it.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Another process serves from now on: the manager is to follow that one.
    pub fn followed_by(&self, pid: u32) {
        self.say(&format!("MAINPID={pid}"));
    }

    fn say(&self, state: &str) {
        let Some((socket, address)) = &self.0 else {
            return;
        };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "the service manager cannot be told {state:?}");
        }
    }
}
