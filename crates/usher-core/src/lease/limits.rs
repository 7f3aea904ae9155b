//! What an account may have. Source: browser specification 9.1, clarifications 40, 54.

use std::time::Duration;

use super::bucket::Rate;

/// What an account pays for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountKind {
    /// Nothing.
    Free,
    /// What it uses.
    Paygo,
    /// What was agreed on.
    Contract,
}

impl AccountKind {
    /// Every kind.
    pub const ALL: [AccountKind; 3] =
        [AccountKind::Free, AccountKind::Paygo, AccountKind::Contract];

    /// Its word in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            AccountKind::Free => "free",
            AccountKind::Paygo => "paygo",
            AccountKind::Contract => "contract",
        }
    }

    /// How many places in a row it gets where browsers are short, beside the others.
    #[must_use]
    pub const fn weight(self) -> u32 {
        match self {
            AccountKind::Free => 1,
            AccountKind::Paygo => 4,
            AccountKind::Contract => 8,
        }
    }
}

/// The limits of one account, over all regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at the same time.
    pub concurrent: u32,
    /// New sessions.
    pub browsers: Rate,
    /// New sessions in any 60 s, beside the rate; `None`: the rate alone.
    pub browsers_a_minute: Option<u32>,
    /// Quick actions.
    pub quick_actions: Rate,
    /// Browser time a UTC day, sessions and quick actions together; `None`: no limit.
    pub a_day: Option<Duration>,
}

impl Limits {
    /// The defaults of a kind.
    #[must_use]
    pub const fn of(kind: AccountKind) -> Limits {
        match kind {
            AccountKind::Free => Limits {
                concurrent: 3,
                browsers: Rate::one_per(Duration::from_secs(20), 1),
                browsers_a_minute: None,
                quick_actions: Rate::one_per(Duration::from_secs(10), 1),
                a_day: Some(Duration::from_secs(600)),
            },
            AccountKind::Paygo | AccountKind::Contract => Limits {
                concurrent: 120,
                browsers: Rate::one_per(Duration::from_secs(1), 5),
                browsers_a_minute: Some(60),
                quick_actions: Rate::one_per(Duration::from_millis(100), 20),
                a_day: None,
            },
        }
    }

    /// The same with another rate of new sessions; where a minute is limited, it is to 60 times
    /// that rate, and to a burst at least.
    #[must_use]
    pub fn with_browsers(self, browsers: Rate) -> Limits {
        let a_minute = browsers.micro_per_ms.saturating_mul(60_000) / super::bucket::TOKEN;
        let a_minute = u32::try_from(a_minute).unwrap_or(u32::MAX);
        Limits {
            browsers,
            browsers_a_minute: self
                .browsers_a_minute
                .map(|_| a_minute.max(browsers.burst).max(1)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_rate_takes_its_minute_along() {
        let paid = Limits::of(AccountKind::Paygo);
        assert_eq!(paid.with_browsers(paid.browsers), paid);
        let faster = paid.with_browsers(Rate::per_second(2.0, 5));
        assert_eq!(faster.browsers_a_minute, Some(120));
        let slow = paid.with_browsers(Rate::one_per(Duration::from_secs(60), 3));
        assert_eq!(slow.browsers_a_minute, Some(3));
        let free = Limits::of(AccountKind::Free);
        assert_eq!(
            free.with_browsers(Rate::per_second(2.0, 5))
                .browsers_a_minute,
            None
        );
    }
}
