//! Records of a journal: a room's effects as bytes, and what the journal itself has to remember.
//!
//! A kind and fields of fixed width, little-endian. Frames carry the lengths and sums, so a record
//! has neither. A kind's number and layout never change; what changes gets a new number.

use std::io;

use usher_core::admission::{
    Change, Effect, End, Entry, Person, Room, Stamp, State as Being, Visitor,
};

use crate::journal::{Batch, State};

/// Appends one effect.
pub(super) fn write(out: &mut Vec<u8>, effect: &Effect) {
    let mut put = Put(out);
    match effect.change {
        Change::Seated {
            visitor,
            how,
            until,
            fixed,
        } => {
            put.head(1, effect.at);
            put.visitor(visitor);
            put.byte(entry_byte(how));
            put.number(until);
            put.flag(fixed);
        }
        Change::Renewed { visitor, until } => {
            put.head(2, effect.at);
            put.visitor(visitor);
            put.number(until);
        }
        Change::Ended { visitor, cause } => {
            put.head(3, effect.at);
            put.visitor(visitor);
            put.byte(end_byte(cause));
        }
        Change::Queued { visitor, ticket } => {
            put.head(4, effect.at);
            put.visitor(visitor);
            put.number(ticket);
        }
        Change::Present { visitor } => {
            put.head(5, effect.at);
            put.visitor(visitor);
        }
        Change::Away { visitor } => {
            put.head(6, effect.at);
            put.visitor(visitor);
        }
        Change::Gone { visitor, cause } => {
            put.head(7, effect.at);
            put.visitor(visitor);
            put.byte(end_byte(cause));
        }
        Change::Called { visitor, until } => {
            put.head(8, effect.at);
            put.visitor(visitor);
            put.number(until);
        }
        Change::Uncalled { visitor, late } => {
            put.head(9, effect.at);
            put.visitor(visitor);
            put.flag(late);
        }
        Change::PerMinute { limit } => {
            put.head(10, effect.at);
            put.number(limit);
        }
        Change::GhostsEnded => put.head(11, effect.at),
        Change::Alive => put.head(17, effect.at),
        Change::Recovered {
            ghosts,
            until,
            seats_until_min,
            down_ms,
            last_ticket,
        } => {
            put.head(12, effect.at);
            put.numbers([ghosts, until, seats_until_min, down_ms, last_ticket]);
        }
        Change::Person(person) => {
            put.head(13, effect.at);
            put.visitor(person.visitor);
            put.byte(being_byte(person.state));
            put.numbers([person.ticket, person.seen, person.until]);
            put.0.extend(person.generation.to_le_bytes());
            put.flag(person.fixed);
            put.flag(person.confirmed);
        }
        Change::Admissions { second, count } => {
            put.head(14, effect.at);
            put.number(second);
            put.number(count);
        }
        Change::Lost { after, until } => {
            put.head(15, effect.at);
            put.stamp(after);
            put.number(until);
        }
        Change::Left { visitor, until } => {
            put.head(18, effect.at);
            put.visitor(visitor);
            put.number(until);
        }
        Change::Counters {
            stamp,
            last_ticket,
            admitted,
            ghosts,
            ghosts_until,
            per_minute,
            per_minute_before: (before, before_until),
        } => {
            put.head(16, effect.at);
            put.stamp(stamp);
            put.numbers([
                last_ticket,
                admitted,
                ghosts,
                ghosts_until,
                per_minute,
                before,
                before_until,
            ]);
        }
    }
}

/// Appends how many admissions are allowed for.
pub(super) fn write_watermark(out: &mut Vec<u8>, admitted_max: u64) {
    let mut put = Put(out);
    put.byte(WATERMARK);
    put.number(admitted_max);
}

/// Appends that nothing is missing up to here.
pub(super) fn write_closed(out: &mut Vec<u8>) {
    out.push(CLOSED);
}

const WATERMARK: u8 = 128;
const CLOSED: u8 = 129;

/// What a journal says of a room.
#[derive(Debug, Default, Clone)]
pub(super) struct Journaled {
    pub(super) room: Room,
    /// When the last effect was, ms.
    pub(super) clock: u64,
    /// Admissions that were allowed for.
    pub(super) admitted_max: u64,
    /// The last record says that nothing is missing.
    pub(super) closed: bool,
}

