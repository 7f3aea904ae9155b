//! How often one token may call.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use usher_store::token::Digest;

/// Calls a second.
const RATE: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");

/// Calls at once, after a pause.
const BURST: NonZeroU32 = NonZeroU32::new(2000).expect("not zero");

/// The rates of all tokens that have called. Only tokens that open something get here, so there are
/// as many as the operator made.
#[derive(Default)]
pub(crate) struct Rates {
    by_token: Mutex<HashMap<[u8; Digest::LEN], Arc<DefaultDirectRateLimiter>>>,
}

impl Rates {
    /// Counts a call of that token.
    ///
    /// # Errors
    /// It called too often; how long until it may again.
    pub(crate) fn admit(&self, token: &Digest) -> Result<(), Duration> {
        let limiter = {
            let mut rates = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || {
                let quota = Quota::per_second(RATE).allow_burst(BURST);
                Arc::new(RateLimiter::direct(quota))
            };
            Arc::clone(rates.entry(*token.as_bytes()).or_insert_with(new))
        };
        let wait = |late: governor::NotUntil<_>| late.wait_time_from(DefaultClock::default().now());
        limiter.check().map_err(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_that_calls_too_often_does_not_hinder_another() {
        let rates = Rates::default();
        let (busy, other) = (Digest::of("busy"), Digest::of("other"));
        // However fast this runs, at some point the burst is used up.
        let refused = (0..100_000_000).find_map(|_| rates.admit(&busy).err());
        assert!(refused.is_some_and(|wait| wait <= Duration::from_secs(1)));
        assert_eq!(rates.admit(&other), Ok(()));
    }
}
