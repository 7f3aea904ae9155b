//! What a host counts of its browsers since it began.
//!
//! Everything is counted on the host's one thread, and told to whoever asks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use usher_core::lease::close::CloseReason;

use super::wire::{Figures, LAUNCH_MS};

/// Characters of what is said of a browser that did not start.
const SAID_MAX: usize = 400;

#[derive(Debug, Default)]
pub(super) struct Tally {
    figures: Figures,
    drew: Option<Instant>,
}

impl Tally {
    /// `leaked`: processes that an earlier host had left.
    pub(super) fn new(leaked: usize) -> Tally {
        let figures = Figures {
            leaked: leaked as u64,
            launched: vec![0; LAUNCH_MS.len() + 1],
            ..Figures::default()
        };
        Tally {
            figures,
            drew: None,
        }
    }

    /// A browser that began to start so long ago drew its first page.
    pub(super) fn started(&mut self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let class = LAUNCH_MS.iter().take_while(|&&bound| bound < millis);
        if let Some(count) = self.figures.launched.get_mut(class.count()) {
            *count += 1;
        }
        self.figures.launch_ms = self.figures.launch_ms.saturating_add(millis);
        self.figures.failing = None;
        self.drew();
    }

    /// One did not come to that.
    pub(super) fn failed(&mut self, why: &str) {
        self.figures.failures += 1;
        let line = why.lines().collect::<Vec<_>>().join(" ");
        self.figures.failing = Some(line.chars().take(SAID_MAX).collect());
    }

    /// A browser showed that it works.
    pub(super) fn drew(&mut self) {
        self.drew = Some(Instant::now());
    }

    /// One that worked is gone.
    pub(super) fn ended(&mut self, reason: CloseReason) {
        *(self.figures.ended)
            .entry(reason.as_str().to_owned())
            .or_default() += 1;
    }

    /// All of it, with what the way out counted.
    pub(super) fn told(&self, egress: BTreeMap<String, u64>) -> Figures {
        let ago = self.drew.map(|drew| drew.elapsed().as_millis());
        Figures {
            drew_ms_ago: ago.map(|ago| u64::try_from(ago).unwrap_or(u64::MAX)),
            egress,
            ..self.figures.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_works_ends_the_trouble_of_one_that_did_not() {
        let mut tally = Tally::new(2);
        tally.failed("start a browser:\nno such file");
        let told = tally.told(BTreeMap::new());
        assert_eq!((told.failures, told.leaked), (1, 2));
        assert_eq!(
            told.failing.as_deref(),
            Some("start a browser: no such file")
        );
        assert_eq!(told.drew_ms_ago, None);
        tally.started(Duration::from_millis(600));
        tally.started(Duration::from_secs(1_000));
        tally.ended(CloseReason::BrowserIdle);
        let told = tally.told(BTreeMap::from([("denied-port".to_owned(), 3)]));
        assert_eq!(told.failing, None);
        assert!(told.drew_ms_ago.is_some());
        assert_eq!(told.launched.iter().sum::<u64>(), 2);
        let class = LAUNCH_MS.iter().position(|&bound| bound >= 600);
        assert_eq!(told.launched[class.expect("a class")], 1);
        assert_eq!(told.launched.last(), Some(&1));
        assert_eq!(told.ended, BTreeMap::from([("BrowserIdle".to_owned(), 1)]));
        assert_eq!(told.egress["denied-port"], 3);
    }
}