impl State for Journaled {
    fn empty() -> Journaled {
        Journaled::default()
    }

    fn replay(&mut self, records: &[u8]) -> Result<(), String> {
        each(records, |event| self.take_in(&event))
    }

    fn records(
        &self,
        batch: &mut Batch,
        each: &mut dyn FnMut(&mut Batch) -> io::Result<()>,
    ) -> io::Result<()> {
        for effect in self.room.records() {
            write(batch.records(), &effect);
            each(batch)?;
        }
        write_watermark(batch.records(), self.admitted_max);
        if self.closed {
            write_closed(batch.records());
        }
        each(batch)
    }
}

impl Journaled {
    fn take_in(&mut self, event: &Event) {
        match event {
            Event::Changed(effect) => {
                self.clock = self.clock.max(effect.at);
                self.room.apply(effect);
            }
            Event::Allowed { admitted_max } => self.admitted_max = *admitted_max,
            Event::Closed => {}
        }
        self.closed = matches!(event, Event::Closed);
    }
}

/// What a journal says, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The room changed.
    Changed(Effect),
    /// From here on so many admissions ever are allowed for, whether or not they are recorded.
    Allowed {
        /// How many.
        admitted_max: u64,
    },
    /// Nothing is missing up to here.
    Closed,
}

/// Reads all of `records`.
pub(super) fn each(records: &[u8], mut to: impl FnMut(Event)) -> Result<(), String> {
    let mut take = Take(records);
    while !take.0.is_empty() {
        to(match take.byte()? {
            WATERMARK => Event::Allowed {
                admitted_max: take.number()?,
            },
            CLOSED => Event::Closed,
            kind => Event::Changed(read(kind, &mut take)?),
        });
    }
    Ok(())
}

fn read(kind: u8, take: &mut Take<'_>) -> Result<Effect, String> {
    let at = take.number()?;
    let change = match kind {
        1 => Change::Seated {
            visitor: take.visitor()?,
            how: entry(take.byte()?)?,
            until: take.number()?,
            fixed: take.flag()?,
        },
        2 => Change::Renewed {
            visitor: take.visitor()?,
            until: take.number()?,
        },
        3 => Change::Ended {
            visitor: take.visitor()?,
            cause: end(take.byte()?)?,
        },
        4 => Change::Queued {
            visitor: take.visitor()?,
            ticket: take.number()?,
        },
        5 => Change::Present {
            visitor: take.visitor()?,
        },
        6 => Change::Away {
            visitor: take.visitor()?,
        },
        7 => Change::Gone {
            visitor: take.visitor()?,
            cause: end(take.byte()?)?,
        },
        8 => Change::Called {
            visitor: take.visitor()?,
            until: take.number()?,
        },
        9 => Change::Uncalled {
            visitor: take.visitor()?,
            late: take.flag()?,
        },
        10 => Change::PerMinute {
            limit: take.number()?,
        },
        11 => Change::GhostsEnded,
        17 => Change::Alive,
        12 => Change::Recovered {
            ghosts: take.number()?,
            until: take.number()?,
            seats_until_min: take.number()?,
            down_ms: take.number()?,
            last_ticket: take.number()?,
        },
        13 => Change::Person(Person {
            visitor: take.visitor()?,
            state: being(take.byte()?)?,
            ticket: take.number()?,
            seen: take.number()?,
            until: take.number()?,
            generation: u32::from_le_bytes(take.bytes()?),
            fixed: take.flag()?,
            confirmed: take.flag()?,
        }),
        14 => Change::Admissions {
            second: take.number()?,
            count: take.number()?,
        },
        15 => Change::Lost {
            after: take.stamp()?,
            until: take.number()?,
        },
        16 => Change::Counters {
            stamp: take.stamp()?,
            last_ticket: take.number()?,
            admitted: take.number()?,
            ghosts: take.number()?,
            ghosts_until: take.number()?,
            per_minute: take.number()?,
            per_minute_before: (take.number()?, take.number()?),
        },
        18 => Change::Left {
            visitor: take.visitor()?,
            until: take.number()?,
        },
        _ => return Err(format!("no record is of kind {kind}")),
    };
    Ok(Effect { at, change })
}

