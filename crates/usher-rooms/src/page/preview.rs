//! What a page looks like before anybody waits: views made up from the words of a preview's query.

use std::time::Duration;

use usher_core::time::Wall;

use crate::view::{Event, Method, Stage, View, Wait};

/// `Content-Security-Policy` of a preview. The page is somebody's draft: it runs in an origin of
/// its own, and reaches nobody with what it may have learnt.
pub const POLICY: &str = "sandbox allow-scripts; connect-src 'none'; form-action 'none'; \
                          base-uri 'none'";

/// Stands in for the site in previews.
pub const WELCOME: &str = include_str!("welcome.html");

/// What a preview's query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preview {
    force_queue: bool,
    queue_is_full: bool,
    method: Method,
    /// `Some(true)` once the event has started.
    event: Option<bool>,
    shuffle: bool,
    wait_minutes: u64,
}

/// A word of the query that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value} is not {wanted}")]
pub struct PreviewFault {
    /// The parameter.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub wanted: &'static str,
}

/// Minutes of wait where the query names none.
const WAIT_DEFAULT: u64 = 10;
/// Minutes of wait that can be shown: a year.
const WAIT_MAX: u64 = 525_600;

impl Preview {
    /// Reads the query of a preview, without its `?`. Parameters of other names are ignored.
    ///
    /// # Errors
    ///
    /// The first parameter with a value that it cannot have.
    pub fn parse(query: &str) -> Result<Preview, PreviewFault> {
        let mut preview = Preview {
            force_queue: false,
            queue_is_full: false,
            method: Method::Fifo,
            event: None,
            shuffle: false,
            wait_minutes: WAIT_DEFAULT,
        };
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "force_queue" => preview.force_queue = flag("force_queue", value)?,
                "queue_is_full" => preview.queue_is_full = flag("queue_is_full", value)?,
                "queueing_method" => preview.method = method(value)?,
                "event" => preview.event = event(value)?,
                "shuffle_at_event_start" => {
                    preview.shuffle = flag("shuffle_at_event_start", value)?;
                }
                "waitTime" => preview.wait_minutes = minutes(value)?,
                _ => {}
            }
        }
        if preview.shuffle && preview.event.is_none() {
            return Err(fault(
                "shuffle_at_event_start",
                "true",
                "possible without event=prequeueing or event=started",
            ));
        }
        Ok(preview)
    }

    /// What the preview shows at `now`; `None` is [`WELCOME`]: the visitor would not wait.
    #[must_use]
    pub fn view(&self, now: Wall) -> Option<View<'static>> {
        let prequeueing = self.event == Some(false);
        let queues = self.force_queue || prequeueing;
        if self.method == Method::Passthrough && !queues {
            return None;
        }
        let stage = if prequeueing {
            Stage::Prequeue
        } else if self.force_queue {
            Stage::Held
        } else if self.method == Method::Reject {
            Stage::Rejected
        } else if self.queue_is_full {
            Stage::Full
        } else {
            Stage::Waiting
        };
        let mid_secs = self.wait_minutes * 60;
        let random = self.method == Method::Random;
        let minutes = self.wait_minutes;
        let quarter = minutes.div_ceil(2);
        let wait = Wait {
            low_secs: mid_secs * 4 / 5,
            mid_secs,
            high_secs: mid_secs * 6 / 5,
            minutes,
            percentiles: random.then_some([quarter, minutes, minutes + quarter]),
        };
        let shown = stage == Stage::Waiting;
        let hour = Duration::from_secs(3600);
        Some(View {
            stage,
            method: self.method,
            queue_all: self.force_queue,
            now,
            last_updated: now,
            refresh_secs: if stage == Stage::Rejected { 0 } else { 20 },
            position: (shown && !random).then_some(42),
            ahead_present: 41,
            ahead_away: 0,
            wait: shown.then_some(wait),
            guaranteed_by: None,
            moved: shown.then_some(now),
            claim_by: None,
            reason: None,
            event: self.event.map(|started| Event {
                starts: if started { now } else { now.after(hour) },
                ends: now.after(hour * 2),
                shuffle: self.shuffle,
            }),
            turnstile: "",
            infinite_queue: false,
        })
    }
}

fn flag(name: &'static str, value: &str) -> Result<bool, PreviewFault> {
    match value {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(fault(name, value, "true or false")),
    }
}

fn method(value: &str) -> Result<Method, PreviewFault> {
    let mut all = Method::ALL.into_iter();
    all.find(|method| method.as_str().eq_ignore_ascii_case(value))
        .ok_or_else(|| {
            let wanted = "fifo, random, passthrough or reject";
            fault("queueing_method", value, wanted)
        })
}

fn event(value: &str) -> Result<Option<bool>, PreviewFault> {
    match value {
        "none" => Ok(None),
        "prequeueing" => Ok(Some(false)),
        "started" => Ok(Some(true)),
        _ => Err(fault("event", value, "none, prequeueing or started")),
    }
}

fn minutes(value: &str) -> Result<u64, PreviewFault> {
    let minutes = value.parse().ok();
    minutes
        .filter(|minutes| (1..=WAIT_MAX).contains(minutes))
        .ok_or_else(|| fault("waitTime", value, "a number of minutes from 1 to 525600"))
}

fn fault(name: &'static str, value: &str, wanted: &'static str) -> PreviewFault {
    let value = value.to_owned();
    PreviewFault {
        name,
        value,
        wanted,
    }
}
