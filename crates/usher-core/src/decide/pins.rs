//! Pins: whether a visitor has one that holds, and what becomes of it.

use std::ops::ControlFlow;

use super::Case;
use crate::affinity::{COOKIE, Pin, PinKey, Pins, pin_key};
use crate::catalog::{AffinityMode, EndpointIx, PinFailover, PoolIx};
use crate::decision::{Affinity, Attempt, Attempts, PinAction, PinChange, PinOutcome};
use crate::snapshot::{Broken, Counts};
use crate::trace::{PinTrace, StepKind, Tracer};

/// How a visitor stands to pins before anything is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// There are none here.
    Off,
    /// It has none.
    Free { key: Option<PinKey> },
    /// It has one that holds.
    Kept { to: EndpointIx, key: Option<PinKey> },
    /// It had one. `shed` is the pool that pushes it on, if that is why.
    Broken {
        shed: Option<PoolIx>,
        key: Option<PinKey>,
    },
}

/// Why a visitor has no pin that holds.
enum Why {
    None,
    Foreign,
    Expired,
    Gone,
    NotNamed(PoolIx),
    Broken(Broken, EndpointIx),
    Shed(PoolIx),
}

impl<C: Counts> Case<'_, C> {
    pub(super) fn tie(&self, pins: &impl Pins, tracer: &mut impl Tracer) -> Tie {
        let mode = self.plan.affinity;
        let key = match mode {
            AffinityMode::None => {
                if self.assumed.is_some_and(|assumed| assumed.pinned.is_some()) {
                    tracer.step(StepKind::Session, || {
                        "session affinity is off: the assumed session is not looked at".to_owned()
                    });
                }
                return Tie::Off;
            }
            AffinityMode::Cookie | AffinityMode::IpCookie => None,
            AffinityMode::Header => {
                let attributes = self.plan.attributes;
                let (items, all) = (&attributes.headers, attributes.require_all_headers);
                let headers = self.request.headers;
                let key = pin_key(self.hash_key, self.route.id, items, all, headers);
                if key.is_none() {
                    tracer.step(StepKind::Session, || {
                        let carried = if all {
                            "does not carry all"
                        } else {
                            "carries none"
                        };
                        format!("no session: the request {carried} of {items:?}")
                    });
                    return Tie::Off;
                }
                key
            }
        };
        let found = self.holds(key, pins);
        tracer.pin(|| PinTrace {
            kind: mode,
            kept: found.is_ok(),
            reason: self.why_text(&found),
        });
        tracer.step(StepKind::Session, || self.why_text(&found));
        match found {
            Ok(to) => Tie::Kept { to, key },
            Err(Why::None | Why::Foreign | Why::Expired) => Tie::Free { key },
            Err(Why::Shed(pool)) => Tie::Broken {
                shed: Some(pool),
                key,
            },
            Err(Why::Gone | Why::NotNamed(_) | Why::Broken(..)) => Tie::Broken { shed: None, key },
        }
    }

    /// The endpoint of the visitor's pin, if that holds.
    fn holds(&self, key: Option<PinKey>, pins: &impl Pins) -> Result<EndpointIx, Why> {
        let assumed = self.assumed.and_then(|assumed| assumed.pinned);
        let topology = self.snapshot.topology();
        let to = match assumed {
            Some(to) => to,
            None => {
                let found = match key {
                    Some(key) => pins.under_key(key),
                    None => pins.in_cookie(self.route.id),
                };
                let pin: Pin = found.ok_or(Why::None)?;
                if pin.balancer != self.route.id {
                    return Err(Why::Foreign);
                }
                if self.time >= pin.ends() {
                    return Err(Why::Expired);
                }
                let to = topology.endpoint_by_id(pin.endpoint).ok_or(Why::Gone)?;
                let pool = topology.endpoint(to).pool;
                if self.snapshot.catalog().pool(pool).id != pin.pool {
                    return Err(Why::Gone);
                }
                to
            }
        };
        let (pool, place) = topology.place_of(to);
        if !self.pools.contains(&pool) && !self.plan.names(pool) {
            return Err(Why::NotNamed(pool));
        }
        let health = self.snapshot.pool_health(pool);
        health
            .holds_pins(place, self.time, self.plan.attributes.drain)
            .map_err(|broken| Why::Broken(broken, to))?;
        if self.pools.contains(&pool) && self.sheds_pinned(pool) {
            return Err(Why::Shed(pool));
        }
        Ok(to)
    }

    fn why_text(&self, found: &Result<EndpointIx, Why>) -> String {
        let member = |to: EndpointIx| {
            let pool = self.snapshot.endpoint(to).pool;
            format!("{}/{}", self.pool_name(pool), self.endpoint_name(to))
        };
        match found {
            Ok(to) => format!("the session with {} is kept", member(*to)),
            Err(Why::None) if self.presents_cookie() => format!(
                "no session: the cookie {COOKIE} cannot be opened: it is damaged, of another load balancer, or sealed with a key that is not known here"
            ),
            Err(Why::None) => "there is no session yet".to_owned(),
            Err(Why::Foreign) => "the session is of another load balancer".to_owned(),
            Err(Why::Expired) => "the session has expired".to_owned(),
            Err(Why::Gone) => "the session's endpoint does not exist any more".to_owned(),
            Err(Why::NotNamed(pool)) => format!(
                "the session's pool {:?} is not one of this request's",
                self.pool_name(*pool)
            ),
            Err(Why::Broken(Broken::Pool, to)) => {
                let pool = self.snapshot.endpoint(*to).pool;
                let state = self.snapshot.pool_health(pool).state;
                format!("the session's pool {:?} is {state}", self.pool_name(pool))
            }
            Err(Why::Broken(Broken::Unhealthy, to)) => {
                let reason = self.snapshot.endpoint_health(*to).reason_shown();
                format!(
                    "the session's endpoint {} does not work: {reason}",
                    member(*to)
                )
            }
            Err(Why::Broken(Broken::Disabled, to)) => {
                format!("the session's endpoint {} is disabled", member(*to))
            }
            Err(Why::Shed(pool)) => {
                format!("pool {:?} sheds the session", self.pool_name(*pool))
            }
        }
    }

    /// Whether the request has the cookie of a session, whatever is in it.
    fn presents_cookie(&self) -> bool {
        let by_cookie = matches!(
            self.plan.affinity,
            AffinityMode::Cookie | AffinityMode::IpCookie
        );
        let named = |pair: &[u8]| {
            let after = pair.trim_ascii_start().strip_prefix(COOKIE.as_bytes());
            after.is_some_and(|after| after.starts_with(b"="))
        };
        let mut found = false;
        self.request.headers.visit(&mut |name, line| {
            found |=
                name.eq_ignore_ascii_case(b"cookie") && line.split(|&byte| byte == b';').any(named);
            ControlFlow::Continue(())
        });
        by_cookie && found
    }

    /// What becomes of a pinned request when its endpoint cannot be connected to. Where rules have
    /// put together what no load balancer may ask for, the pin in the table stays.
    pub(super) fn pin_failover(&self) -> PinFailover {
        match (self.plan.attributes.failover, self.plan.affinity) {
            (PinFailover::Sticky, AffinityMode::Header) => PinFailover::Temporary,
            (failover, _) => failover,
        }
    }

    /// What is to be done about the pin, whichever attempt serves.
    pub(super) fn affinity(&self, tie: &Tie, attempts: Attempts) -> Affinity {
        let action = |to: Attempt, key: Option<PinKey>| PinAction {
            to,
            since: self.time,
            ttl: self.plan.ttl,
            key,
            marks: self.plan.attributes.marks,
        };
        let change = |outcome, action| PinChange { outcome, action };
        let first = attempts.first;
        match *tie {
            Tie::Off => Affinity::NONE,
            Tie::Kept { key, .. } => {
                // A pin in a table slides; one in a cookie is fixed, unless a rule names its time.
                let renewed = key.is_some() || self.plan.ttl_renews;
                let kept = change(PinOutcome::Kept, renewed.then(|| action(first, key)));
                let retry = match (attempts.retry, self.pin_failover()) {
                    (Some(to), PinFailover::Sticky) => {
                        change(PinOutcome::Moved, Some(action(to, key)))
                    }
                    _ => kept,
                };
                Affinity { first: kept, retry }
            }
            Tie::Free { key } | Tie::Broken { key, .. } => {
                let outcome = match tie {
                    Tie::Broken { .. } => PinOutcome::Moved,
                    _ => PinOutcome::New,
                };
                let to = |to| change(outcome, Some(action(to, key)));
                Affinity {
                    first: to(first),
                    retry: to(attempts.retry.unwrap_or(first)),
                }
            }
        }
    }
}