fn entry_byte(how: Entry) -> u8 {
    match how {
        Entry::Direct => 0,
        Entry::Called => 1,
        Entry::Passthrough => 2,
        Entry::Remembered => 3,
        Entry::Held => 4,
    }
}

fn entry(byte: u8) -> Result<Entry, String> {
    Ok(match byte {
        0 => Entry::Direct,
        1 => Entry::Called,
        2 => Entry::Passthrough,
        3 => Entry::Remembered,
        4 => Entry::Held,
        _ => return Err(format!("no way to a seat has the number {byte}")),
    })
}

fn end_byte(cause: End) -> u8 {
    match cause {
        End::Idle => 0,
        End::Fixed => 1,
        End::Revoked => 2,
        End::Left => 3,
        End::Disproved => 4,
    }
}

fn end(byte: u8) -> Result<End, String> {
    Ok(match byte {
        0 => End::Idle,
        1 => End::Fixed,
        2 => End::Revoked,
        3 => End::Left,
        4 => End::Disproved,
        _ => return Err(format!("no end has the number {byte}")),
    })
}

fn being_byte(state: Being) -> u8 {
    match state {
        Being::Present => 0,
        Being::Away => 1,
        Being::Called => 2,
        Being::Seated => 3,
    }
}

fn being(byte: u8) -> Result<Being, String> {
    Ok(match byte {
        0 => Being::Present,
        1 => Being::Away,
        2 => Being::Called,
        3 => Being::Seated,
        _ => return Err(format!("nobody in a room is of kind {byte}")),
    })
}

struct Put<'a>(&'a mut Vec<u8>);

impl Put<'_> {
    fn head(&mut self, kind: u8, at: u64) {
        self.byte(kind);
        self.number(at);
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn numbers<const LEN: usize>(&mut self, numbers: [u64; LEN]) {
        for number in numbers {
            self.number(number);
        }
    }

    fn visitor(&mut self, visitor: Visitor) {
        self.0.extend(visitor.as_u128().to_le_bytes());
    }

    fn stamp(&mut self, stamp: Stamp) {
        self.number(stamp.epoch);
        self.number(stamp.sequence);
    }
}

struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn bytes<const LEN: usize>(&mut self) -> Result<[u8; LEN], String> {
        let (bytes, rest) = self
            .0
            .split_first_chunk()
            .ok_or("a record ends in the middle")?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, String> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(format!("{byte} is neither yes nor no")),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn visitor(&mut self) -> Result<Visitor, String> {
        self.bytes()
            .map(|bytes| Visitor::from_u128(u128::from_le_bytes(bytes)))
    }

    fn stamp(&mut self) -> Result<Stamp, String> {
        Ok(Stamp {
            epoch: self.number()?,
            sequence: self.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use usher_core::admission::{Command, Settings};

    /// What happens in a room, one after the other: who, after how long, what.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Ask(u8),
        Renew(u8),
        CheckIn(u8),
        End(u8),
        Tick,
        QueueAll(bool),
    }

    fn event() -> impl Strategy<Value = (u64, Event)> {
        let event = prop_oneof![
            4 => (0..24_u8).prop_map(Event::Ask),
            1 => (0..24_u8).prop_map(Event::Renew),
            2 => (0..24_u8).prop_map(Event::CheckIn),
            1 => (0..24_u8).prop_map(Event::End),
            2 => Just(Event::Tick),
            1 => any::<bool>().prop_map(Event::QueueAll),
        ];
        (prop_oneof![0..50_u64, 0..40_000_u64], event)
    }

    /// Gives the time at the end.
    fn run(room: &mut Room, events: &[(u64, Event)], effects: &mut Vec<Effect>) -> u64 {
        let mut settings = Settings::new(5, 8).session(20_000);
        let mut now = 1_796_119_200_000;
        for (later, event) in events {
            now += later;
            let visitor = |number: u8| Visitor::from_u128(u128::from(number) + 1);
            let one;
            let command = match *event {
                Event::Ask(number) => Command::Ask {
                    visitor: visitor(number),
                    claims: None,
                },
                Event::Renew(number) => Command::Renew {
                    visitor: visitor(number),
                    claims: None,
                },
                Event::CheckIn(number) => {
                    one = [visitor(number)];
                    Command::CheckIn(&one)
                }
                Event::End(number) => Command::End {
                    visitor: visitor(number),
                    cause: End::Left,
                },
                Event::Tick => Command::Tick,
                Event::QueueAll(on) => {
                    settings.queue_all = on;
                    Command::Tick
                }
            };
            room.step(&settings, now, now, command, effects);
        }
        now
    }

    /// A step that does nothing is in no journal, and lets time go on all the same.
    fn at(mut room: Room, now: u64) -> Room {
        room.step(
            &Settings::new(5, 8),
            now,
            0,
            Command::CheckIn(&[]),
            &mut Vec::new(),
        );
        room
    }

    fn replayed(bytes: &[u8]) -> Journaled {
        let mut state = Journaled::empty();
        state.replay(bytes).expect("records");
        state
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// All effects as bytes make the same room, and so does a snapshot of it.
        #[test]
        fn bytes_and_steps_make_the_same_room(events in prop::collection::vec(event(), 0..200)) {
            let mut room = Room::default();
            let mut effects = Vec::new();
            let now = run(&mut room, &events, &mut effects);
            let mut bytes = Vec::new();
            for effect in &effects {
                write(&mut bytes, effect);
            }
            let state = replayed(&bytes);
            prop_assert!(at(state.room, now) == at(room.clone(), now));
            let mut batch = Batch::new();
            let mut all = Vec::new();
            let kept = Journaled { room, admitted_max: 77, closed: true, clock: 0 };
            kept.records(&mut batch, &mut |batch| {
                all.extend_from_slice(&batch.records()[HEAD..]);
                batch.clear();
                Ok(())
            }).expect("in memory");
            let again = replayed(&all);
            prop_assert!(at(again.room, now) == at(kept.room, now));
            prop_assert_eq!((again.admitted_max, again.closed), (77, true));
        }

        /// Only durable effects reach the disk: seats and admissions are the same then too.
        #[test]
        fn what_the_disk_keeps_has_the_same_seats_and_tickets(events in prop::collection::vec(event(), 0..200)) {
            let mut room = Room::default();
            let mut effects = Vec::new();
            run(&mut room, &events, &mut effects);
            let mut bytes = Vec::new();
            for effect in effects.iter().filter(|effect| effect.is_durable()) {
                write(&mut bytes, effect);
            }
            let state = replayed(&bytes);
            let (kept, was) = (state.room.counts(), room.counts());
            prop_assert_eq!((kept.seated, kept.called, kept.admitted), (was.seated, was.called, was.admitted));
            prop_assert_eq!(kept.present + kept.away, was.present + was.away);
            prop_assert_eq!(state.room.stamp(), room.stamp());
        }

        /// What reads is what was written.
        #[test]
        fn bytes_of_any_kind_are_no_record_or_that_one(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut take = Take(&bytes);
            let effect = take.byte().and_then(|kind| read(kind, &mut take));
            if let Ok(effect) = effect {
                let mut again = Vec::new();
                write(&mut again, &effect);
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
            }
        }
    }

    const HEAD: usize = 20;

    #[test]
    fn a_journal_knows_whether_it_was_closed() {
        let mut bytes = Vec::new();
        write_watermark(&mut bytes, 9);
        write_closed(&mut bytes);
        let state = replayed(&bytes);
        assert_eq!((state.admitted_max, state.closed), (9, true));
        write_watermark(&mut bytes, 10);
        assert!(!replayed(&bytes).closed);
        let mut state = Journaled::empty();
        assert_eq!(
            state.replay(&[200, 0, 0, 0, 0, 0, 0, 0, 0]),
            Err("no record is of kind 200".to_owned())
        );
        assert_eq!(
            state.replay(&[1, 0, 0]),
            Err("a record ends in the middle".to_owned())
        );
    }
}
