//! What visitors hold and were told, and whether the room may do what it does.
//!
//! Nothing in here is taken from the room but the effects and the counts: who could pass is known from
//! the leases that holders were told, a minute's admissions from the moments at which they happened,
//! and who is in line from the tickets that were told and the check-ins that were delivered. Each
//! question is answered in a few looks, so each step is judged:
//!
//! - S: nobody is let in while as many could pass as there are seats, and no seat is reserved beyond;
//! - R: no more are let in within 60 s than the greatest limit of that time;
//! - F: nobody is called or enters directly before a lower ticket that was heard of in time;
//! - U: a ticket is told once, and nobody who can pass is let in again;
//! - L: no seat ends before its holder was told, no place before its visitor fell silent, and whoever
//!   comes back in time has the same ticket;
//! - G: after a tick, nobody is in line while a seat could be given.

use std::collections::VecDeque;

use usher_core::admission::{
    Change, Claims, Counts, Effect, End, Entry, Method, Pacing, Place, Room, Settings, Standing,
    State, Visitor,
};

const MINUTE_MS: u64 = 60_000;
/// Longer than any lease in these worlds, ms.
const LEASE_MAX_MS: u64 = 1 << 21;
const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
struct Known {
    visitor: Visitor,
    /// The room heard of it then, by a question or a check-in.
    heard: u64,
    /// Until then it could pass, ms.
    lease_until: u64,
    /// The seats that there were when it was called.
    seats: u64,
    /// Its place in the order of tickets.
    place: u32,
}

#[derive(Debug)]
pub(super) struct Ledger {
    now: u64,
    settings: Settings,
    known: Vec<Known>,
    /// Leases by their end.
    ends: Ring,
    could_pass: u64,
    /// Admissions by their moment.
    admissions: Ring,
    in_minute: u64,
    /// Limits of before, and until when they count.
    limits: VecDeque<(u64, u64)>,
    /// Tickets in their order, and whose they are.
    tickets: Vec<(u64, u32)>,
    line: Places,
    /// More seats may be taken than there are: of a lowered limit, of everybody passing, of a crash.
    excused: bool,
    pub(super) admitted: u64,
    pub(super) called: u64,
    pub(super) remembered: u64,
}

impl Ledger {
    pub(super) fn new(now: u64, settings: &Settings) -> Ledger {
        Ledger {
            now,
            settings: *settings,
            known: Vec::new(),
            ends: Ring::new(LEASE_MAX_MS),
            could_pass: 0,
            admissions: Ring::new(MINUTE_MS),
            in_minute: 0,
            limits: VecDeque::new(),
            tickets: Vec::new(),
            line: Places::default(),
            excused: false,
            admitted: 0,
            called: 0,
            remembered: 0,
        }
    }

    pub(super) fn advance(&mut self, now: u64) {
        while self.now < now {
            self.now += 1;
            self.could_pass -= u64::from(self.ends.take(self.now));
            self.in_minute -= u64::from(self.admissions.take(self.now));
        }
        while self.limits.front().is_some_and(|(until, _)| *until <= now) {
            self.limits.pop_front();
        }
    }

    pub(super) fn set(&mut self, settings: &Settings) {
        let before = self.settings.per_minute;
        self.limits.push_back((self.now + MINUTE_MS, before));
        self.excused |= settings.total < self.settings.total;
        self.settings = *settings;
    }

    /// Guests are met in the order of their numbers.
    pub(super) fn meet(&mut self, visitor: Visitor) {
        self.known.push(Known {
            visitor,
            heard: 0,
            lease_until: 0,
            seats: 0,
            place: NOWHERE,
        });
    }

    pub(super) fn visitor(&self, guest: u32) -> Visitor {
        self.known[guest as usize].visitor
    }

    /// `guest` was told that it may pass until then; 0 when it gave its seat up.
    pub(super) fn holds(&mut self, guest: u32, lease_until: u64) {
        let known = &mut self.known[guest as usize];
        if known.lease_until > self.now {
            self.ends.sub(known.lease_until);
            self.could_pass -= 1;
        }
        known.lease_until = lease_until;
        if lease_until > self.now {
            self.ends.add(lease_until);
            self.could_pass += 1;
        }
    }

    /// `guest` came with `before` and was told of a place.
    pub(super) fn waits(
        &mut self,
        guest: u32,
        place: &Place,
        before: Option<&Claims>,
    ) -> Result<(), String> {
        let known = &self.known[guest as usize];
        let Some(before) = before else { return Ok(()) };
        match before.standing {
            Standing::Active if known.lease_until > self.now => Err(format!(
                "L: a seat that is good until {} is a place in line",
                known.lease_until
            )),
            // What the room heard of last may have been lost with a crash.
            Standing::Waiting
                if before.ticket != place.ticket
                    && self.now.saturating_sub(known.heard) <= self.settings.hold_ms =>
            {
                Err(format!("L: {} became {}", before.ticket, place.ticket))
            }
            _ => Ok(()),
        }
    }

