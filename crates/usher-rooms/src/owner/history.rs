//! What a room's log says happened, for whoever looks back: an audit, or a judge of what was decided.
//!
//! It is read without the room that makes sense of it: whoever doubts the room has to be able to.

use std::io;
use std::path::Path;

use usher_core::id::Id;

use super::record::{self, Event};
use crate::journal::{Batch, JournalFault, State, look_back};

/// All that one log file of `room` says, in order; of a log that is being written, as far as it goes.
///
/// A log holds what happened since the one before it. That one is gone a moment after the next has
/// begun, so whoever wants all of them keeps a link to each.
///
/// # Errors
/// The file cannot be read, is damaged, or is no log of this room.
pub fn history(log: &Path, room: Id) -> Result<Vec<Event>, JournalFault> {
    look_back(log, room).map(|History(events)| events)
}

struct History(Vec<Event>);

impl State for History {
    fn empty() -> History {
        History(Vec::new())
    }

    fn replay(&mut self, records: &[u8]) -> Result<(), String> {
        record::each(records, |event| self.0.push(event))
    }

    fn records(
        &self,
        batch: &mut Batch,
        each: &mut dyn FnMut(&mut Batch) -> io::Result<()>,
    ) -> io::Result<()> {
        for event in &self.0 {
            match event {
                Event::Changed(effect) => record::write(batch.records(), effect),
                Event::Allowed { admitted_max } => {
                    record::write_watermark(batch.records(), *admitted_max);
                }
                Event::Closed => record::write_closed(batch.records()),
            }
            each(batch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use usher_core::admission::{Change, Effect, Visitor};

    use super::*;
    use crate::journal::{Limits, Log};

    #[test]
    fn a_history_says_what_was_written() {
        let folder = tempfile::tempdir().expect("folder");
        let room = Id::from_bytes([7; 16]);
        let (mut log, _) =
            Log::open::<History>(folder.path(), room, Limits::default()).expect("files");
        let events = [
            Event::Allowed { admitted_max: 3 },
            Event::Changed(Effect {
                at: 5,
                change: Change::Queued {
                    visitor: Visitor::from_u128(9),
                    ticket: 5000,
                },
            }),
            Event::Closed,
        ];
        let mut batch = Batch::new();
        History(events.to_vec())
            .records(&mut batch, &mut |_| Ok(()))
            .expect("in memory");
        log.commit(&mut batch).expect("written");
        let path = folder.path().join("1.log");
        assert_eq!(history(&path, room).expect("whole"), events);
    }
}
