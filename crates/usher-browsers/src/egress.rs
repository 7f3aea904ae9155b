//! The egress proxy as the way out of a browser's network.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use usher_core::lease::{BrowserId, SessionId};
use usher_egress::{Door, Egress, Policy};

use crate::exit::{Exit, Way};

impl Exit for Egress {
    fn open(&self, browser: BrowserId, listener: TcpListener) -> Box<dyn Way> {
        let exit = Egress::open(self);
        let served = exit.clone();
        let serving = tokio::spawn(async move {
            if let Err(error) = served.serve(Door::Port(listener, None)).await {
                tracing::error!(?browser, %error, "a browser has no way out any more");
            }
        });
        Box::new(Passage { exit, serving })
    }

    fn own(&self, listeners: Vec<SocketAddr>) {
        self.own_listeners(listeners);
    }

    fn refused(&self) -> BTreeMap<String, u64> {
        let counted = self.counts().filter(|&(_, count)| count > 0);
        counted
            .map(|(cause, count)| (cause.as_str().to_owned(), count))
            .collect()
    }
}

struct Passage {
    exit: usher_egress::Exit,
    serving: JoinHandle<()>,
}

impl Way for Passage {
    fn lend(&mut self, _: SessionId, guardrails: &str) -> Result<(), String> {
        let policy = Policy::read(guardrails).map_err(|fault| fault.to_string())?;
        self.exit.admit(policy).map_err(|fault| fault.to_string())
    }

    fn cause(&self, host: &str, within: Duration) -> Option<String> {
        let refusal = self.exit.why(host, None)?;
        // A clock that was set back says nothing of how long ago it was.
        let recent = refusal.at.elapsed().is_ok_and(|ago| ago <= within);
        recent.then(|| refusal.cause.net_error().to_owned())
    }

    fn traffic(&self) -> (u64, u64) {
        let usage = self.exit.usage();
        (usage.sent, usage.received)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
