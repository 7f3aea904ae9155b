//! What visitors say they were told, held against each other and against the room's log.
//!
//! A visitor knows two moments of each exchange, when it asked and when it had its answer; what
//! happened, happened in between. Everything here is judged so that no order of the two can make a
//! breach of what was none.

use std::collections::{BTreeMap, BTreeSet};

use usher_core::admission::{Claims, Standing, Visitor};

use super::judge::{Account, Breach, Invariant, Rules};

/// Clocks of two processes on one machine may differ by so much, ms.
const CLOCKS_MS: u64 = 1_000;
/// A room hears of a poll so much later, at most, ms.
const HEARD_MS: u64 = 2_500;
const MINUTE_MS: u64 = 60_000;

/// One visitor, and all that it was told, in order.
#[derive(Debug)]
pub struct Witness {
    pub number: usize,
    pub statements: Vec<Statement>,
}

#[derive(Debug, Clone, Copy)]
pub struct Statement {
    /// When it asked, ms since the Unix epoch.
    pub sent: u64,
    /// When it had its answer.
    pub received: u64,
    pub said: Said,
}

#[derive(Debug, Clone, Copy)]
pub enum Said {
    /// It waits; the cookie that came along, if its poll counted.
    Waits {
        claims: Option<Claims>,
        position: Option<u64>,
        away: u64,
    },
    /// It reached the endpoint.
    Inside { claims: Option<Claims> },
    /// It said that it leaves.
    Left,
    /// Nobody answered.
    Silence { leaving: bool },
    /// Something else was answered.
    Other(u16),
}

impl Said {
    fn claims(&self) -> Option<&Claims> {
        match self {
            Said::Waits { claims, .. } | Said::Inside { claims } => claims.as_ref(),
            Said::Left | Said::Silence { .. } | Said::Other(_) => None,
        }
    }
}

impl Witness {
    /// Who it is to the room, if it ever had a cookie.
    pub fn visitor(&self) -> Option<Visitor> {
        let first = self.statements.iter().find_map(|one| one.said.claims());
        first.map(|claims| claims.visitor)
    }
}

/// When visitors were heard of: polls that counted.
pub struct Presence {
    heard: BTreeMap<Visitor, Vec<(u64, u64)>>,
    present_ms: u64,
}

impl Presence {
    pub fn of(witnesses: &[Witness], present_ms: u64) -> Presence {
        let mut heard: BTreeMap<Visitor, Vec<(u64, u64)>> = BTreeMap::new();
        for one in witnesses.iter().flat_map(|witness| &witness.statements) {
            if let Said::Waits {
                claims: Some(claims),
                ..
            } = one.said
            {
                let all = heard.entry(claims.visitor).or_default();
                all.push((one.sent, one.received));
            }
        }
        Presence { heard, present_ms }
    }

    /// Whether the room had to hold `visitor` for present at `at`.
    pub fn certain(&self, visitor: Visitor, at: u64) -> bool {
        let Some(all) = self.heard.get(&visitor) else {
            return false;
        };
        let known = all.partition_point(|(_, received)| received + HEARD_MS <= at);
        all[..known]
            .last()
            .is_some_and(|(sent, _)| at + HEARD_MS < sent + self.present_ms)
    }
}

/// Everything that visitors' words show to be broken. `reached` are those whom the endpoint saw.
pub fn cross(
    rules: &Rules,
    account: &Account,
    witnesses: &[Witness],
    reached: &BTreeSet<usize>,
) -> Vec<Breach> {
    let mut court = Court {
        rules,
        account,
        breaches: Vec::new(),
    };
    for witness in witnesses {
        court.losses(witness);
    }
    court.identities(witnesses);
    court.arrivals(witnesses);
    court.seats(witnesses);
    court.rate(witnesses);
    court.entries(witnesses, reached);
    court.promises(witnesses);
    court.breaches
}

struct Court<'a> {
    rules: &'a Rules,
    account: &'a Account,
    breaches: Vec<Breach>,
}

