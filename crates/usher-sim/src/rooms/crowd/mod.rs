//! A million visitors of one waiting room over two hours.
//!
//! The small worlds of [`super::RoomWorld`] look for an order that nobody thought of, and walk through
//! everybody at each step to judge it. Here the numbers are those of a rush, so nothing may be
//! walked: the `ledger` keeps what visitors were told, and judges each step by what changed in it.
//! What the room told of the wait is laid beside the wait that it was (`report`).
//!
//! Two clocks run. Visitors live by the world's; the room's may jump, and everything that a room
//! promises is judged by the room's. A crash takes the last of the journal, up to a second of it:
//! what is left is a second room, to which all else that was written has been applied.

mod ledger;
mod report;
mod scenario;
mod wheel;

use std::collections::VecDeque;

use usher_core::admission::door::{Door, Kind, decide};
use usher_core::admission::{
    Answer, Change, Claims, Command, Effect, End, Entry, Method, Renewal, Room, Settings, Shown,
    Standing, Summary, Visitor,
};

use crate::rng::Rng;
use ledger::Ledger;
use report::Told;
pub use report::{Answers, Figures, Report};
pub use scenario::Scenario;
use wheel::Wheel;

/// A moment of the world, ms. All that is due in it happens at once.
const TURN_MS: u64 = 50;
const TICK_MS: u64 = 250;
const SUMMARY_MS: u64 = 500;
const FLUSH_MS: u64 = 1_000;
/// A front tells the room of so many at once.
const BATCH_MAX: usize = 512;
/// The clock of a room when a world begins.
const START: u64 = 1_796_000_000_000;
/// One in so many visitors looks at each page for a jump of the wait that it shows.
const WATCHES: u32 = 8;

/// What a run saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Story {
    /// Visitors who came.
    pub came: u64,
    /// Of them, those who got in.
    pub admitted: u64,
    /// Of them, after waiting.
    pub called: u64,
    /// Polls of waiting visitors, answered from the summary.
    pub polls: u64,
    /// Steps of the room.
    pub steps: u64,
    /// Most visitors in line at once.
    pub waiting_max: u64,
    /// Seats that were forgotten in a crash, and came back by their cookies.
    pub remembered: u64,
    /// Crashes.
    pub crashes: u64,
    /// Jumps of the clock.
    pub jumps: u64,
    /// Changes of the settings.
    pub changes: u64,
    /// Estimates beside the waits.
    pub report: Report,
}

/// Somebody who comes once, waits, stays a while and goes.
#[derive(Debug, Clone, Default)]
struct Guest {
    claims: Option<Claims>,
    /// The world's time at which it has had enough, of waiting or of the site.
    leaves: u64,
    /// Looks at one page and is never seen again.
    flees: bool,
    /// How much later than it should its page asks each time, ms: people's networks differ, and so
    /// their polls do not stay in step.
    lag: u64,
    told: Told,
}

/// A room, its visitors, and what happens to it.
#[derive(Debug)]
pub struct Crowd {
    scenario: Scenario,
    seed: u64,
    rng: Rng,
    /// The world's time since its beginning, ms.
    now: u64,
    /// What the room's clock is ahead of the world's, ms.
    ahead: i64,
    /// The room's clock.
    time: u64,
    settings: Settings,
    changed: usize,
    room: Room,
    summary: Summary,
    summary_due: u64,
    flush_due: u64,
    tick_due: u64,
    disk: Disk,
    watermark: u64,
    guests: Vec<Guest>,
    wheel: Wheel,
    ledger: Ledger,
    seen: Vec<Visitor>,
    effects: Vec<Effect>,
    story: Story,
}

/// The journal: what is older than a second is safe.
#[derive(Debug, Default)]
struct Disk {
    safe: Room,
    fresh: VecDeque<Effect>,
}

impl Disk {
    fn write(&mut self, before: u64) {
        while let Some(effect) = self.fresh.front()
            && effect.at <= before
        {
            self.safe.apply(effect);
            self.fresh.pop_front();
        }
    }
}

fn visitor(guest: u32, rng: &mut Rng) -> Visitor {
    let high = (rng.draw() & !u64::from(u32::MAX)) | u64::from(guest);
    Visitor::from_u128((u128::from(high) << 64) | u128::from(rng.draw()))
}

/// Who is behind an identity: in this world it says so.
fn guest_of(visitor: Visitor) -> u32 {
    (visitor.as_u128() >> 64) as u32
}

