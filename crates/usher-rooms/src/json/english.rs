//! The words of the JSON answer. They are English in every language of the page, because programs
//! compare them.

use crate::view::View;

/// The wait: `10 minutes`; of a draw `5 minutes to 15 minutes`; `unavailable`.
#[must_use]
pub fn wait(view: &View<'_>) -> String {
    if let Some([quick, _, slow]) = view.percentiles() {
        return format!("{} to {}", minutes(Some(quick)), minutes(Some(slow)));
    }
    minutes(view.wait.map(|wait| wait.minutes))
}

/// `1 minute`, `10 minutes`, `2 hours 5 minutes`, `unavailable`.
#[must_use]
pub fn minutes(minutes: Option<u64>) -> String {
    let Some(minutes) = minutes else {
        return "unavailable".to_owned();
    };
    let (hours, rest) = (minutes / 60, minutes % 60);
    match (hours, rest) {
        (0, rest) => count(rest, "minute"),
        (hours, 0) => count(hours, "hour"),
        (hours, rest) => format!("{} {}", count(hours, "hour"), count(rest, "minute")),
    }
}

fn count(number: u64, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}