impl Court<'_> {
    fn breach(&mut self, of: Invariant, at: u64, text: String) {
        self.breaches.push(Breach { of, at, text });
    }

    /// L: whoever comes back in time has what it was told it has.
    fn losses(&mut self, witness: &Witness) {
        let number = witness.number;
        let mut has: Option<Claims> = None;
        for one in &witness.statements {
            if let (Some(before), Said::Waits { .. } | Said::Inside { .. }) = (has, one.said) {
                let seat_good =
                    before.standing == Standing::Active && one.received < before.lease_until;
                if seat_good && !matches!(one.said, Said::Inside { .. }) {
                    self.breach(
                        Invariant::Loss,
                        one.received,
                        format!("{number} loses its seat before {}", before.lease_until),
                    );
                }
                let place_good = before.standing == Standing::Waiting
                    && one.received.saturating_sub(before.last_check_in) <= self.rules.hold_ms;
                if place_good
                    && let Some(after) = one.said.claims()
                    && after.ticket != before.ticket
                {
                    let (was, is) = (before.ticket, after.ticket);
                    self.breach(
                        Invariant::Loss,
                        one.received,
                        format!("{number} had ticket {was} and has {is}"),
                    );
                }
            }
            match one.said {
                Said::Left | Said::Silence { leaving: true } => has = None,
                Said::Other(status) => self.breach(
                    Invariant::Loss,
                    one.received,
                    format!("{number} is answered {status}"),
                ),
                Said::Inside { claims: None }
                    if has.is_none_or(|has| has.standing != Standing::Active) =>
                {
                    self.breach(
                        Invariant::Seats,
                        one.received,
                        format!("{number} is inside without a cookie"),
                    );
                }
                _ => has = one.said.claims().copied().or(has),
            }
        }
    }

    /// U: a visitor is one, and so is a ticket.
    fn identities(&mut self, witnesses: &[Witness]) {
        let mut tickets: BTreeMap<u64, Visitor> = self.account.tickets.clone();
        let mut numbers: BTreeMap<Visitor, usize> = BTreeMap::new();
        for witness in witnesses {
            for one in &witness.statements {
                let Some(claims) = one.said.claims() else {
                    continue;
                };
                let other = *numbers.entry(claims.visitor).or_insert(witness.number);
                if other != witness.number {
                    let number = witness.number;
                    self.breach(
                        Invariant::Uniqueness,
                        one.received,
                        format!("{number} and {other} are one visitor"),
                    );
                }
                if claims.ticket == 0 {
                    continue;
                }
                let owner = *tickets.entry(claims.ticket).or_insert(claims.visitor);
                if owner != claims.visitor {
                    let (ticket, number) = (claims.ticket, witness.number);
                    self.breach(
                        Invariant::Uniqueness,
                        one.received,
                        format!("ticket {ticket} of {number} is that of {owner:?}"),
                    );
                }
            }
        }
    }

    /// F: who had its answer before another asked has the lower ticket.
    fn arrivals(&mut self, witnesses: &[Witness]) {
        let mut firsts: Vec<(u64, u64, u64)> = (witnesses.iter())
            .filter_map(|witness| {
                let first = witness.statements.first()?;
                match first.said {
                    Said::Waits {
                        claims: Some(claims),
                        ..
                    } => Some((first.sent, first.received, claims.ticket)),
                    _ => None,
                }
            })
            .collect();
        let mut by_answer = firsts.clone();
        firsts.sort_unstable();
        by_answer.sort_unstable_by_key(|(_, received, _)| *received);
        let (mut answered, mut highest) = (by_answer.iter().peekable(), 0);
        for (sent, _, ticket) in firsts {
            while let Some((_, _, before)) = answered.next_if(|(_, received, _)| *received < sent) {
                highest = highest.max(*before);
            }
            if ticket < highest {
                self.breach(
                    Invariant::Order,
                    sent,
                    format!("ticket {ticket} is given after {highest}"),
                );
            }
        }
    }

    /// S: whoever could pass at one time, by the cookies that were given.
    fn seats(&mut self, witnesses: &[Witness]) {
        let mut edges: Vec<(u64, i64)> = Vec::new();
        for witness in witnesses {
            let mut span: Option<(u64, u64)> = None;
            for one in &witness.statements {
                if let Some((from, until)) = span
                    && until <= one.received
                {
                    edges.extend([(from, 1), (until, -1)]);
                    span = None;
                }
                match one.said {
                    Said::Inside {
                        claims: Some(claims),
                    } => {
                        let from = span.map_or(one.received, |(from, _)| from);
                        span = (claims.lease_until > from).then_some((from, claims.lease_until));
                    }
                    Said::Left | Said::Silence { leaving: true } => {
                        if let Some((from, until)) = span.take() {
                            edges.extend([(from, 1), (until.min(one.sent).max(from), -1)]);
                        }
                    }
                    _ => {}
                }
            }
            if let Some((from, until)) = span {
                edges.extend([(from, 1), (until, -1)]);
            }
        }
        // At one instant an end comes before a beginning.
        edges.sort_unstable();
        let total = self.rules.most(0, u64::MAX, |limits| limits.total);
        let mut holding = 0;
        for (at, edge) in edges {
            holding += edge;
            if edge > 0 && u64::try_from(holding).is_ok_and(|holding| holding > total) {
                self.breach(
                    Invariant::Seats,
                    at,
                    format!("{holding} could pass, of {total}"),
                );
            }
        }
    }

    /// R: admissions that both began and were answered within a minute.
    fn rate(&mut self, witnesses: &[Witness]) {
        let mut begun = Vec::new();
        let mut answered = Vec::new();
        for witness in witnesses {
            let mut until = 0;
            // Asked since nobody answers, ms; an unheard answer may have been the admission.
            let mut since = None;
            for one in &witness.statements {
                match one.said {
                    Said::Inside {
                        claims: Some(claims),
                    } => {
                        let sent = since.take().unwrap_or(one.sent);
                        if one.received >= until {
                            begun.push(sent);
                            answered.push(one.received);
                        }
                        until = until.max(claims.lease_until);
                    }
                    Said::Silence { leaving: false } => since = since.or(Some(one.sent)),
                    Said::Left | Said::Silence { leaving: true } => until = 0,
                    Said::Waits { .. } | Said::Inside { .. } | Said::Other(_) => since = None,
                }
            }
        }
        begun.sort_unstable();
        answered.sort_unstable();
        for &from in &begun {
            let over = answered.partition_point(|received| *received < from + MINUTE_MS);
            let before = begun.partition_point(|sent| *sent < from);
            // Nothing takes a minute, so whatever began before has ended before its end.
            let count = over.saturating_sub(before) as u64;
            let most = (self.rules).most(from, from + MINUTE_MS, |limits| limits.per_minute);
            if count > most {
                self.breach(
                    Invariant::Rate,
                    from,
                    format!("{count} were let in in a minute, of {most}"),
                );
            }
        }
    }

    /// S and L: whoever was inside has a seat in the log, or is one of those whom a crash took out of
    /// it and who were counted.
    fn entries(&mut self, witnesses: &[Witness], reached: &BTreeSet<usize>) {
        let mut unlogged: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        let mut known: BTreeSet<usize> = BTreeSet::new();
        for witness in witnesses {
            let Some(visitor) = witness.visitor() else {
                continue;
            };
            let seats = self.account.seats.get(&visitor);
            let held = |from: u64, to: u64| {
                let mut seats = seats.into_iter().flatten();
                seats.any(|held| {
                    held.from <= to + CLOCKS_MS && held.to.saturating_add(CLOCKS_MS) >= from
                })
            };
            if seats.is_some() {
                known.insert(witness.number);
            }
            for one in &witness.statements {
                if !matches!(one.said, Said::Inside { .. }) || held(one.sent, one.received) {
                    continue;
                }
                let mut after = self.account.recoveries.iter();
                match after.find(|(at, _)| *at + CLOCKS_MS >= one.sent) {
                    Some((at, _)) => {
                        unlogged.entry(*at).or_default().insert(witness.number);
                    }
                    None => {
                        let number = witness.number;
                        self.breach(
                            Invariant::Seats,
                            one.received,
                            format!("{number} is inside and has no seat in the log"),
                        );
                    }
                }
            }
        }
        for (at, ghosts) in &self.account.recoveries {
            let count = unlogged.get(at).map_or(0, BTreeSet::len) as u64;
            if count > *ghosts {
                self.breach(
                    Invariant::Seats,
                    *at,
                    format!("{count} were inside and are not in the log, {ghosts} are counted"),
                );
            }
        }
        let ghosts: u64 = self
            .account
            .recoveries
            .iter()
            .map(|(_, ghosts)| ghosts)
            .sum();
        // Some never heard that they were let in, and nobody knows who they are to the room.
        let unknown = (self.account.seats.len() as u64).saturating_sub(known.len() as u64);
        let strangers = reached.difference(&known).count() as u64;
        if strangers > ghosts + unknown {
            self.breach(
                Invariant::Seats,
                0,
                format!("{strangers} reached the endpoint without a seat"),
            );
        }
    }

    /// Whether somebody who said this was heard of all the time until `turn`.
    fn stays(&self, statements: &[Statement], turn: u64) -> bool {
        let until =
            |next: Option<&Statement>| next.map_or(u64::MAX, |next| next.received).min(turn);
        (statements.iter().enumerate())
            .take_while(|(_, one)| one.sent < turn)
            .all(|(place, one)| {
                let next = until(statements.get(place + 1));
                next + HEARD_MS < one.sent + self.rules.present_ms
            })
    }

    /// F: whoever was shown a place is called when at most so many others have been.
    fn promises(&mut self, witnesses: &[Witness]) {
        let mut turns: BTreeMap<Visitor, Vec<u64>> = BTreeMap::new();
        for (at, visitor) in &self.account.calls {
            turns.entry(*visitor).or_default().push(*at);
        }
        let calls: Vec<u64> = self.account.calls.iter().map(|(at, _)| *at).collect();
        let told: BTreeSet<u64> = (witnesses.iter())
            .flat_map(|witness| &witness.statements)
            .filter_map(|one| one.said.claims().map(|claims| claims.ticket))
            .filter(|ticket| *ticket > 0)
            .collect();
        // A crash takes the last tickets out of the log; their holders bring them back.
        let missing = (told.iter())
            .filter(|ticket| !self.account.tickets.contains_key(ticket))
            .count() as u64;
        for witness in witnesses {
            let Some(turns) = witness.visitor().and_then(|visitor| turns.get(&visitor)) else {
                continue;
            };
            for (place, one) in witness.statements.iter().enumerate() {
                let Said::Waits {
                    position: Some(position),
                    away,
                    ..
                } = one.said
                else {
                    continue;
                };
                let from = one.received + HEARD_MS;
                let Some(&turn) = turns.iter().find(|turn| **turn > from) else {
                    continue;
                };
                if !self.stays(&witness.statements[place..], turn) {
                    continue;
                }
                let between = |all: &[u64], from: u64| {
                    let (first, end) = (
                        all.partition_point(|at| *at <= from),
                        all.partition_point(|at| *at < turn),
                    );
                    end.saturating_sub(first) as u64
                };
                let again = between(&self.account.late, one.sent.saturating_sub(CLOCKS_MS));
                let others = between(&calls, from).saturating_sub(again);
                // A place is told to within one in 256 of the line.
                let promised = position - 1 + away + self.account.line_max / 256 + 1 + missing;
                if others > promised {
                    let number = witness.number;
                    self.breach(
                        Invariant::Order,
                        one.received,
                        format!("{number} was told {position} (and {away} away), and {others} others were called before it"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_core::admission::Stamp;

    use super::super::judge::Held;
    use super::*;

    fn who(number: u128) -> Visitor {
        Visitor::from_u128(number)
    }

    fn claims(number: u128, standing: Standing, ticket: u64, at: u64, lease_until: u64) -> Claims {
        Claims {
            visitor: who(number),
            standing,
            ticket,
            arrived: at,
            last_check_in: at,
            lease_until,
            renew_from: lease_until,
            stamp: Stamp::default(),
            generation: 0,
            shown: None,
        }
    }

    fn waits(number: u128, at: u64, ticket: u64, position: u64) -> Statement {
        Statement {
            sent: at,
            received: at + 2,
            said: Said::Waits {
                claims: Some(claims(number, Standing::Waiting, ticket, at + 1, 0)),
                position: Some(position),
                away: 0,
            },
        }
    }

    fn inside(number: u128, at: u64, ticket: u64, until: u64) -> Statement {
        Statement {
            sent: at,
            received: at + 2,
            said: Said::Inside {
                claims: Some(claims(number, Standing::Active, ticket, at + 1, until)),
            },
        }
    }

    fn said(at: u64, said: Said) -> Statement {
        Statement {
            sent: at,
            received: at + 2,
            said,
        }
    }

    /// What is said by one witness each, and what is found.
    type Row = (&'static str, Vec<Vec<Statement>>, &'static [Invariant]);

    /// Witnesses 1, 2, ... with these statements, and a log in which all seats are.
    fn found(rules: &Rules, all: Vec<Vec<Statement>>) -> Vec<Invariant> {
        let mut account = Account::default();
        let mut reached = BTreeSet::new();
        for (place, statements) in all.iter().enumerate() {
            let visitor = who(place as u128 + 1);
            for one in statements {
                if matches!(one.said, Said::Inside { .. }) {
                    reached.insert(place + 1);
                    let seats = account.seats.entry(visitor).or_default();
                    seats.push(Held {
                        from: one.sent,
                        to: u64::MAX,
                    });
                }
                if let Some(claims) = one.said.claims().filter(|claims| claims.ticket > 0) {
                    account.tickets.entry(claims.ticket).or_insert(visitor);
                }
            }
        }
        tried(rules, &account, all, &reached)
    }

    fn tried(
        rules: &Rules,
        account: &Account,
        all: Vec<Vec<Statement>>,
        reached: &BTreeSet<usize>,
    ) -> Vec<Invariant> {
        let witnesses: Vec<Witness> = (1..)
            .zip(all)
            .map(|(number, statements)| Witness { number, statements })
            .collect();
        let breaches = cross(rules, account, &witnesses, reached);
        breaches.iter().map(|one| one.of).collect()
    }

    #[test]
    fn each_kind_of_breach_is_found() {
        use Invariant::{Loss, Order, Rate, Seats, Uniqueness};
        let rules = Rules::of(1, 2);
        let rows: Vec<Row> = vec![
            (
                "one leaves and the next enters",
                vec![
                    vec![inside(1, 0, 0, 90_000), said(500, Said::Left)],
                    vec![waits(2, 100, 7, 1), inside(2, 600, 7, 90_000)],
                ],
                &[],
            ),
            (
                "two could pass",
                vec![
                    vec![inside(1, 0, 0, 90_000)],
                    vec![waits(2, 100, 7, 1), inside(2, 600, 7, 90_000)],
                ],
                &[Seats],
            ),
            (
                "a seat that is over is nobody's",
                vec![
                    vec![inside(1, 0, 0, 600)],
                    vec![waits(2, 100, 7, 1), inside(2, 600, 7, 90_000)],
                ],
                &[],
            ),
            (
                "a seat is lost",
                vec![vec![inside(1, 0, 0, 90_000), waits(1, 500, 7, 1)]],
                &[Loss],
            ),
            (
                "a ticket is lost",
                vec![vec![waits(1, 0, 7, 1), waits(1, 299_000, 8, 1)]],
                &[Loss],
            ),
            (
                "a ticket is lost by silence",
                vec![vec![waits(1, 0, 7, 1), waits(1, 300_100, 8, 1)]],
                &[],
            ),
            (
                "another's ticket is called",
                vec![vec![waits(1, 0, 7, 1), inside(1, 500, 9, 90_000)]],
                &[Loss],
            ),
            (
                "a failure is shown",
                vec![vec![said(0, Said::Other(502))]],
                &[Loss],
            ),
            (
                "one ticket for two",
                vec![vec![waits(1, 0, 7, 1)], vec![waits(2, 1, 7, 1)]],
                &[Uniqueness],
            ),
            (
                "one visitor in two browsers",
                vec![vec![waits(1, 0, 7, 1)], vec![waits(1, 10, 7, 1)]],
                &[Uniqueness],
            ),
            (
                "who came later is before",
                vec![vec![waits(1, 0, 7, 1)], vec![waits(2, 10, 6, 1)]],
                &[Order],
            ),
            (
                "who came at the same time may be before",
                vec![vec![waits(1, 0, 7, 1)], vec![waits(2, 1, 6, 1)]],
                &[],
            ),
            (
                "three in a minute",
                (1..=3_u128)
                    .map(|number| {
                        let at = u64::try_from(number).unwrap() * 1000;
                        vec![inside(number, at, 0, at + 500), said(at + 400, Said::Left)]
                    })
                    .collect(),
                &[Rate],
            ),
            (
                "inside without a cookie",
                vec![vec![said(0, Said::Inside { claims: None })]],
                &[Seats],
            ),
        ];
        for (name, all, expected) in rows {
            assert_eq!(found(&rules, all), expected, "{name}");
        }
    }

    #[test]
    fn who_is_inside_is_in_the_log_or_was_counted_after_a_crash() {
        let rules = Rules::of(9, 9);
        let all = || vec![vec![inside(1, 10_000, 0, 90_000)]];
        let reached = BTreeSet::from([1]);
        let mut account = Account::default();
        let tried = |account: &Account| tried(&rules, account, all(), &reached);
        assert_eq!(tried(&account), [Invariant::Seats, Invariant::Seats]);
        account.recoveries = vec![(20_000, 1)];
        assert_eq!(tried(&account), []);
        account.recoveries = vec![(5_000, 1)];
        assert_eq!(tried(&account), [Invariant::Seats]);
        account.recoveries = vec![(20_000, 0)];
        assert_eq!(tried(&account), [Invariant::Seats, Invariant::Seats]);
        account.recoveries = Vec::new();
        let seats = |from, to| BTreeMap::from([(who(1), vec![Held { from, to }])]);
        account.seats = seats(10_001, u64::MAX);
        assert_eq!(tried(&account), []);
        account.seats = seats(1_000, 8_000);
        assert_eq!(tried(&account), [Invariant::Seats]);
    }

    #[test]
    fn who_was_shown_a_place_is_not_overtaken() {
        let rules = Rules::of(9, 9);
        let mut account = Account {
            tickets: BTreeMap::from([(7, who(1))]),
            ..Account::default()
        };
        let all = || vec![vec![waits(1, 0, 7, 3)]];
        let calls = |others: u64| {
            let others = (0..others).map(|nth| (5_000 + nth, who(u128::from(nth) + 10)));
            others.chain([(6_000, who(1))]).collect()
        };
        let tried = |account: &Account| tried(&rules, account, all(), &BTreeSet::new());
        account.calls = calls(3);
        assert_eq!(tried(&account), []);
        account.calls = calls(4);
        assert_eq!(tried(&account), [Invariant::Order]);
        // One of them had been called and did not come.
        account.late = vec![5_500];
        assert_eq!(tried(&account), []);
        account.late = Vec::new();
        // In a long line a place is not told to the last one.
        account.line_max = 512;
        account.calls = calls(5);
        assert_eq!(tried(&account), []);
        account.calls = calls(6);
        assert_eq!(tried(&account), [Invariant::Order]);
    }

    #[test]
    fn presence_is_certain_between_a_poll_and_its_end() {
        let witnesses = [Witness {
            number: 1,
            statements: vec![waits(1, 10_000, 7, 1)],
        }];
        let presence = Presence::of(&witnesses, 45_000);
        let certain = |at| presence.certain(who(1), at);
        assert!(!certain(12_501) && certain(12_502));
        assert!(certain(52_499) && !certain(52_500));
        assert!(!presence.certain(who(2), 20_000));
    }
}
