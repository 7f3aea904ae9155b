//! One process follows another without a client noticing: the sockets and the verdicts move.
//!
//! The old process starts the new one with one end of a socket pair as its standard input and gives
//! it its [`Estate`]: every listening socket, and what is known of every endpoint. The new one
//! prepares everything with it, accepts nothing, and says when it is ready; only then does the old
//! one stop accepting. So a new process that fails, at whatever point, costs nothing: until its word
//! of being ready has arrived the old one has changed nothing, and a word that comes too late finds
//! the pair closed and cannot be sent.
//!
//! The sockets are the same for both, so their queues are, too: whoever accepts takes the next
//! connection, and none is lost when one of the two closes its descriptor.
//!
//! What is said is text, a packet a thing, and words that a build does not know are passed over: the
//! two processes may be of different versions.

mod line;
mod predecessor;
mod program;
mod successor;
mod verdict;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use usher_core::engine::Known;
use usher_core::id::Id;
use usher_core::time::Wall;

use crate::listeners::Part;
pub use predecessor::Predecessor;
pub use program::Program;
pub use successor::{Heir, Successor};

/// Set in the environment of a process whose standard input is the line to its predecessor.
pub(crate) const VARIABLE: &str = "USHER_HANDOVER";

/// The first packet: what this is, and in which version.
const GREETING: &str = "usher hand-over 1";

/// How long either side waits for the other's next word, while nothing has been said of a longer
/// wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one process leaves to the next.
#[derive(Debug, Default)]
pub struct Estate {
    pub(crate) listeners: Vec<Bequest>,
    pub(crate) known: Vec<Known>,
    /// Endpoints that were seen being turned off, and when: their sessions stay as long as they may.
    pub(crate) drains: Vec<(Id, Wall)>,
    /// Of endpoints that are hostnames: a name server that is silent at the wrong moment must not
    /// take them out of service.
    pub(crate) addresses: Vec<(String, Vec<IpAddr>)>,
    /// What the clocks of waiting rooms show, ms since the Unix epoch; 0 where there is none. It may
    /// be later than what the system says, and never goes back.
    pub(crate) rooms_clock: u64,
    /// People who are signed in to the dashboard, each as `SignIns` writes it.
    pub(crate) sign_ins: Vec<String>,
}

/// A listener that another process opened.
#[derive(Debug)]
pub(crate) struct Bequest {
    /// How the two processes call it.
    pub(crate) number: usize,
    pub(crate) part: Part,
    /// The address that the configuration asked for.
    pub(crate) wanted: SocketAddr,
    pub(crate) sockets: Vec<TcpListener>,
}

/// Why no other process has taken this one's place, or this one no other's.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The binary cannot be run.
    #[error("start {path}")]
    Start {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The listening sockets cannot be duplicated.
    #[error("duplicate the listening sockets")]
    Sockets(#[source] io::Error),
    /// The other process cannot be spoken to.
    #[error("speak to the other process")]
    Line(#[source] io::Error),
    /// The new process ended; it has said why on its standard error.
    #[error("the new process ended before it was ready: {0}")]
    Ended(ExitStatus),
    /// The new process took too long.
    #[error("the new process was not ready in time")]
    Late,
    /// This process was told to stop meanwhile.
    #[error("called off")]
    CalledOff,
    /// Standard input is not what the environment says that it is.
    #[error("{VARIABLE} is set, but standard input is no line to another usher; unset it")]
    NoLine,
    /// The old process goes on by itself.
    #[error("the process that this one was to follow goes on by itself")]
    Unwanted,
}
