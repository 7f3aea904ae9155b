//! What is looked at in the bytes between a broker and a browser: where messages end, and which of
//! them are answers. Nothing is parsed, and nothing is kept.

/// How messages with an answer begin: the browser always writes the number first.
const ANSWER: &[u8] = b"{\"id\":";

/// How a command begins that whoever relays gives for itself; its answer begins so too. Clients'
/// numbers are not below zero here.
const OWN: &[u8] = b"{\"id\":-";

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
                    Some(&wanted) if wanted == byte => Some(alike + 1),
                    None if byte == b'-' => None,
                    decided => {
                        count += u32::from(decided.is_none());
                        (byte == 0).then_some(0)
                    }
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

/// Counts what clients want in what a broker says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Commands {
    /// How many bytes of this message have been as in one of the relay's own; `None` when it is a
    /// client's.
    alike: Option<usize>,
}

impl Commands {
    /// Begins between two messages.
    pub(super) const fn new() -> Commands {
        Commands { alike: Some(0) }
    }

    /// How many end in `chunk`; `None` when nothing of a client's is in it.
    pub(super) fn count(&mut self, chunk: &[u8]) -> Option<u32> {
        let (mut count, mut theirs, mut rest) = (0, false, chunk);
        while let Some(&byte) = rest.first() {
            match self.alike {
                Some(alike) if alike < OWN.len() => {
                    rest = &rest[1..];
                    self.alike = (OWN[alike] == byte).then_some(alike + 1);
                    if byte == 0 {
                        // Too short for either; it is no message.
                        self.alike = Some(0);
                    }
                }
                whose => {
                    theirs |= whose.is_none();
                    let Some(end) = memchr::memchr(0, rest) else {
                        break;
                    };
                    rest = &rest[end + 1..];
                    count += u32::from(whose.is_none());
                    self.alike = Some(0);
                }
            }
        }
        theirs.then_some(count)
    }
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
        fn cuts_change_nothing(messages in prop::collection::vec(0_u8..6, 0..12), cuts in prop::collection::vec(1_usize..9, 1..40)) {
            let mut bytes = Vec::new();
            for kind in &messages {
                let text: &[u8] = match kind {
                    0 => b"{\"id\":7,\"result\":{\"id\":1}}",
                    5 => b"{\"id\":-7,\"result\":{\"id\":1}}",
                    1 => b"{\"method\":\"x\",\"params\":{\"id\":1}}",
                    2 => b"",
                    3 => b"{\"id",
                    _ => b"{\"id\":",
                };
                bytes.extend_from_slice(text);
                bytes.push(0);
            }
            let expected = messages.iter().filter(|kind| matches!(kind, 0 | 4)).count();
            // What is too short for a command is none.
            let theirs = messages.iter().filter(|kind| matches!(kind, 0 | 1)).count();
            let (mut answers, mut commands) = (Answers::new(false), Commands::new());
            let (mut found, mut ended, mut rest) = (0, 0, bytes.as_slice());
            for cut in cuts.iter().cycle() {
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                found += answers.count(chunk);
                ended += commands.count(chunk).unwrap_or(0);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found as usize, expected);
            prop_assert_eq!(ended as usize, theirs);
            prop_assert!(!amid(&bytes, false));
        }
    }

    #[test]
    fn what_the_relay_wants_for_itself_is_nobodys_command() {
        let mut commands = Commands::new();
        assert_eq!(commands.count(b"{\"id\":-3,\"method\":\"A.b\"}\0"), None);
        assert_eq!(commands.count(b"{\"sessionId\":\"A\",\"id\":3"), Some(0));
        assert_eq!(commands.count(b"}\0{\"id\":-1"), Some(1));
        assert_eq!(commands.count(b"}\0"), None);
        assert_eq!(
            commands.count(b"{\"id\":1}\0{\"id\":2}\0{\"id\":-2}\0"),
            Some(2)
        );
        let mut answers = Answers::new(false);
        assert_eq!(answers.count(b"{\"id\":-3,\"result\":{}}\0{\"id\":3}\0"), 1);
    }

    #[test]
    fn amid_a_message_the_next_one_is_waited_for() {
        let mut answers = Answers::new(true);
        assert_eq!(answers.count(b"{\"id\":1}\0{\"id\":2}\0"), 1);
        assert!(amid(b"x", false) && amid(b"", true) && !amid(b"x\0", true));
    }
}
