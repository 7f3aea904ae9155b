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
        Change::Recovered {
            ghosts,
            until,
            seats_until_min,
            down_ms,
            last_ticket,
        } => {
            put.head(12, effect.at);
            [ghosts, until, seats_until_min, down_ms, last_ticket].map(|field| put.number(field));
        }
        Change::Person(person) => {
            put.head(13, effect.at);
            put.visitor(person.visitor);
            put.byte(being_byte(person.state));
            [person.ticket, person.seen, person.until].map(|field| put.number(field));
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
            [
                last_ticket,
                admitted,
                ghosts,
                ghosts_until,
                per_minute,
                before,
                before_until,
            ]
            .map(|field| put.number(field));
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
        let mut take = Take(records);
        while !take.0.is_empty() {
            self.next(&mut take)?;
        }
        Ok(())
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
    fn next(&mut self, take: &mut Take<'_>) -> Result<(), String> {
        let kind = take.byte()?;
        match kind {
            WATERMARK => self.admitted_max = take.number()?,
            CLOSED => {}
            _ => {
                let effect = read(kind, take)?;
                self.clock = self.clock.max(effect.at);
                self.room.apply(&effect);
            }
        }
        self.closed = kind == CLOSED;
        Ok(())
    }
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
