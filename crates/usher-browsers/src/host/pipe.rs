//! What is looked at in the bytes between a broker and a browser: where messages end, and which of
//! them are answers. Nothing is parsed, and nothing is kept.

/// How messages with an answer begin: the browser always writes the number first.
const ANSWER: &[u8] = b"{\"id\":";

/// Counts the answers in what a browser says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    /// How many bytes of this message have been as in an answer; `None` when it was decided.
    alike: Option<usize>,
}

impl Answers {
    /// Begins between two messages, or amid one.
    pub(super) const fn new(amid: bool) -> Answers {
        Answers {
            alike: if amid { None } else { Some(0) },
        }
    }

    /// How many answers begin in `chunk`.
    pub(super) fn count(&mut self, chunk: &[u8]) -> u32 {
        let mut count = 0;
        let mut rest = chunk;
        loop {
            if let Some(alike) = self.alike {
                let Some((&byte, after)) = rest.split_first() else {
                    return count;
                };
                rest = after;
                self.alike = match ANSWER.get(alike) {
                    Some(&wanted) if wanted == byte && alike + 1 == ANSWER.len() => {
                        count += 1;
                        None
                    }
                    Some(&wanted) if wanted == byte => Some(alike + 1),
                    _ if byte == 0 => Some(0),
                    _ => None,
                };
            } else if let Some(end) = memchr::memchr(0, rest) {
                rest = &rest[end + 1..];
                self.alike = Some(0);
            } else {
                return count;
            }
        }
    }
}

/// How many messages end in `chunk`.
pub(super) fn ends(chunk: &[u8]) -> u32 {
    u32::try_from(memchr::memchr_iter(0, chunk).count()).unwrap_or(u32::MAX)
}

/// Whether `chunk`, which follows what stood amid a message or not, leaves the reader amid one.
pub(super) fn amid(chunk: &[u8], was: bool) -> bool {
    chunk.last().map_or(was, |&byte| byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_change_nothing(messages in prop::collection::vec(0_u8..5, 0..12), cuts in prop::collection::vec(1_usize..9, 1..40)) {
            let mut bytes = Vec::new();
            for kind in &messages {
                let text: &[u8] = match kind {
                    0 => b"{\"id\":7,\"result\":{\"id\":1}}",
                    1 => b"{\"method\":\"x\",\"params\":{\"id\":1}}",
                    2 => b"",
                    3 => b"{\"id",
                    _ => b"{\"id\":",
                };
                bytes.extend_from_slice(text);
                bytes.push(0);
            }
            let expected = messages.iter().filter(|kind| matches!(kind, 0 | 4)).count();
            let (mut answers, mut found, mut ended, mut rest) = (Answers::new(false), 0, 0, bytes.as_slice());
            for cut in cuts.iter().cycle() {
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                found += answers.count(chunk);
                ended += ends(chunk);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found as usize, expected);
            prop_assert_eq!(ended as usize, messages.len());
            prop_assert!(!amid(&bytes, false));
        }
    }

    #[test]
    fn amid_a_message_the_next_one_is_waited_for() {
        let mut answers = Answers::new(true);
        assert_eq!(answers.count(b"{\"id\":1}\0{\"id\":2}\0"), 1);
        assert!(amid(b"x", false) && amid(b"", true) && !amid(b"x\0", true));
    }
}
