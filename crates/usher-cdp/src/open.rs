//! Commands that the browser has not answered: when it ends, each of them still is.
//!
//! Clients wait for answers and not for a connection, so a command that nobody answers is a promise
//! that hangs in somebody's program.

use std::collections::HashMap;

use serde_json::json;

use crate::relay::Relay;

/// Commands of one client that are answered at the end. Further ones are counted only.
const KNOWN_MAX: usize = 4096;

/// The commands of one client.
#[derive(Debug, Default)]
pub(crate) struct Open {
    count: usize,
    /// By the number that the browser knows: the client's own, and the part that it named.
    known: HashMap<i32, (i64, Option<Box<str>>)>,
}

impl Open {
    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn asked(&mut self, number: i32, id: i64, part: Option<&str>) {
        self.count += 1;
        if self.known.len() < KNOWN_MAX {
            self.known.insert(number, (id, part.map(Into::into)));
        }
    }

    pub(crate) fn answered(&mut self, number: i32) {
        self.count = self.count.saturating_sub(1);
        self.known.remove(&number);
    }

    /// An answer to each, in the order of their numbers: the browser was closed because of `why`.
    pub(crate) fn refused(&mut self, why: &str) -> Vec<String> {
        self.count = 0;
        let mut open: Vec<_> = std::mem::take(&mut self.known).into_values().collect();
        open.sort_unstable();
        let message = match why {
            "" => "Browser closed".to_owned(),
            why => format!("Browser closed: {why}"),
        };
        let error = format!(r#""error":{}"#, json!({"code": -32000, "message": message}));
        let refuse =
            |(id, part): &(i64, Option<Box<str>>)| Relay::answer(*id, part.as_deref(), &error);
        open.iter().map(refuse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_is_refused_and_counted_beyond_what_is_known() {
        let mut open = Open::default();
        open.asked(7, 1 << 40, None);
        open.asked(2, 2, Some("PART"));
        open.asked(3, 3, None);
        open.answered(3);
        open.answered(99);
        assert_eq!(open.len(), 1, "the browser answered what nobody asked");
        assert_eq!(
            open.refused("ChromiumCrashed"),
            [
                r#"{"id":2,"error":{"code":-32000,"message":"Browser closed: ChromiumCrashed"},"sessionId":"PART"}"#,
                r#"{"id":1099511627776,"error":{"code":-32000,"message":"Browser closed: ChromiumCrashed"}}"#,
            ]
        );
        assert!(open.refused("").is_empty());
        for number in 0..5_000 {
            open.asked(number, number.into(), None);
        }
        assert_eq!(open.len(), 5_000);
        assert_eq!(open.refused("").len(), KNOWN_MAX);
    }
}
