//! A room at work: its owner, its journal, and what holds when the process is killed.
//!
//! The child of the last test is this test binary once more, told by the environment what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use usher_core::admission::{Answer, Claims, End, Place, Seat, Settings, Standing, Visitor};
use usher_core::id::Id;
use usher_rooms::clock::Clock;
use usher_rooms::cookie::claims;
use usher_rooms::journal::Live;
use usher_rooms::owner::{Found, OnStoreFailure, Post, Unanswered};

const FOLDER: &str = "USHER_TEST_ROOM";
const ROOM: Id = Id::from_bytes([7; 16]);
const SEATS: u64 = 20;
const PER_MINUTE: u64 = 60;

/// Seats outlive the test, so that only their holders end them.
fn settings() -> Settings {
    Settings::new(SEATS, PER_MINUTE).session(3_600_000)
}

fn start(found: Found) -> (Post, Clock) {
    let clock = Clock::start(found.clock());
    let post = found.start(settings(), OnStoreFailure::Bounded, clock, 1);
    (post, clock)
}

async fn ask(post: &Post, visitor: u128, claims: Option<Claims>) -> Answer {
    let pending = post.ask(Visitor::from_u128(visitor), claims);
    (pending.expect("an owner").answer().await).expect("an answer")
}

fn seat(answer: &Answer) -> Seat {
    match answer {
        Answer::Forward(seat) => *seat,
        other => panic!("{other:?} is no seat"),
    }
}

fn place(answer: &Answer) -> Place {
    match answer {
        Answer::Wait(place) => *place,
        other => panic!("{other:?} is no place"),
    }
}

#[tokio::test(start_paused = true)]
async fn seats_and_places_outlive_an_owner_that_closes() {
    let folder = tempfile::tempdir().expect("folder");
    let live = Live::take(folder.path()).expect("free");
    let (post, _) = start(Found::open(&live, ROOM).expect("files"));
    for visitor in 1..=u128::from(SEATS) {
        seat(&ask(&post, visitor, None).await);
    }
    let first = place(&ask(&post, 100, None).await);
    let second = place(&ask(&post, 101, None).await);
    assert_eq!((first.position, second.position), (1, 2));
    post.close().await;
    assert!(matches!(
        post.ask(Visitor::from_u128(1), None).map(|_| ()),
        Err(Unanswered)
    ));

    let (post, _) = start(Found::open(&live, ROOM).expect("files"));
    let counts = post.bulletin().summary.counts;
    assert_eq!((counts.seated, counts.ghosts), (SEATS, 0));
    seat(&ask(&post, 1, None).await);
    let again = place(&ask(&post, 101, None).await);
    assert_eq!((again.ticket, again.position), (second.ticket, 2));
    // A freed seat goes to the lowest ticket.
    (post.end(Visitor::from_u128(1), End::Left)).expect("an owner");
    let third = place(&ask(&post, 101, None).await);
    assert_eq!(third.ticket, second.ticket);
    assert_eq!(seat(&ask(&post, 100, None).await).ticket, first.ticket);
    post.close().await;
}

