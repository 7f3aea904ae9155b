//! What a visitor reads: the view in the words of one language.

use usher_core::time::Wall;

use crate::view::{Method, Reason, Stage, View};
use crate::words::{Language, Text, Words};

/// What a visitor reads. What is empty is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Title of the window.
    pub title: String,
    /// What the visitor is told first.
    pub heading: &'a str,
    /// What that means.
    pub lead: &'a str,
    /// The place in line.
    pub place: String,
    /// How long the wait will be.
    pub wait: String,
    /// Why things are not as they were.
    pub notice: &'a str,
    /// All that changes, in one breath, for those who listen.
    pub say: String,
    /// When the visitor enters at the latest.
    pub latest: Option<Wall>,
    /// When the line last moved.
    pub moved: Option<Wall>,
    /// When the event starts.
    pub starts: Option<Wall>,
    /// Until when a called visitor must come.
    pub enter_by: Option<Wall>,
    /// True when the visitor may enter.
    pub turn: bool,
}

impl Shown<'static> {
    /// The view in words.
    #[must_use]
    pub fn of(view: &View<'_>, language: Language) -> Shown<'static> {
        let words = language.words();
        let (heading, lead) = match view.stage {
            Stage::Waiting if view.method == Method::Random => (Text::Queue, Text::RandomLead),
            Stage::Waiting => (Text::Queue, Text::QueueLead),
            Stage::Held => (Text::Held, Text::HeldLead),
            Stage::Prequeue => (Text::Soon, Text::SoonLead),
            Stage::Full => (Text::Full, Text::FullLead),
            Stage::Rejected => (Text::Closed, Text::ClosedLead),
            Stage::CookiesNeeded => (Text::Cookies, Text::CookiesLead),
            Stage::Called | Stage::Active => (Text::Turn, Text::TurnLead),
        };
        let in_line = matches!(view.stage, Stage::Waiting | Stage::Held | Stage::Prequeue);
        let waiting = view.stage == Stage::Waiting;
        let position = view.position.filter(|_| in_line);
        let place = position.map_or(String::new(), |place| words.number(place));
        let wait = match &view.wait {
            Some(wait) if waiting => words.interval(wait),
            None if waiting => words.text(Text::Unknown).to_owned(),
            _ => String::new(),
        };
        let notice = view.reason.filter(|_| in_line).map(|reason| match reason {
            Reason::SlowerOutflow => Text::Slower,
            Reason::SettingsChanged => Text::Changed,
            Reason::PlaceExpired => Text::Expired,
        });
        let notice = notice.map_or("", |notice| words.text(notice));
        let turn = matches!(view.stage, Stage::Called | Stage::Active);
        let title = match (turn, place.as_str()) {
            (true, _) => words.text(heading).to_owned(),
            (false, "") => words.text(Text::Title).to_owned(),
            (false, place) => format!("{place} · {}", words.text(Text::Title)),
        };
        let (heading, lead) = (words.text(heading), words.text(lead));
        Shown {
            say: say(words, heading, lead, &place, &wait, notice),
            title,
            heading,
            lead,
            place,
            wait,
            notice,
            latest: view.guaranteed_by.filter(|_| waiting),
            moved: view.moved.filter(|_| waiting),
            starts: view
                .event
                .map(|event| event.starts)
                .filter(|_| view.stage == Stage::Prequeue),
            enter_by: view.claim_by.filter(|_| view.stage == Stage::Called),
            turn,
        }
    }
}

/// Numbers where there are some, and what they mean where there are none: who listens is not told
/// the whole page again whenever one number falls.
fn say(words: &Words, heading: &str, lead: &str, place: &str, wait: &str, notice: &str) -> String {
    let mut parts = Vec::with_capacity(3);
    for (label, value) in [(Text::Place, place), (Text::Wait, wait)] {
        if !value.is_empty() {
            parts.push(format!("{}: {value}.", words.text(label)));
        }
    }
    if parts.is_empty() {
        parts.push(format!("{heading}. {lead}"));
    }
    if !notice.is_empty() {
        parts.push(notice.to_owned());
    }
    parts.join(" ")
}