impl Crowd {
    /// The world of `scenario` that follows from `seed`.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> Crowd {
        let settings = scenario.settings();
        let room = Room::default();
        let visitors = scenario.visitors() as usize;
        Crowd {
            summary: room.summary(&settings, START),
            watermark: settings.watermark_step(),
            ledger: Ledger::new(START, &settings),
            story: Story {
                report: Report::new(scenario.phases()),
                ..Story::default()
            },
            seed,
            rng: Rng::new(seed),
            now: 0,
            ahead: 0,
            time: START,
            settings,
            changed: 0,
            room,
            summary_due: 0,
            flush_due: 0,
            tick_due: 0,
            disk: Disk::default(),
            guests: Vec::with_capacity(visitors + visitors / 64),
            wheel: Wheel::new(),
            seen: Vec::new(),
            effects: Vec::new(),
            scenario,
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// What was broken, when, and how to see it again.
    pub fn run(mut self) -> Result<Story, String> {
        while self.now < self.scenario.ends() {
            self.turn().map_err(|fault| {
                format!(
                    "{} with {} visitors, seed {}, {} ms after the beginning: {fault}\nreplay: \
                     cargo run --release -p usher-sim --example crowd -- {} {} {}",
                    self.scenario.name(),
                    self.scenario.visitors(),
                    self.seed,
                    self.now,
                    self.scenario.visitors(),
                    self.scenario.name(),
                    self.seed,
                )
            })?;
        }
        self.story.admitted = self.ledger.admitted;
        self.story.called = self.ledger.called;
        self.story.remembered = self.ledger.remembered;
        Ok(self.story)
    }

    fn turn(&mut self) -> Result<(), String> {
        self.now += TURN_MS;
        if self.scenario.has_clock_faults() && self.rng.below(6_000) == 0 {
            self.ahead += self.rng.within(0, 40_000) as i64 - 20_000;
            self.story.jumps += 1;
        }
        if self.scenario.has_crashes() && self.rng.below(5_000) == 0 {
            self.crash()?;
        }
        self.read_clock();
        self.operate();
        if self.now >= self.tick_due {
            self.tick_due = self.now + TICK_MS;
            self.tick()?;
        }
        self.arrive()?;
        let mut due = self.wheel.take(self.now);
        for guest in due.drain(..) {
            self.act(guest)?;
        }
        self.wheel.give_back(due);
        if self.now >= self.flush_due {
            self.flush_due = self.now + FLUSH_MS;
            self.flush()?;
        }
        if self.now >= self.summary_due {
            self.publish();
        }
        if self.scenario.has_crashes() {
            self.disk.write(self.time.saturating_sub(1_000));
        }
        let counts = self.room.counts();
        self.story.waiting_max = self.story.waiting_max.max(counts.present + counts.away);
        Ok(())
    }

    /// A clock that was set back stands still until it has caught up.
    fn read_clock(&mut self) {
        let shows = (START + self.now).saturating_add_signed(self.ahead);
        self.time = self.time.max(shows);
        self.ledger.advance(self.time);
    }

    fn operate(&mut self) {
        while let Some((at, settings)) = self.scenario.changes().get(self.changed)
            && *at <= self.now
        {
            self.settings = *settings;
            self.ledger.set(&self.settings);
            self.changed += 1;
            self.story.changes += 1;
            self.summary_due = self.now;
        }
    }

    fn tick(&mut self) -> Result<(), String> {
        while self.step(Command::Tick)? == (Answer::Done { more: true }) {}
        self.ledger.progress(&self.room.counts())
    }

    fn publish(&mut self) {
        self.summary = self.room.summary(&self.settings, self.time);
        self.summary_due = self.now + SUMMARY_MS;
    }

    /// Asks the room, keeps the journal, judges what happened.
    fn step(&mut self, command: Command<'_>) -> Result<Answer, String> {
        self.effects.clear();
        let draw = self.rng.draw();
        let answer = (self.room).step(&self.settings, self.time, draw, command, &mut self.effects);
        self.story.steps += 1;
        for effect in &self.effects {
            self.ledger.note(effect)?;
            match effect.change {
                // The front hears of it with the next tick.
                Change::Called { .. } => self.summary_due = self.tick_due.min(self.summary_due),
                Change::Seated {
                    visitor,
                    how: Entry::Called,
                    ..
                } => {
                    let told = &self.guests[guest_of(visitor) as usize].told;
                    self.story.report.entered(told, self.time);
                }
                _ => {}
            }
        }
        let counts = self.room.counts();
        self.ledger.judge(&counts)?;
        if self.scenario.has_crashes() {
            let durable = self.effects.iter().filter(|effect| effect.is_durable());
            self.disk.fresh.extend(durable);
            // The journal allows for admissions ahead.
            while counts.admitted > self.watermark {
                self.watermark += self.settings.watermark_step();
            }
        }
        Ok(answer)
    }

    fn arrive(&mut self) -> Result<(), String> {
        let count = self.rng.poisson(self.scenario.arrivals(self.now, TURN_MS));
        for _ in 0..count {
            let guest = u32::try_from(self.guests.len()).map_err(|_| "too many visitors")?;
            let identity = visitor(guest, &mut self.rng);
            self.guests.push(Guest {
                leaves: self
                    .now
                    .saturating_add(self.scenario.patience(&mut self.rng)),
                flees: self.scenario.flees(&mut self.rng),
                lag: self.rng.below(800) as u64,
                ..Guest::default()
            });
            self.ledger.meet(identity);
            self.story.came += 1;
            self.act(guest)?;
        }
        Ok(())
    }

    fn act(&mut self, guest: u32) -> Result<(), String> {
        let at = guest as usize;
        let claims = self.guests[at].claims;
        let waits = claims.is_some_and(|claims| claims.standing == Standing::Waiting);
        let enough = self.now >= self.guests[at].leaves;
        if waits && (enough || self.guests[at].flees) {
            return self.gives_up(guest);
        }
        if claims.is_some() && !waits && enough {
            return self.depart(guest);
        }
        let way = decide(
            &self.settings,
            &self.summary,
            claims.as_ref(),
            Kind::Navigation,
            self.time,
        );
        match way {
            Door::Bypass | Door::Decoy | Door::WaitOutside => {}
            Door::Reject | Door::Full => self.turned_away(guest),
            Door::Pass { renew } => {
                if renew {
                    self.renew(guest)?;
                }
                self.browse(guest);
            }
            Door::Wait(place) => {
                self.story.polls += 1;
                let Some(claims) = &mut self.guests[at].claims else {
                    return Err("a place for somebody without a ticket".to_owned());
                };
                let visitor = claims.visitor;
                claims.last_check_in = self.time;
                claims.stamp = place.stamp;
                self.foresee(guest);
                self.seen.push(visitor);
                if self.seen.len() >= BATCH_MAX {
                    self.flush()?;
                }
                self.poll_later(guest);
            }
            Door::Ask => self.ask(guest)?,
        }
        Ok(())
    }

    fn ask(&mut self, guest: u32) -> Result<(), String> {
        let at = guest as usize;
        let visitor = self.ledger.visitor(guest);
        let before = self.guests[at].claims;
        let answer = self.step(Command::Ask {
            visitor,
            claims: before.as_ref(),
        })?;
        match answer {
            Answer::Forward(seat) => {
                self.sit(
                    guest,
                    Claims::seated(visitor, &seat, before.as_ref(), self.time),
                );
                self.browse(guest);
            }
            Answer::Wait(place) => {
                self.ledger.waits(guest, &place, before.as_ref())?;
                let claims = Claims::waiting(visitor, &place, before.as_ref(), self.time);
                if before.is_none_or(|before| before.ticket != place.ticket) {
                    self.guests[at].told = Told::default();
                }
                self.guests[at].claims = Some(claims);
                self.foresee(guest);
                self.poll_later(guest);
            }
            Answer::Reject | Answer::Full => self.turned_away(guest),
            Answer::Suspended => {}
            other => return Err(format!("{other:?} for a question")),
        }
        Ok(())
    }

    fn renew(&mut self, guest: u32) -> Result<(), String> {
        let visitor = self.ledger.visitor(guest);
        let before = self.guests[guest as usize].claims;
        let answer = self.step(Command::Renew {
            visitor,
            claims: before.as_ref(),
        })?;
        if let Answer::Forward(seat) = answer {
            let claims = Claims::seated(visitor, &seat, before.as_ref(), self.time);
            let holder = &mut self.guests[guest as usize];
            self.ledger.holds(guest, claims.lease_until);
            holder.claims = Some(claims);
        }
        Ok(())
    }

    /// A seat, and a time to stay.
    fn sit(&mut self, guest: u32, claims: Claims) {
        let holder = &mut self.guests[guest as usize];
        let held = (holder.claims).is_some_and(|before| before.standing == Standing::Active);
        self.ledger.holds(guest, claims.lease_until);
        holder.claims = Some(claims);
        if !held {
            let stays = self.scenario.stay(&mut self.rng);
            // One that cannot be renewed is long enough for whoever sits on it.
            let stays = match self.settings.renewal {
                Renewal::Never => stays.min(self.settings.session_ms),
                Renewal::After { .. } => stays,
            };
            holder.leaves = self.now + stays;
        }
    }

    /// A seat holder reads, and clicks.
    fn browse(&mut self, guest: u32) {
        let pause = self.rng.within(5_000, 45_000) as u64;
        self.wheel.put(self.now + pause, guest);
    }

    /// A seat holder leaves: by the door, or without a word.
    fn depart(&mut self, guest: u32) -> Result<(), String> {
        if self.rng.percent(30) {
            let visitor = self.ledger.visitor(guest);
            self.guests[guest as usize].claims = None;
            self.ledger.holds(guest, 0);
            self.step(Command::End {
                visitor,
                cause: End::Left,
            })?;
        }
        Ok(())
    }

    /// Somebody who waits has had enough. Few say so.
    fn gives_up(&mut self, guest: u32) -> Result<(), String> {
        if self.guests[guest as usize].flees || !self.rng.percent(10) {
            return Ok(());
        }
        let visitor = self.ledger.visitor(guest);
        self.guests[guest as usize].claims = None;
        self.step(Command::End {
            visitor,
            cause: End::Left,
        })?;
        Ok(())
    }

    /// Half of them try again.
    fn turned_away(&mut self, guest: u32) {
        if self.rng.percent(50) {
            let pause = 2 * self.settings.refresh_ms + self.rng.below(1_000) as u64;
            self.wheel.put(self.now + pause, guest);
        }
    }

    fn poll_later(&mut self, guest: u32) {
        let late = self.guests[guest as usize].lag + self.rng.below(150) as u64;
        let pause = self.settings.refresh_ms + late;
        self.wheel.put(self.now + pause, guest);
    }

    /// What the room says of the wait, kept until it is known.
    fn foresee(&mut self, guest: u32) {
        let Guest { claims, told, .. } = &mut self.guests[guest as usize];
        let Some(claims) = claims else { return };
        let method = self.settings.method;
        let draw = self.rng.draw();
        told.look(&self.summary, method, claims.ticket, self.time, draw);
        if guest.is_multiple_of(WATCHES) && method == Method::Fifo {
            let before = claims.shown;
            claims.shown = (self.summary.estimate(claims.ticket, method))
                .map(|estimate| Shown::next(before, &estimate, false).0);
            if let (Some(before), Some(shown)) = (before, claims.shown) {
                told.rose |= f64::from(shown.minutes) > 1.2 * f64::from(before.minutes);
            }
            told.watches = true;
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        if self.seen.is_empty() {
            return Ok(());
        }
        let seen = std::mem::take(&mut self.seen);
        // A room that is behind does without.
        let lost = self.scenario.has_crashes() && self.rng.percent(1);
        if !lost {
            self.step(Command::CheckIn(&seen))?;
        }
        self.seen = seen;
        self.seen.clear();
        Ok(())
    }

    /// The process dies, and another reads its journal.
    fn crash(&mut self) -> Result<(), String> {
        let tail = self.rng.below(1_000) as u64;
        self.disk.write(self.time.saturating_sub(tail));
        self.disk.fresh.clear();
        self.room = self.disk.safe.clone();
        self.seen.clear();
        // Whoever asks meanwhile asks again.
        let down = self.now + self.rng.below(3_000) as u64;
        while self.now + TURN_MS <= down {
            let missed = self.wheel.take(self.now);
            for guest in missed {
                let again = down + TURN_MS + self.rng.below(2_000) as u64;
                self.wheel.put(again, guest);
            }
            self.now += TURN_MS;
        }
        self.read_clock();
        self.ledger.crashed();
        self.step(Command::Recover {
            admitted_max: self.watermark,
            tail_ms: 1_000,
            torn: false,
        })?;
        // A recovery is on the disk before anybody is told anything.
        self.disk.write(u64::MAX);
        self.watermark = self.room.counts().admitted;
        self.ledger.recover(&self.room);
        self.publish();
        self.story.crashes += 1;
        Ok(())
    }
}
