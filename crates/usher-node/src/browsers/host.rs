//! The browsers of this machine, as a process of their own.
//!
//! It outlives the process that serves, so that sessions do; it is found again by its socket.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;

use usher_browsers::browser::{Launcher, LauncherFault};
use usher_browsers::host;
use usher_browsers::settings::Settings;
use usher_egress::{Deadlines, Egress};

/// Why no browsers run.
#[derive(Debug, thiserror::Error)]
pub enum HostFault {
    /// The machine lacks something, or the folder cannot be used.
    #[error(transparent)]
    Launcher(#[from] LauncherFault),
    /// The socket cannot be made.
    #[error("the browser host's socket")]
    Io(#[from] io::Error),
}

/// Runs browsers until `stop`, or until a broker has drained them. `own`: where this installation
/// listens for what no page is to reach. `warn` is told what an operator should know; `ready` is
/// called once the socket is there.
///
/// Has to run on a single-threaded runtime, on the first thread of its process: browsers die with
/// the thread that started them.
///
/// # Errors
/// See [`HostFault`].
pub async fn host(
    settings: Settings,
    own: impl IntoIterator<Item = SocketAddr>,
    stop: impl Future<Output = ()>,
    mut warn: impl FnMut(String),
    ready: impl FnOnce(),
) -> Result<(), HostFault> {
    let egress = Egress::new(Deadlines::default());
    egress.own_listeners(own);
    let launcher = Launcher::prepare(settings, Box::new(egress)).await?;
    launcher.warnings().into_iter().for_each(&mut warn);
    let mut running = pin!(host::run(launcher, stop));
    let mut ready = Some(ready);
    // The socket is made at the first poll.
    let ran = poll_fn(|context| {
        let polled = running.as_mut().poll(context);
        if let Some(ready) = ready.take().filter(|_| polled.is_pending()) {
            ready();
        }
        polled
    });
    Ok(ran.await?)
}
