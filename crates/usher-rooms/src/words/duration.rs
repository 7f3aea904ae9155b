//! How long, in words.

use super::{Text, Words};
use crate::view::{View, Wait};

impl Words {
    /// The one number of the wait, as the answer to programs has it in English; the text for an
    /// unknown wait where there is none.
    #[must_use]
    pub fn wait(&self, view: &View<'_>) -> String {
        if let Some([quick, _, slow]) = view.percentiles() {
            return self.range(quick, slow);
        }
        match view.wait {
            Some(wait) => self.minutes(wait.minutes),
            None => self.text(Text::Unknown).to_owned(),
        }
    }

    /// The interval of the wait.
    #[must_use]
    pub fn interval(&self, wait: &Wait) -> String {
        self.range(wait.minutes_low(), wait.minutes_high())
    }

    /// `5 minutes`, `2 hours 5 minutes`.
    #[must_use]
    pub fn minutes(&self, minutes: u64) -> String {
        let (hours, rest) = (minutes / 60, minutes % 60);
        let count = |forms, number| {
            self.form(forms, number)
                .replace("{n}", &self.number(number))
        };
        match (hours, rest) {
            (0, rest) => count(&self.minute, rest),
            (hours, 0) => count(&self.hour, hours),
            (hours, rest) => self
                .text(Text::HoursMinutes)
                .replace("{h}", &count(&self.hour, hours))
                .replace("{m}", &count(&self.minute, rest)),
        }
    }

    /// `5–8 minutes`, `50 minutes – 1 hour 10 minutes`; one value where both are equal.
    #[must_use]
    pub fn range(&self, low: u64, high: u64) -> String {
        if low >= high {
            return self.minutes(high);
        }
        let form = self.form(&self.minute, high);
        // A form without a number in it, such as the dual of Arabic, does not take two of them.
        if high < 60 && form.contains("{n}") {
            let both = format!("{}–{}", self.number(low), self.number(high));
            form.replace("{n}", &both)
        } else {
            format!("{} – {}", self.minutes(low), self.minutes(high))
        }
    }
}