#[tokio::test(start_paused = true)]
async fn seats_of_which_the_journal_lost_all_come_back_with_their_cookies() {
    let folder = tempfile::tempdir().expect("folder");
    let live = Live::take(folder.path()).expect("free");
    let (post, clock) = start(Found::open(&live, ROOM).expect("files"));
    let mut known = Vec::new();
    for visitor in 1..=u128::from(SEATS) {
        let given = seat(&ask(&post, visitor, None).await);
        let id = Visitor::from_u128(visitor);
        known.push(Claims::seated(id, &given, None, clock.now()));
    }
    post.close().await;
    let path = live.of_room(ROOM).join("1.log");
    let bytes = std::fs::read(&path).expect("written");
    // What is left is the head, and a piece of the first commit.
    std::fs::write(&path, &bytes[..60]).expect("cut");

    let found = Found::open(&live, ROOM).expect("files");
    let told = found.torn().expect("told").to_string();
    assert!(
        told.contains("1.log: the last 7 bytes do not read"),
        "{told}"
    );
    let (post, _) = start(found);
    for claims in known {
        seat(&ask(&post, claims.visitor.as_u128(), Some(claims)).await);
    }
    place(&ask(&post, 100, None).await);
    post.close().await;
    let found = Found::open(&live, ROOM).expect("files");
    assert!(found.torn().is_none());
    let (post, _) = start(found);
    assert_eq!(post.bulletin().summary.counts.seated, SEATS);
    post.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_at_one_instant_get_no_seat_too_many() {
    for kept in [true, false] {
        let folder = tempfile::tempdir().expect("folder");
        let live = Live::take(folder.path()).expect("free");
        let found = if kept {
            Found::open(&live, ROOM).expect("files")
        } else {
            Found::unkept()
        };
        let (post, _) = start(found);
        let pending: Vec<_> = (1..=1000)
            .map(|visitor| (post.ask(Visitor::from_u128(visitor), None)).expect("an owner"))
            .collect();
        let mut seats = 0;
        let mut tickets = Vec::new();
        for pending in pending {
            match pending.answer().await.expect("an answer") {
                Answer::Forward(_) => seats += 1,
                Answer::Wait(place) => tickets.push(place.ticket),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seats, SEATS);
        assert_eq!(tickets.len() as u64, 1000 - SEATS);
        assert!(tickets.is_sorted_by(|a, b| a < b), "in order of arrival");
        post.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_settings_acts_at_once() {
    let (post, _) = start(Found::unkept());
    let closed = Settings {
        queue_all: true,
        ..settings()
    };
    (post.set(closed, OnStoreFailure::Bounded).await).expect("an owner");
    place(&ask(&post, 1, None).await);
    assert!(post.bulletin().settings.queue_all);
    (post.set(settings(), OnStoreFailure::Bounded).await).expect("an owner");
    seat(&ask(&post, 1, None).await);
    post.close().await;
}

/// Not a test of its own: what the child does. Without the variable it is nothing.
///
/// It is told the claims of everybody it knows, asks for them, then lets newcomers arrive and seats
/// end until it is killed. What it tells a visitor it prints first, as a front would send it.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let live = Live::take(Path::new(&folder)).expect("the lock of a killed process is free");
    let (post, clock) = start(Found::open(&live, ROOM).expect("files"));
    let mut known: BTreeMap<u128, Claims> = BTreeMap::new();
    let mut newest = 0;
    for line in io::stdin().lines() {
        let line = line.expect("text");
        if let Some(number) = line.strip_prefix("newest ") {
            newest = number.parse().expect("a number");
            continue;
        }
        let claims = claims::decode(&unhex(&line)).expect("claims");
        known.insert(claims.visitor.as_u128(), claims);
    }
    let say = |line: String| writeln!(io::stdout(), "{line}").expect("said");
    let mut round = 0_u64;
    loop {
        let newcomers = (newest + 1)..=(newest + 3);
        newest += 3;
        let visitors: Vec<u128> = known.keys().copied().chain(newcomers).collect();
        let mut pending = Vec::new();
        for visitor in visitors {
            let before = known.get(&visitor).copied();
            let answer = post.ask(Visitor::from_u128(visitor), before);
            pending.push((visitor, before, answer.expect("an owner")));
        }
        for (visitor, before, pending) in pending {
            let answer = pending.answer().await.expect("an answer");
            let id = Visitor::from_u128(visitor);
            let claims = match &answer {
                Answer::Forward(seat) => Claims::seated(id, seat, before.as_ref(), clock.now()),
                Answer::Wait(place) => Claims::waiting(id, place, before.as_ref(), clock.now()),
                other => panic!("{other:?}"),
            };
            known.insert(visitor, claims);
            say(format!("told {}", hex(&claims::encode(&claims))));
        }
        round += 1;
        let active = (known.iter()).filter(|(_, claims)| claims.standing == Standing::Active);
        let leaves: Vec<u128> = active.map(|(visitor, _)| *visitor).take(2).collect();
        for visitor in leaves {
            // Said first: from here on its holder does not count.
            say(format!("left {visitor}"));
            known.remove(&visitor);
            (post.end(Visitor::from_u128(visitor), End::Left)).expect("an owner");
        }
        say(format!("round {round}"));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What visitors were told, and what may never be told.
#[derive(Default)]
struct Judge {
    told: BTreeMap<u128, Claims>,
    tickets: BTreeMap<u64, u128>,
    admissions: Vec<u64>,
    newest: u128,
}

impl Judge {
    fn hear(&mut self, claims: Claims) {
        let visitor = claims.visitor.as_u128();
        self.newest = self.newest.max(visitor);
        let before = self.told.insert(visitor, claims);
        if claims.ticket != 0 {
            // U: a ticket is one visitor's, for ever.
            let owner = *self.tickets.entry(claims.ticket).or_insert(visitor);
            assert_eq!(owner, visitor, "ticket {} is given twice", claims.ticket);
        }
        if let Some(before) = before {
            // L: whoever comes back has what it had.
            if before.standing == Standing::Active {
                assert_eq!(claims.standing, Standing::Active, "{visitor} lost its seat");
            } else {
                assert_eq!(claims.ticket, before.ticket, "{visitor} lost its place");
            }
        }
        let was_active = before.is_some_and(|before| before.standing == Standing::Active);
        if claims.standing == Standing::Active && !was_active {
            self.admissions.push(claims.last_check_in);
        }
        // S: those who could pass now.
        let active = (self.told.values()).filter(|claims| claims.standing == Standing::Active);
        let active = active.count() as u64;
        assert!(active <= SEATS, "{active} seats");
    }

    /// R: in any minute. What a child says it has read off its clock a moment after the room did, so
    /// the minute is taken a second short.
    fn judge_rate(&self) {
        let mut times = self.admissions.clone();
        times.sort_unstable();
        for (place, time) in times.iter().enumerate() {
            let within = times[place..].partition_point(|later| *later < time + 59_000);
            assert!(
                within as u64 <= PER_MINUTE,
                "{within} admissions in a minute"
            );
        }
    }
}

#[test]
fn twenty_kills_give_no_seat_twice_and_lose_none() {
    let folder = tempfile::tempdir().expect("folder");
    let mut judge = Judge::default();
    let mut kills = BTreeSet::new();
    for round in 0..20_u64 {
        let mut child = Killed(
            Command::new(std::env::current_exe().expect("this binary"))
                .args(["child", "--exact", "--nocapture"])
                .env(FOLDER, folder.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("started"),
        );
        let mut input = child.0.stdin.take().expect("piped");
        writeln!(input, "newest {}", judge.newest).expect("told");
        for claims in judge.told.values() {
            writeln!(input, "{}", hex(&claims::encode(claims))).expect("told");
        }
        drop(input);
        // Killed after so many lines, in the middle of whatever it does then. Every other child lives
        // until it has answered all that were there before: a room remembers no more than eight
        // losses in a row.
        let known = judge.told.len() as u64;
        let mut left = round * 53 % 97 + 5 + if round % 2 == 1 { known } else { 0 };
        let out = BufReader::new(child.0.stdout.take().expect("piped"));
        for line in out.lines() {
            let line = line.expect("text");
            // The harness may have begun the first line.
            if let Some((_, told)) = line.split_once("told ") {
                judge.hear(claims::decode(&unhex(told)).expect("claims"));
            } else if let Some(visitor) = line.strip_prefix("left ") {
                judge.told.remove(&visitor.parse().expect("a number"));
            } else {
                // The harness' own words.
                continue;
            }
            left = left.saturating_sub(1);
            if left == 0 {
                child.0.kill().expect("killed");
                kills.insert(round);
            }
        }
    }
    assert_eq!(kills.len(), 20, "every child lived until it was killed");
    assert!(!judge.admissions.is_empty() && !judge.tickets.is_empty());
    judge.judge_rate();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("text");
            u8::from_str_radix(pair, 16).expect("hexadecimal")
        })
        .collect()
}
