//! How the affinity cookie is marked for browsers.

/// Marks of the affinity cookie, as they were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CookieMarks {
    /// Whether browsers send it over TLS only. Default auto.
    pub secure: Secure,
    /// From where links and subrequests carry it. Default auto.
    pub same_site: SameSite,
}

/// The mark `Secure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Secure {
    /// When the zone always uses HTTPS, and when `SameSite=None` asks for it.
    #[default]
    Auto,
    /// Set.
    Always,
    /// Not set.
    Never,
}

/// The mark `SameSite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SameSite {
    /// `None` when the zone always uses HTTPS, else `Lax`.
    #[default]
    Auto,
    /// Sent when a link from elsewhere leads to the site.
    Lax,
    /// Sent from everywhere. Browsers drop such a cookie unless it is `Secure`.
    None,
    /// Sent from the site itself only.
    Strict,
}

impl Secure {
    /// Every mark.
    pub const ALL: [Secure; 3] = [Secure::Auto, Secure::Always, Secure::Never];

    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Secure::Auto => "Auto",
            Secure::Always => "Always",
            Secure::Never => "Never",
        }
    }
}

impl SameSite {
    /// Every mark.
    pub const ALL: [SameSite; 4] = [
        SameSite::Auto,
        SameSite::Lax,
        SameSite::None,
        SameSite::Strict,
    ];

    /// The name, as the API spells it and, but for auto, the cookie too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SameSite::Auto => "Auto",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
            SameSite::Strict => "Strict",
        }
    }
}

impl CookieMarks {
    /// Whether the cookie is `Secure` and which `SameSite` it says, in a zone that does or does not
    /// always use HTTPS. Never auto.
    ///
    /// `None` brings `Secure` with it unless that was forbidden (which [`super::Catalog::check`] does
    /// not let pass): without, every browser would drop the cookie.
    #[must_use]
    pub const fn resolve(self, always_use_https: bool) -> (bool, SameSite) {
        let same_site = match (self.same_site, always_use_https) {
            (SameSite::Auto, true) => SameSite::None,
            (SameSite::Auto, false) => SameSite::Lax,
            (said, _) => said,
        };
        let secure = match self.secure {
            Secure::Auto => always_use_https || matches!(same_site, SameSite::None),
            Secure::Always => true,
            Secure::Never => false,
        };
        // Only auto and never are left to contradict each other; the visitor's session wins.
        match (secure, self.same_site, same_site) {
            (false, SameSite::Auto, SameSite::None) => (false, SameSite::Lax),
            _ => (secure, same_site),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_follow_the_zone_where_they_are_auto() {
        use SameSite::{Lax, None, Strict};
        use Secure::{Always, Auto, Never};
        let rows = [
            (Auto, SameSite::Auto, false, (false, Lax)),
            (Auto, SameSite::Auto, true, (true, None)),
            (Auto, Lax, true, (true, Lax)),
            (Auto, Strict, false, (false, Strict)),
            (Auto, None, false, (true, None)),
            (Always, SameSite::Auto, false, (true, Lax)),
            (Always, None, false, (true, None)),
            (Never, Strict, true, (false, Strict)),
            (Never, SameSite::Auto, false, (false, Lax)),
            // `None` without `Secure` would be dropped by browsers.
            (Never, SameSite::Auto, true, (false, Lax)),
        ];
        for (secure, same_site, always_use_https, expected) in rows {
            let marks = CookieMarks { secure, same_site };
            assert_eq!(
                marks.resolve(always_use_https),
                expected,
                "{marks:?} {always_use_https}"
            );
        }
    }
}
