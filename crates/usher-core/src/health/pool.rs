//! The state of a pool, by counting its endpoints.

use std::fmt;

/// What is known of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolState {
    /// Every enabled endpoint is healthy.
    Healthy,
    /// Some are not, but enough are.
    Degraded,
    /// Too few are: no traffic, except as the fallback pool.
    Critical,
    /// No monitor (gets traffic), or no result yet (gets none).
    Unknown,
    /// Turned off.
    Disabled,
}

impl PoolState {
    /// Every state.
    pub const ALL: [PoolState; 5] = [
        PoolState::Healthy,
        PoolState::Degraded,
        PoolState::Critical,
        PoolState::Unknown,
        PoolState::Disabled,
    ];

    /// The word for it in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PoolState::Healthy => "healthy",
            PoolState::Degraded => "degraded",
            PoolState::Critical => "critical",
            PoolState::Unknown => "unknown",
            PoolState::Disabled => "disabled",
        }
    }
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a pool is in its state. Its `Display` is one sentence for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolReason {
    /// It is turned off.
    Disabled,
    /// Nobody judges its endpoints.
    NoMonitor,
    /// No endpoint has a result yet.
    Pending,
    /// It has no enabled endpoint.
    NoneEnabled,
    /// `healthy` of `enabled` endpoints work, and `minimum` have to.
    Counted {
        /// Healthy enabled endpoints.
        healthy: u32,
        /// Enabled endpoints.
        enabled: u32,
        /// The pool's threshold.
        minimum: u32,
    },
    /// Somebody asked what would be if.
    Assumed,
}

impl fmt::Display for PoolReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolReason::Disabled => f.write_str("disabled"),
            PoolReason::NoMonitor => f.write_str("no monitor"),
            PoolReason::Pending => f.write_str("no result yet"),
            PoolReason::NoneEnabled => f.write_str("no endpoint is enabled"),
            PoolReason::Counted {
                healthy,
                enabled,
                minimum,
            } => {
                write!(
                    f,
                    "{healthy} of {enabled} endpoints healthy, minimum {minimum}"
                )
            }
            PoolReason::Assumed => f.write_str("assumed"),
        }
    }
}

/// The state of an enabled, monitored pool. Source: load-balancing specification 6.6.
///
/// `pending` is the number of enabled endpoints without a result; they are not healthy, and when
/// there is nothing else the pool is unknown.
#[must_use]
pub fn pool_state(
    healthy: u32,
    pending: u32,
    enabled: u32,
    minimum: u32,
) -> (PoolState, PoolReason) {
    let counted = PoolReason::Counted {
        healthy,
        enabled,
        minimum,
    };
    if enabled == 0 {
        (PoolState::Critical, PoolReason::NoneEnabled)
    } else if pending == enabled {
        (PoolState::Unknown, PoolReason::Pending)
    } else if healthy < minimum || (healthy == 0 && minimum > 0) {
        (PoolState::Critical, counted)
    } else if healthy < enabled {
        (PoolState::Degraded, counted)
    } else {
        (PoolState::Healthy, counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting() {
        // healthy, pending, enabled, minimum
        let cases = [
            ((3, 0, 3, 1), PoolState::Healthy),
            ((2, 0, 3, 1), PoolState::Degraded),
            ((1, 0, 3, 1), PoolState::Degraded),
            ((0, 0, 3, 1), PoolState::Critical),
            ((2, 0, 3, 3), PoolState::Critical),
            ((1, 0, 1, 2), PoolState::Critical),
            ((0, 3, 3, 1), PoolState::Unknown),
            ((1, 2, 3, 1), PoolState::Degraded),
            ((0, 2, 3, 1), PoolState::Critical),
            ((0, 0, 0, 1), PoolState::Critical),
            ((0, 0, 0, 0), PoolState::Critical),
            ((0, 0, 2, 0), PoolState::Degraded),
            ((0, 2, 2, 0), PoolState::Unknown),
        ];
        for ((healthy, pending, enabled, minimum), state) in cases {
            let (found, _) = pool_state(healthy, pending, enabled, minimum);
            assert_eq!(found, state, "{healthy} {pending} {enabled} {minimum}");
        }
    }
}
