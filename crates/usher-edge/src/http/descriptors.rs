//! File descriptors: as many as the process may have.
//!
//! Systems still start processes with a soft limit of 1024 for the sake of programs that use
//! `select`, and mean the hard limit for everybody else. Without this, `limits.connections` would
//! be out of reach on nearly every machine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Descriptors for all that is not a client connection or its way to an endpoint.
const OTHERS: u64 = 256;

/// Raises the soft limit to the hard one, and warns when `connections` cannot be had all the same.
pub(crate) fn raise(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )
    {
        debug!(%error, "the limit of file descriptors stays as it is");
    }
    let wanted = 2 * connections as u64 + OTHERS;
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if allowed < wanted {
        warn!(
            allowed,
            wanted,
            "limits.connections is {connections}, for which this process has too few file \
             descriptors; raise its limit (LimitNOFILE, ulimit -n) or accepting will pause sooner"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise(1);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