    /// One effect of a step.
    pub(super) fn note(&mut self, effect: &Effect) -> Result<(), String> {
        match effect.change {
            Change::Seated { visitor, how, .. } => self.seated(visitor, how),
            Change::Ended { visitor, cause } => {
                let known = &self.known[super::guest_of(visitor) as usize];
                let early = known.lease_until > self.now;
                if early && matches!(cause, End::Idle | End::Fixed) {
                    return Err(format!(
                        "L: a seat ended, its holder was told {}",
                        known.lease_until
                    ));
                }
                Ok(())
            }
            Change::Queued { visitor, ticket } => self.queued(visitor, ticket),
            Change::Present { visitor } => {
                let known = &mut self.known[super::guest_of(visitor) as usize];
                known.heard = self.now;
                if known.place != NOWHERE {
                    self.line.set(known.place);
                }
                Ok(())
            }
            Change::Away { visitor } => {
                let silence = self.leaves_line(visitor);
                if silence <= self.settings.present_ms {
                    return Err(format!("L: away after {silence} ms"));
                }
                Ok(())
            }
            Change::Gone { visitor, cause } => {
                let silence = self.leaves_line(visitor);
                if cause == End::Idle && silence <= self.settings.hold_ms {
                    return Err(format!("L: gone after {silence} ms"));
                }
                Ok(())
            }
            Change::Called { visitor, .. } => self.call(visitor),
            Change::Uncalled { visitor, late } => {
                let known = &mut self.known[super::guest_of(visitor) as usize];
                if !late && known.place != NOWHERE {
                    known.heard = self.now;
                    self.line.set(known.place);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn seated(&mut self, visitor: Visitor, how: Entry) -> Result<(), String> {
        let guest = super::guest_of(visitor) as usize;
        let known = &self.known[guest];
        let holds = known.lease_until > self.now;
        if known.place != NOWHERE {
            self.line.clear(known.place);
        }
        if how == Entry::Remembered {
            self.remembered += 1;
            return Ok(());
        }
        if holds {
            return Err(format!("U: {how:?}, though it could pass"));
        }
        self.admitted += 1;
        self.called += u64::from(how == Entry::Called);
        self.in_minute += 1;
        self.admissions.add(self.now + MINUTE_MS);
        if how == Entry::Passthrough {
            self.excused = true;
            return Ok(());
        }
        let seats = match how {
            Entry::Called => self.settings.total.max(known.seats),
            _ => self.settings.total,
        };
        if self.could_pass + 1 > seats {
            let could_pass = self.could_pass;
            return Err(format!("S: {could_pass} could pass, {how:?}, of {seats}"));
        }
        let limit =
            (self.limits.iter().map(|(_, limit)| *limit)).fold(self.settings.per_minute, u64::max);
        if self.in_minute > limit {
            let in_minute = self.in_minute;
            return Err(format!("R: {in_minute} in a minute, {how:?}, of {limit}"));
        }
        if how == Entry::Direct
            && let Some((ticket, _)) = self.first_in_line()
        {
            return Err(format!("F: {ticket} waits, somebody entered directly"));
        }
        Ok(())
    }

    fn queued(&mut self, visitor: Visitor, ticket: u64) -> Result<(), String> {
        let guest = super::guest_of(visitor);
        let place = self.known[guest as usize].place;
        let own = (self.tickets.get(place as usize)).is_some_and(|(told, _)| *told == ticket);
        let place = if own {
            place
        } else {
            if let Some((last, _)) = self.tickets.last()
                && *last >= ticket
            {
                return Err(format!("U: ticket {ticket} after {last}"));
            }
            self.tickets.push((ticket, guest));
            (self.tickets.len() - 1) as u32
        };
        let known = &mut self.known[guest as usize];
        (known.place, known.heard) = (place, self.now);
        self.line.set(place);
        Ok(())
    }

    fn call(&mut self, visitor: Visitor) -> Result<(), String> {
        let known = &mut self.known[super::guest_of(visitor) as usize];
        known.seats = self.settings.total;
        let place = known.place;
        if place == NOWHERE {
            return Err("U: somebody without a ticket was called".to_owned());
        }
        self.line.clear(place);
        if self.settings.method == Method::Fifo
            && let Some((first, at)) = self.first_in_line()
            && at < place
        {
            let ticket = self.tickets[place as usize].0;
            return Err(format!("F: {first} waits, {ticket} was called"));
        }
        Ok(())
    }

    /// The lowest ticket of those who were heard of in time. Whoever was not is passed over once.
    fn first_in_line(&mut self) -> Option<(u64, u32)> {
        loop {
            let place = self.line.first()?;
            let (ticket, guest) = self.tickets[place as usize];
            let silence = self.now.saturating_sub(self.known[guest as usize].heard);
            if silence <= self.settings.present_ms {
                return Some((ticket, place));
            }
            self.line.clear(place);
        }
    }

    fn leaves_line(&mut self, visitor: Visitor) -> u64 {
        let known = &self.known[super::guest_of(visitor) as usize];
        if known.place != NOWHERE {
            self.line.clear(known.place);
        }
        self.now.saturating_sub(known.heard)
    }

    /// After each step: what is held and what is reserved is within the limit.
    pub(super) fn judge(&mut self, counts: &Counts) -> Result<(), String> {
        let taken = counts.seated + counts.called + counts.ghosts;
        let total = self.settings.total;
        if taken <= total {
            self.excused = false;
        } else if !self.excused {
            return Err(format!("S: {taken} seats held and reserved, of {total}"));
        }
        Ok(())
    }

    /// After a tick nobody waits for a seat that is free.
    pub(super) fn progress(&mut self, counts: &Counts) -> Result<(), String> {
        let settings = &self.settings;
        let open = matches!(settings.method, Method::Fifo | Method::Random)
            && !settings.queue_all
            && !settings.suspended
            && settings.pacing == Pacing::Burst;
        let taken = counts.seated + counts.called + counts.ghosts;
        let slots = (settings.total.saturating_sub(taken))
            .min((settings.per_minute).saturating_sub(counts.window + counts.called));
        if open
            && slots > 0
            && let Some((ticket, _)) = self.first_in_line()
        {
            return Err(format!("G: {slots} slots, and {ticket} waits"));
        }
        Ok(())
    }

    /// A crash: seats may be kept free beside those of which it was forgotten that they ended.
    pub(super) fn crashed(&mut self) {
        self.excused = true;
    }

    /// The room came back: whom it has lost cannot be called before it is back too.
    pub(super) fn recover(&mut self, room: &Room) {
        for place in self.line.all() {
            let guest = self.tickets[place as usize].1;
            let found = room.find(self.known[guest as usize].visitor);
            if found.is_none_or(|person| person.state != State::Present) {
                self.line.clear(place);
            }
        }
    }
}

/// Counts by the millisecond.
#[derive(Debug)]
struct Ring {
    counts: Vec<u32>,
}

impl Ring {
    fn new(span_ms: u64) -> Ring {
        let len = (span_ms + 1).next_power_of_two() as usize;
        Ring {
            counts: vec![0; len],
        }
    }

    fn at(&mut self, moment: u64) -> &mut u32 {
        let mask = self.counts.len() as u64 - 1;
        &mut self.counts[(moment & mask) as usize]
    }

    fn add(&mut self, moment: u64) {
        *self.at(moment) += 1;
    }

    fn sub(&mut self, moment: u64) {
        *self.at(moment) -= 1;
    }

    fn take(&mut self, moment: u64) -> u32 {
        std::mem::take(self.at(moment))
    }
}

/// A set of small numbers that knows its least: a tree of words.
#[derive(Debug, Default)]
struct Places {
    levels: [Vec<u64>; 6],
}

impl Places {
    fn set(&mut self, place: u32) {
        let mut at = place as usize;
        for level in &mut self.levels {
            let (word, bit) = (at / 64, at % 64);
            if level.len() <= word {
                level.resize(word + 1, 0);
            }
            level[word] |= 1 << bit;
            at = word;
        }
    }

    fn clear(&mut self, place: u32) {
        let mut at = place as usize;
        for level in &mut self.levels {
            let Some(word) = level.get_mut(at / 64) else {
                return;
            };
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    fn first(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level.get(at).copied().filter(|word| *word != 0)?;
            at = at * 64 + word.trailing_zeros() as usize;
        }
        u32::try_from(at).ok()
    }

    fn all(&self) -> Vec<u32> {
        let words = self.levels[0].iter().enumerate();
        words
            .filter(|(_, bits)| **bits != 0)
            .flat_map(|(at, bits)| {
                let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
                set.map(move |bit| at as u32 * 64 + bit)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn places_know_their_least() {
        let mut rng = Rng::new(1);
        let (mut places, mut naive) = (Places::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let place = rng.below(300_000) as u32;
            if rng.percent(50) {
                places.set(place);
                naive.insert(place);
            } else {
                let place = naive.first().copied().unwrap_or(place);
                places.clear(place);
                naive.remove(&place);
            }
            assert_eq!(places.first(), naive.first().copied());
        }
        assert_eq!(places.all(), naive.into_iter().collect::<Vec<_>>());
    }
}
