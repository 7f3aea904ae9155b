//! The answer to programs: the object `cfWaitingRoom`, all of its fields always, in one order.
//!
//! Written by hand into the caller's buffer: the answer to a poll is the most frequent thing that
//! Usher says, and a tree of values for it would be built only to be thrown away.

pub mod english;

use usher_core::time::Wall;

use crate::page::Shown;
use crate::view::{Method, Stage, View};
use crate::words::Language;

/// What stands beside the object that Cloudflare defines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beside {
    /// `usher`: the place in line, the interval and the reason, for programs.
    pub usher: bool,
    /// `page`: the texts that the built-in page shows, in this language. Its script asks for them.
    pub page: Option<Language>,
}

/// Writes the answer behind what `out` holds.
pub fn write(view: &View<'_>, beside: Beside, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"cfWaitingRoom\":");
    cf_waiting_room(view, out);
    if beside.usher || beside.page.is_some() {
        out.extend_from_slice(b",\"usher\":");
        usher(view, out);
    }
    if let Some(language) = beside.page {
        out.extend_from_slice(b",\"page\":");
        page(&Shown::of(view, language), out);
    }
    out.push(b'}');
}

fn cf_waiting_room(view: &View<'_>, out: &mut Vec<u8>) {
    let [quarter, half, most] = view.percentiles().unwrap_or_default();
    let mut object = Object::open(out);
    object.flag("inWaitingRoom", view.outside());
    object.flag("waitTimeKnown", view.wait.is_some());
    object.number("waitTime", view.wait_minutes());
    object.number("waitTime25Percentile", quarter);
    object.number("waitTime50Percentile", half);
    object.number("waitTime75Percentile", most);
    object.text("waitTimeFormatted", &english::wait(view));
    object.flag("queueIsFull", view.stage == Stage::Full);
    object.flag("queueAll", view.queue_all);
    object.text("lastUpdated", &iso(view.last_updated));
    object.number("refreshIntervalSeconds", view.refresh_secs.into());
    object.text("queueingMethod", view.method.as_str());
    object.flag("isFIFOQueue", view.method == Method::Fifo);
    object.flag("isRandomQueue", view.method == Method::Random);
    object.flag("isPassthroughQueue", view.method == Method::Passthrough);
    object.flag("isRejectQueue", view.method == Method::Reject);
    object.flag("isEventActive", view.event.is_some());
    object.flag("isEventPrequeueing", view.prequeueing());
    let (start, end) = (view.minutes_to_start(), view.minutes_to_end());
    object.number("timeUntilEventStart", start.unwrap_or(0));
    object.text("timeUntilEventStartFormatted", &english::minutes(start));
    object.number("timeUntilEventEnd", end.unwrap_or(0));
    object.text("timeUntilEventEndFormatted", &english::minutes(end));
    let shuffle = view.event.is_some_and(|event| event.shuffle);
    object.flag("shuffleAtEventStart", shuffle);
    object.text("turnstile", view.turnstile);
    object.flag("infiniteQueue", view.infinite_queue);
    object.close();
}

fn usher(view: &View<'_>, out: &mut Vec<u8>) {
    let wait = view.wait;
    let mut object = Object::open(out);
    object.text("state", view.stage.word());
    object.number_or_null("position", view.position);
    object.number("aheadPresent", view.ahead_present);
    object.number("aheadAway", view.ahead_away);
    object.number_or_null("waitSecondsLow", wait.map(|wait| wait.low_secs));
    object.number_or_null("waitSecondsMid", wait.map(|wait| wait.mid_secs));
    object.number_or_null("waitSecondsHigh", wait.map(|wait| wait.high_secs));
    object.moment("guaranteedBy", view.guaranteed_by);
    object.moment("claimBy", view.claim_by);
    object.moment("lastMovement", view.moved);
    object.text_or_null("reason", view.reason.map(|reason| reason.word()));
    object.close();
}

fn page(shown: &Shown<'_>, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("title", &shown.title);
    object.text("heading", shown.heading);
    object.text("lead", shown.lead);
    object.text("place", &shown.place);
    object.text("wait", &shown.wait);
    object.text("notice", shown.notice);
    object.text("say", &shown.say);
    object.moment("latest", shown.latest);
    object.moment("moved", shown.moved);
    object.moment("starts", shown.starts);
    object.moment("enterBy", shown.enter_by);
    object.close();
}

/// ISO 8601 in UTC with milliseconds: `2026-12-01T10:00:00.000Z`.
#[must_use]
pub fn iso(moment: Wall) -> String {
    let millis = moment.as_millis();
    let (day, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = date(day);
    let (secs, millis) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The civil date of a day since 1970-01-01, by counting in eras of 400 years from a March on.
fn date(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// An object that is being written.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Object<'a> {
    fn open(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, first: true }
    }

    fn close(self) {
        self.out.push(b'}');
    }

    /// A name is one of ours and holds nothing to escape.
    fn name(&mut self, name: &str) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.name(name);
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.out.extend_from_slice(word);
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(value).as_bytes());
    }

    fn number_or_null(&mut self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.null(name),
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.push(b'"');
        escape(value, self.out);
        self.out.push(b'"');
    }

    fn text_or_null(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(name, value),
            None => self.null(name),
        }
    }

    fn moment(&mut self, name: &str, value: Option<Wall>) {
        self.text_or_null(name, value.map(iso).as_deref());
    }

    fn null(&mut self, name: &str) {
        self.name(name);
        self.out.extend_from_slice(b"null");
    }
}

fn escape(text: &str, out: &mut Vec<u8>) {
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..=0x1f => {
                let hex = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests;
