//! One waiting room in a made-up world: visitors, an operator, a journal that crashes, a clock that
//! jumps.
//!
//! Visitors go through the door as a front would send them: answered from their cookie and a summary
//! where that is enough. Between crashes the [`model`] must give each answer that the room gives;
//! after each step the invariants of the specification are judged from what the visitors hold and
//! were told, not from what the room believes: S (seats), R (rate), F (order), U (uniqueness),
//! L (no loss), G (progress).

pub mod crowd;
pub mod model;

use crate::rng::Rng;
use model::{Model, Told};
use std::collections::BTreeSet;
use usher_core::admission::door::{Door, Kind, decide};
use usher_core::admission::{
    Answer, Change, Claims, Command, Effect, End, Entry, Method, Renewal, Room, Settings, Standing,
    Summary, Visitor,
};

const START: u64 = 1_796_000_000_000;
const TICK_MS: u64 = 250;
const UNLIMITED: u64 = 2_147_483_647;

/// What a run saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Visitors let in.
    pub admitted: u64,
    /// Of them, after waiting.
    pub called: u64,
    /// Crashes.
    pub crashes: u64,
    /// Seats that came back by their cookies.
    pub remembered: u64,
    /// Steps at which the model agreed.
    pub agreed: u64,
}

/// Somebody who comes, waits, stays a while and goes.
#[derive(Debug, Clone)]
struct Guest {
    visitor: Visitor,
    claims: Option<Claims>,
    /// When it does something next; never, once it has left.
    next: u64,
    stays_until: Option<u64>,
}

/// A room and its world.
pub struct RoomWorld {
    seed: u64,
    rng: Rng,
    now: u64,
    settings: Settings,
    room: Room,
    summary: Summary,
    model: Model,
    guests: Vec<Guest>,
    seen: Vec<usize>,
    journal: Vec<Effect>,
    watermark: u64,
    admissions: Vec<u64>,
    limits: Vec<(u64, u64)>,
    tickets: BTreeSet<u64>,
    called_total: std::collections::BTreeMap<Visitor, u64>,
    ghosts_until: u64,
    /// A crash is due: the best moment is just after something that the journal may lose.
    crash_due: bool,
    /// Until then, cookies from before a crash may know more than the room.
    unsettled_until: u64,
    tally: Tally,
}

impl RoomWorld {
    /// Runs the world of `seed` for `minutes` of its time.
    ///
    /// # Errors
    /// What was broken, at which step, and how to see it again.
    pub fn run(seed: u64, minutes: u64) -> Result<Tally, String> {
        let mut world = RoomWorld::new(seed);
        let end = world.now + minutes * 60_000;
        let mut step = 0_u64;
        while world.now < end {
            world.turn().map_err(|fault| {
                format!(
                    "seed {seed} step {step} at {} ms: {fault}\nreplay: ROOM_SEED={seed} cargo test -p usher-sim --test rooms",
                    world.now - START
                )
            })?;
            step += 1;
        }
        Ok(world.tally)
    }

    fn new(seed: u64) -> RoomWorld {
        let mut rng = Rng::new(seed);
        let mut settings = settings(&mut rng);
        let crashes = seed % 4 == 2;
        if crashes {
            // A crash shows in a room where every seat is wanted.
            settings.method = Method::Fifo;
            settings.total = rng.within(1, 5) as u64;
            settings.per_minute = *rng.pick(&[6, 20, UNLIMITED, UNLIMITED]);
        }
        let room = Room::default();
        let summary = room.summary(&settings, START);
        let guests = (0..rng.within(if crashes { 40 } else { 5 }, 120))
            .map(|number| Guest {
                visitor: Visitor::from_u128((u128::from(rng.draw()) << 64) | number as u128),
                claims: None,
                next: START + rng.below(120_000) as u64,
                stays_until: None,
            })
            .collect();
        RoomWorld {
            seed,
            watermark: settings.watermark_step(),
            limits: vec![(START, settings.per_minute)],
            rng,
            now: START,
            settings,
            room,
            summary,
            model: Model::default(),
            guests,
            seen: Vec::new(),
            journal: Vec::new(),
            admissions: Vec::new(),
            tickets: BTreeSet::new(),
            called_total: std::collections::BTreeMap::new(),
            ghosts_until: 0,
            crash_due: false,
            unsettled_until: 0,
            tally: Tally::default(),
        }
    }

