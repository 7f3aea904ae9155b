//! Never more than so many in any minute, exactly.
//!
//! A bucket lets a burst through beside its rate, so it cannot promise this. The moments of the last
//! grants can: as many as the limit are enough, because the oldest of them says when the next may
//! be. A limit is small (60 by default, bounded by [`GRANTS_MAX`]), so the moments are simply kept.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Wall;

/// The span that the limit is for.
pub const SPAN: Duration = Duration::from_secs(60);
/// The largest limit that is counted; a larger one acts as this one.
pub const GRANTS_MAX: u32 = 6_000;

/// The moments of the last grants, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    grants: VecDeque<Wall>,
}

impl Window {
    /// Forgets what is older than the span. Moments after `now` become `now`: the clock went back,
    /// and how much of them is past cannot be told.
    pub fn pass(&mut self, now: Wall) {
        for grant in self.grants.iter_mut().rev() {
            if *grant <= now {
                break;
            }
            *grant = now;
        }
        while self
            .grants
            .front()
            .is_some_and(|&first| now.since(first) >= SPAN)
        {
            self.grants.pop_front();
        }
    }

    /// How long until one more fits under `limit`; zero when it does. Right after [`Window::pass`].
    #[must_use]
    pub fn wait(&self, limit: u32, now: Wall) -> Duration {
        let limit = limit.clamp(1, GRANTS_MAX) as usize;
        match self.grants.len().checked_sub(limit) {
            None => Duration::ZERO,
            Some(over) => SPAN.saturating_sub(now.since(self.grants[over])),
        }
    }

    /// Counts one.
    pub fn grant(&mut self, now: Wall) {
        self.grants.push_back(now);
        if self.grants.len() > GRANTS_MAX as usize {
            self.grants.pop_front();
        }
    }

    /// Takes one back that bought nothing: the youngest.
    pub fn refund(&mut self) {
        self.grants.pop_back();
    }

    /// The moments, oldest first, as a store keeps them.
    pub fn kept(&self) -> impl Iterator<Item = Wall> + '_ {
        self.grants.iter().copied()
    }

    /// The window that [`Window::kept`] told of.
    #[must_use]
    pub fn of_kept(grants: impl IntoIterator<Item = Wall>) -> Window {
        Window {
            grants: grants.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: no span of 60 s holds more than the limit, and nobody is turned
        /// away where the definition would let them in.
        #[test]
        fn as_the_definition_says(
            pauses in proptest::collection::vec(0_i64..9_000, 1..150),
            limit in 1_u32..12,
        ) {
            let mut window = Window::default();
            let mut granted: Vec<i64> = Vec::new();
            let mut now = 0;
            for pause in pauses {
                now += pause;
                let at = Wall::from_millis(now);
                window.pass(at);
                let recent = granted.iter().filter(|&&grant| grant > now - 60_000).count();
                let fits = recent < limit as usize;
                let wait = window.wait(limit, at);
                prop_assert_eq!(wait.is_zero(), fits);
                if fits {
                    window.grant(at);
                    granted.push(now);
                } else {
                    // The wait is exact: a millisecond less would be too soon.
                    let then = now + wait.as_millis() as i64;
                    let held = |then: i64| granted.iter().filter(|&&grant| grant > then - 60_000).count();
                    prop_assert!(held(then) < limit as usize);
                    prop_assert!(held(then - 1) >= limit as usize);
                }
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_holds_nobody_for_longer_than_the_span() {
        let mut window = Window::default();
        for _ in 0..3 {
            window.grant(Wall::from_millis(10_000_000));
        }
        let now = Wall::from_millis(0);
        window.pass(now);
        assert_eq!(window.wait(3, now), SPAN);
        let later = now.after(SPAN);
        window.pass(later);
        assert_eq!(window.wait(3, later), Duration::ZERO);
    }
}
