//! What a template can speak of.

use std::borrow::Cow;

use super::Facts;
use crate::json::{self, english};
use crate::view::{Method, View};

/// A value of one moment. What prints nothing, zero and `false` do not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Nothing,
    Bool(bool),
    Number(u64),
    Text(Cow<'a, str>),
}

impl Value<'_> {
    pub(super) fn holds(&self) -> bool {
        match self {
            Value::Nothing => false,
            Value::Bool(holds) => *holds,
            Value::Number(number) => *number != 0,
            Value::Text(text) => !text.is_empty(),
        }
    }

    pub(super) fn print(&self, raw: bool, out: &mut Vec<u8>) {
        match self {
            Value::Nothing => {}
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Number(number) => {
                out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
            }
            Value::Text(text) if raw => out.extend_from_slice(text.as_bytes()),
            Value::Text(text) => crate::page::escape(text, out),
        }
    }
}

macro_rules! variables {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal,)*) => {
        /// A name that a template can print or ask.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Variable {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Variable {
            /// Every variable.
            pub const ALL: &'static [Variable] = &[$(Variable::$variant),*];

            /// The name in a template.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Variable::$variant => $name,)*
                }
            }
        }
    };
}

variables! {
    /// `true`: the page is only shown to those who wait.
    InWaitingRoom "inWaitingRoom",
    /// An estimate exists.
    WaitTimeKnown "waitTimeKnown",
    /// Minutes; 0 when unknown.
    WaitTime "waitTime",
    /// Whole hours of `waitTime`.
    WaitTimeHours "waitTimeHours",
    /// Minutes of `waitTime` beyond the hours.
    WaitTimeHourMinutes "waitTimeHourMinutes",
    /// Minutes that the quickest quarter waits at most; only of a draw.
    WaitTime25 "waitTime25Percentile",
    /// Minutes that the quicker half waits at most; only of a draw.
    WaitTime50 "waitTime50Percentile",
    /// Minutes that the quickest three quarters wait at most; only of a draw.
    WaitTime75 "waitTime75Percentile",
    /// The wait in English words.
    WaitTimeFormatted "waitTimeFormatted",
    /// The wait in words of the page's language.
    WaitTimeFormattedLocalized "waitTimeFormattedLocalized",
    /// Nobody can join the line.
    QueueIsFull "queueIsFull",
    /// The operator holds everybody.
    QueueAll "queueAll",
    /// When the last attempt counted, ISO 8601.
    LastUpdated "lastUpdated",
    /// Seconds until the next attempt counts.
    RefreshIntervalSeconds "refreshIntervalSeconds",
    /// The method's word.
    QueueingMethod "queueingMethod",
    /// The longest wait enters first.
    IsFifoQueue "isFIFOQueue",
    /// Who enters is drawn.
    IsRandomQueue "isRandomQueue",
    /// Everybody enters.
    IsPassthroughQueue "isPassthroughQueue",
    /// Nobody enters.
    IsRejectQueue "isRejectQueue",
    /// An event acts, its prequeue counted.
    IsEventActive "isEventActive",
    /// An event acts and has not started.
    IsEventPrequeueing "isEventPrequeueing",
    /// Minutes, rounded up.
    TimeUntilEventStart "timeUntilEventStart",
    /// In English words.
    TimeUntilEventStartFormatted "timeUntilEventStartFormatted",
    /// Minutes, rounded up.
    TimeUntilEventEnd "timeUntilEventEnd",
    /// In English words.
    TimeUntilEventEndFormatted "timeUntilEventEndFormatted",
    /// Places are drawn at the start.
    ShuffleAtEventStart "shuffleAtEventStart",
    /// The HTML of the challenge, to be printed raw.
    Turnstile "turnstile",
    /// The visitor is never let in.
    InfiniteQueue "infiniteQueue",
    /// The place in line.
    Position "position",
    /// Minutes; one in ten waits less.
    WaitLow "waitLow",
    /// Minutes; one in ten waits longer.
    WaitHigh "waitHigh",
    /// Why things changed: a word for programs.
    Reason "reason",
    /// Language of the page.
    Language "language",
    /// Name of the room.
    RoomName "roomName",
    /// What scripts and styles carry to be allowed.
    CspNonce "cspNonce",
}

impl Variable {
    /// The variable of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Variable> {
        let mut all = Variable::ALL.iter().copied();
        all.find(|variable| variable.name() == name)
    }

    pub(super) fn value<'a>(self, view: &View<'a>, facts: &Facts<'a>) -> Value<'a> {
        use Variable as V;
        let minutes = view.wait_minutes();
        let percentile =
            |ix: usize| Value::Number(view.percentiles().map_or(0, |percentiles| percentiles[ix]));
        let text = |text: &'a str| Value::Text(Cow::Borrowed(text));
        let written = |text: String| Value::Text(Cow::Owned(text));
        match self {
            V::InWaitingRoom => Value::Bool(view.outside()),
            V::WaitTimeKnown => Value::Bool(view.wait.is_some()),
            V::WaitTime => Value::Number(minutes),
            V::WaitTimeHours => Value::Number(minutes / 60),
            V::WaitTimeHourMinutes => Value::Number(minutes % 60),
            V::WaitTime25 => percentile(0),
            V::WaitTime50 => percentile(1),
            V::WaitTime75 => percentile(2),
            V::WaitTimeFormatted => written(english::wait(view)),
            V::WaitTimeFormattedLocalized => written(facts.language.words().wait(view)),
            V::QueueIsFull => Value::Bool(view.stage == crate::view::Stage::Full),
            V::QueueAll => Value::Bool(view.queue_all),
            V::LastUpdated => written(json::iso(view.last_updated)),
            V::RefreshIntervalSeconds => Value::Number(view.refresh_secs.into()),
            V::QueueingMethod => text(view.method.as_str()),
            V::IsFifoQueue => Value::Bool(view.method == Method::Fifo),
            V::IsRandomQueue => Value::Bool(view.method == Method::Random),
            V::IsPassthroughQueue => Value::Bool(view.method == Method::Passthrough),
            V::IsRejectQueue => Value::Bool(view.method == Method::Reject),
            V::IsEventActive => Value::Bool(view.event.is_some()),
            V::IsEventPrequeueing => Value::Bool(view.prequeueing()),
            V::TimeUntilEventStart => Value::Number(view.minutes_to_start().unwrap_or(0)),
            V::TimeUntilEventStartFormatted => written(english::minutes(view.minutes_to_start())),
            V::TimeUntilEventEnd => Value::Number(view.minutes_to_end().unwrap_or(0)),
            V::TimeUntilEventEndFormatted => written(english::minutes(view.minutes_to_end())),
            V::ShuffleAtEventStart => Value::Bool(view.event.is_some_and(|event| event.shuffle)),
            V::Turnstile => text(view.turnstile),
            V::InfiniteQueue => Value::Bool(view.infinite_queue),
            V::Position => view.position.map_or(Value::Nothing, Value::Number),
            V::WaitLow => view
                .wait
                .map_or(Value::Nothing, |wait| Value::Number(wait.minutes_low())),
            V::WaitHigh => view
                .wait
                .map_or(Value::Nothing, |wait| Value::Number(wait.minutes_high())),
            V::Reason => text(view.reason.map_or("", |reason| reason.word())),
            V::Language => text(facts.language.tag()),
            V::RoomName => text(facts.room_name),
            V::CspNonce => text(facts.csp_nonce),
        }
    }
}