    /// A quarter of a second.
    fn turn(&mut self) -> Result<(), String> {
        self.now += TICK_MS;
        let world = self.seed % 4;
        if (world == 1 || world == 3) && self.rng.below(2_000) == 0 {
            self.operator();
        }
        if world == 2 && std::mem::take(&mut self.crash_due) {
            self.crash()?;
        }
        if world == 3 && self.rng.below(1_500) == 0 {
            // A jump forward, as after a machine's sleep; back, the room takes for standing still.
            self.now += self.rng.below(20_000) as u64;
        }
        self.tick()?;
        self.progress()?;
        for at in 0..self.guests.len() {
            if self.guests[at].next <= self.now {
                self.act(at)?;
            }
        }
        if self.now % 1_000 < TICK_MS && !self.seen.is_empty() {
            let seen: Vec<Visitor> = self
                .seen
                .drain(..)
                .map(|at| self.guests[at].visitor)
                .collect();
            let drawn = self.step(Command::CheckIn(&seen))?.1;
            self.model.check_in(&self.settings, self.now, &seen, &drawn);
        }
        if self.now % 500 < TICK_MS {
            self.summary = self.room.summary(&self.settings, self.now);
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), String> {
        let drawn = self.step(Command::Tick)?.1;
        self.model.tick(&self.settings, self.now, &drawn);
        Ok(())
    }

    /// Asks the room, keeps the journal, judges the calls; also who was called.
    fn step(&mut self, command: Command<'_>) -> Result<(Answer, Vec<Visitor>), String> {
        let mut effects = Vec::new();
        let draw = self.rng.draw();
        let answer = (self.room).step(&self.settings, self.now, draw, command, &mut effects);
        let mut drawn = Vec::new();
        for effect in &effects {
            match effect.change {
                Change::Called { visitor, .. } => {
                    self.called_total.insert(visitor, self.settings.total);
                    drawn.push(visitor);
                }
                Change::Seated { visitor, how, .. } => self.judge_entry(visitor, how)?,
                Change::Queued { ticket, .. } => {
                    let before = self.now < self.unsettled_until;
                    if !self.tickets.insert(ticket) && !before {
                        return Err(format!("U: ticket {ticket} was issued twice"));
                    }
                }
                Change::Recovered { until, .. } => self.ghosts_until = self.ghosts_until.max(until),
                _ => {}
            }
        }
        if self.settings.method == Method::Fifo
            && let Some(last) = drawn.iter().rev().find_map(|who| self.room.find(*who))
            && let Some((first, _)) = self.present_in_room().first()
            && *first < last.ticket
        {
            return Err(format!("F: {first} waits, {} was called", last.ticket));
        }
        self.journal
            .extend(effects.iter().filter(|effect| effect.is_durable()));
        for effect in effects.iter().filter(|effect| effect.is_durable()) {
            let one_in = match effect.change {
                Change::Alive => continue,
                Change::Seated { .. } => 25,
                _ => 400,
            };
            self.crash_due |= self.rng.below(one_in) == 0;
        }
        if !drawn.is_empty() {
            self.summary = self.room.summary(&self.settings, self.now);
        }
        Ok((answer, drawn))
    }

    fn present_in_room(&self) -> Vec<(u64, Visitor)> {
        let mut present: Vec<(u64, Visitor)> = (self.guests.iter())
            .filter_map(|guest| self.room.find(guest.visitor))
            .filter(|person| {
                person.state == usher_core::admission::State::Present
                    && self.now.saturating_sub(person.seen) <= self.settings.present_ms
            })
            .map(|person| (person.ticket, person.visitor))
            .collect();
        present.sort_unstable();
        present
    }

    /// S and R, from what the visitors hold.
    fn judge_entry(&mut self, visitor: Visitor, how: Entry) -> Result<(), String> {
        if how == Entry::Remembered {
            self.tally.remembered += 1;
            return Ok(());
        }
        let could_pass = (self.guests.iter())
            .filter(|guest| guest.visitor != visitor)
            .filter_map(|guest| guest.claims)
            .filter(|claims| claims.standing == Standing::Active && self.now < claims.lease_until)
            .count() as u64;
        let total = match how {
            Entry::Called => self.called_total.get(&visitor).copied().unwrap_or(0),
            _ => self.settings.total,
        };
        let total = total.max(self.settings.total);
        if how != Entry::Passthrough && could_pass + 1 > total {
            return Err(format!("S: {could_pass} could pass, {how:?}, of {total}"));
        }
        if how == Entry::Direct
            && let Some((ticket, _)) = self.present_in_room().first()
        {
            return Err(format!("F: {ticket} waits, somebody entered directly"));
        }
        self.admissions.push(self.now);
        let minute = (self.admissions.iter())
            .filter(|at| **at + 60_000 > self.now)
            .count() as u64;
        let mut limit = self.settings.per_minute;
        for (place, (_, value)) in self.limits.iter().enumerate() {
            let ended = self.limits.get(place + 1).map_or(u64::MAX, |next| next.0);
            if ended.saturating_add(60_000) > self.now {
                limit = limit.max(*value);
            }
        }
        if how != Entry::Passthrough && minute > limit {
            return Err(format!("R: {minute} in a minute, of {limit}, {how:?}"));
        }
        self.tally.admitted += 1;
        self.tally.called += u64::from(how == Entry::Called);
        // The journal allows for admissions ahead.
        while self.tally.admitted > self.watermark {
            self.watermark += self.settings.watermark_step();
        }
        Ok(())
    }

    /// G: after a tick nobody present waits for a free seat.
    fn progress(&self) -> Result<(), String> {
        let open = matches!(self.settings.method, Method::Fifo | Method::Random);
        let counts = self.room.counts();
        let taken = counts.seated + counts.called + counts.ghosts;
        let slots = (self.settings.total.saturating_sub(taken))
            .min((self.settings.per_minute).saturating_sub(counts.window + counts.called));
        match self.present_in_room().first() {
            Some((ticket, _)) if open && !self.settings.queue_all && slots > 0 => {
                Err(format!("G: {slots} slots, and {ticket} waits"))
            }
            _ => Ok(()),
        }
    }

    fn act(&mut self, at: usize) -> Result<(), String> {
        let guest = self.guests[at].clone();
        let door = decide(
            &self.settings,
            &self.summary,
            guest.claims.as_ref(),
            Kind::Navigation,
            self.now,
        );
        let refresh = self.settings.refresh_ms;
        let mut pause = refresh;
        match door {
            Door::Bypass | Door::Decoy | Door::WaitOutside => {}
            Door::Reject | Door::Full => pause = refresh * 2,
            Door::Pass { renew } => {
                if renew {
                    let visitor = guest.visitor;
                    let claims = guest.claims.as_ref();
                    let answer = self.step(Command::Renew { visitor, claims })?.0;
                    let told = self.model.renew_beside(&self.settings, self.now, visitor);
                    self.agree(&answer, told)?;
                    if let Answer::Forward(seat) = answer {
                        self.guests[at].claims =
                            Some(Claims::seated(visitor, &seat, claims, self.now));
                    }
                }
                pause = self.active(at);
            }
            Door::Wait(place) => {
                self.seen.push(at);
                let claims =
                    Claims::waiting(guest.visitor, &place, guest.claims.as_ref(), self.now);
                self.guests[at].claims = Some(claims);
            }
            Door::Ask => pause = self.ask(at, &guest)?,
        }
        // Some go for good, some for a while.
        let waits = (self.guests[at].claims).is_some_and(|it| it.standing == Standing::Waiting);
        if waits && self.rng.percent(2) {
            pause = self.rng.below(400_000) as u64;
        }
        self.guests[at].next = self.now + pause + self.rng.below(500) as u64;
        Ok(())
    }

    fn ask(&mut self, at: usize, guest: &Guest) -> Result<u64, String> {
        let visitor = guest.visitor;
        let before = guest.claims.as_ref();
        let (answer, drawn) = self.step(Command::Ask {
            visitor,
            claims: before,
        })?;
        let told = self.model.ask(&self.settings, self.now, visitor, &drawn);
        self.agree(&answer, told)?;
        Ok(match answer {
            Answer::Forward(seat) => {
                let claims = Claims::seated(visitor, &seat, before, self.now);
                self.guests[at].claims = Some(claims);
                self.active(at)
            }
            Answer::Wait(place) => {
                // L: whoever came back in time has its ticket.
                let kept = before.filter(|claims| {
                    claims.standing == Standing::Waiting
                        && self.now - claims.last_check_in + 2_000 <= self.settings.hold_ms
                });
                if let Some(claims) = kept
                    && claims.ticket != place.ticket
                    && self.settings.hold_ms >= 60_000
                {
                    return Err(format!("L: {} became {}", claims.ticket, place.ticket));
                }
                let claims = Claims::waiting(visitor, &place, before, self.now);
                self.guests[at].claims = Some(claims);
                self.settings.refresh_ms
            }
            Answer::Suspended | Answer::Reject | Answer::Full => self.settings.refresh_ms * 2,
            other => return Err(format!("{other:?} for a question")),
        })
    }

    /// A seat holder clicks, idles, or leaves.
    fn active(&mut self, at: usize) -> u64 {
        let now = self.now;
        let session = self.settings.session_ms as usize;
        let stay = self.rng.below(session * 3) as u64;
        let until = *self.guests[at].stays_until.get_or_insert(now + stay);
        if now < until {
            return 500 + self.rng.below(session / 2) as u64;
        }
        self.guests[at].stays_until = None;
        if self.rng.percent(30) {
            let visitor = self.guests[at].visitor;
            let cause = End::Left;
            self.guests[at].claims = None;
            if let Ok((_, drawn)) = self.step(Command::End { visitor, cause }) {
                self.model.end(&self.settings, now, visitor, &drawn);
            }
        }
        // Back after a while, when the seat is over or nearly.
        self.rng.below(session * 2) as u64
    }

    fn agree(&mut self, answer: &Answer, told: Told) -> Result<(), String> {
        if self.now < self.unsettled_until {
            let visitors: Vec<Visitor> = self.guests.iter().map(|guest| guest.visitor).collect();
            self.model
                .adopt(&self.room, &visitors, self.now, self.ghosts_until);
            return Ok(());
        }
        if Told::of(answer) != told {
            return Err(format!("the room says {answer:?}, the model {told:?}"));
        }
        self.tally.agreed += 1;
        Ok(())
    }

    fn operator(&mut self) {
        let fresh = settings(&mut self.rng);
        let kept = self.settings;
        self.settings = match self.rng.below(5) {
            0 => Settings {
                total: fresh.total,
                ..kept
            },
            1 => Settings {
                per_minute: fresh.per_minute,
                ..kept
            },
            2 => Settings {
                method: fresh.method,
                ..kept
            },
            3 => Settings {
                queue_all: !kept.queue_all,
                ..kept
            },
            _ => Settings {
                session_ms: fresh.session_ms,
                renewal: fresh.renewal,
                ..kept
            },
        };
        self.limits.push((self.now, self.settings.per_minute));
    }

    /// The process dies; the last of the journal, up to a second of it, with it.
    fn crash(&mut self) -> Result<(), String> {
        let tail = self.rng.below(1_000) as u64;
        // A recovery is on the disk before the room answers anybody.
        let recovered = (self.journal.iter())
            .rposition(|effect| matches!(effect.change, Change::Recovered { .. }));
        let kept = (self
            .journal
            .partition_point(|effect| effect.at + tail <= self.now))
        .max(recovered.map_or(0, |at| at + 1));
        self.journal.truncate(kept);
        let mut room = Room::default();
        for effect in &self.journal {
            room.apply(effect);
        }
        // What the room does not count, the watermark does.
        self.room = room;
        self.seen.clear();
        self.now += self.rng.below(3_000) as u64;
        self.step(Command::Recover {
            admitted_max: self.watermark,
            tail_ms: 1_000,
            torn: false,
        })?;
        let ghosts = self.room.counts().ghosts;
        self.model.count(self.now, ghosts);
        self.tally.crashes += 1;
        self.watermark = self.room.counts().admitted;
        self.tally.admitted = self.watermark;
        // Until each cookie has been seen, or is over, the model cannot know what was lost.
        let longest = self.settings.lease_ms().max(self.settings.hold_ms) + 700_000;
        self.unsettled_until = self.now + longest;
        let visitors: Vec<Visitor> = self.guests.iter().map(|guest| guest.visitor).collect();
        self.model
            .adopt(&self.room, &visitors, self.now, self.ghosts_until);
        self.summary = self.room.summary(&self.settings, self.now);
        Ok(())
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let total = *rng.pick(&[0, 1, 1, 2, 5, 10, 20, 40]);
    let per_minute = *rng.pick(&[0, 1, 6, 20, 60, UNLIMITED, UNLIMITED, UNLIMITED]);
    let session_ms = *rng.pick(&[5_000, 20_000, 60_000, 120_000]);
    let mut settings = Settings::new(total, per_minute).session(session_ms);
    settings.renewal = match rng.below(4) {
        0 => Renewal::Never,
        1 => Renewal::After { quantum_ms: 0 },
        _ => settings.renewal,
    };
    settings.method = *rng.pick(&[
        Method::Fifo,
        Method::Fifo,
        Method::Fifo,
        Method::Random,
        Method::Random,
        Method::Passthrough,
        Method::Reject,
    ]);
    settings
}
