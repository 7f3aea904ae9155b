//! A door over time: what becomes of visitors who come on time, too late, or not at all. The clock
//! is tokio's and stands still until a test moves it.

use std::sync::Arc;
use std::time::Duration;

use usher_core::admission::{Claims, Copies, Settings, Standing};
use usher_core::id::Id;
use usher_core::request::{Headers, Location, Request, Scheme};
use usher_core::time::Wall;
use usher_rooms::clock::Clock;
use usher_rooms::cookie::{Attributes, Jar, SameSite, Sealer, claims, token_in};
use usher_rooms::door::{Bypass, Door, Json, Kind, Outcome, Outside, Pass, Presence, Step, Told};
use usher_rooms::owner::{Found, OnStoreFailure};
use usher_rooms::view::{Reason, Stage};

const ROOM: Id = Id::from_bytes([7; 16]);

/// Seals nothing: what is sealed is another crate's matter, and tested there.
struct Plain;

impl Sealer for Plain {
    fn seal(&self, _: Id, claims: &[u8]) -> String {
        claims.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn open(&self, _: Id, text: &[u8], into: &mut [u8; claims::LEN]) -> Option<usize> {
        let text = std::str::from_utf8(text).ok()?;
        let bytes = into.get_mut(..text.len() / 2)?;
        for (place, byte) in bytes.iter_mut().enumerate() {
            let pair = text.get(2 * place..2 * place + 2)?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(text.len() / 2)
    }
}

struct House {
    door: Door,
    presence: Presence,
    visitors: u128,
}

impl House {
    fn of(settings: Settings) -> House {
        let clock = Clock::start(0);
        let post = Found::unkept().start(settings, OnStoreFailure::Bounded, clock, 1);
        let attributes = Attributes {
            suffix: String::new(),
            path: "/".to_owned(),
            domain: None,
            secure: false,
            same_site: SameSite::Lax,
        };
        House {
            door: Door {
                room: ROOM,
                jar: Jar::new(ROOM, &attributes, Arc::new(Plain)),
                post,
                clock,
                bypass: Vec::new(),
                on_failure: OnStoreFailure::Bounded,
                revocable: true,
                json: Json::Never,
                show_position: true,
            },
            presence: Presence::new(),
            visitors: 0,
        }
    }

    /// A page is asked for with this cookie's value.
    async fn come(&mut self, value: &str) -> Told {
        let cookie = format!("__cfwaitingroom={value}");
        let lines = [("cookie", cookie.as_str())];
        let request = request(&lines);
        self.visitors += 1;
        let fresh = self.visitors;
        let presence = &mut self.presence;
        let step = (self.door).decide(&request, Kind::Navigation, None, presence, || fresh);
        match step {
            Step::Now(told) => told,
            Step::Ask(asking) => self.door.finish(asking).await,
        }
    }

    /// The cookie of somebody who is let in.
    async fn enter(&mut self, value: &str) -> String {
        let mut pass = inside(self.come(value).await);
        let set = self.door.answered(&mut pass, None);
        set.map_or(value.to_owned(), |set| token_in(&set).to_owned())
    }

    /// The cookie of somebody who waits.
    async fn wait(&mut self, value: &str) -> String {
        let outside = outside(self.come(value).await);
        assert_eq!(outside.stage, Stage::Waiting);
        let set = outside.set_cookie;
        set.map_or(value.to_owned(), |set| token_in(&set).to_owned())
    }

    fn claims(&self, value: &str) -> Claims {
        self.door.jar.open_value(value.as_bytes()).expect("claims")
    }

    /// Time goes on, as for a worker: it flushes once a second.
    async fn pass_time(&mut self, ms: u64) {
        for _ in 0..ms / 1000 {
            self.presence.flush();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(ms % 1000)).await;
    }
}

fn request<'a>(headers: &'a dyn Headers) -> Request<'a> {
    Request {
        host: "example.com",
        method: "GET",
        uri: "/",
        version: "HTTP/1.1",
        headers,
        scheme: Scheme::Http,
        client: [192, 0, 2, 1].into(),
        location: Location::default(),
        time: Wall::from_millis(0),
        draw: 0,
    }
}

fn inside(told: Told) -> Pass {
    match told.outcome {
        Outcome::Pass(pass) => pass,
        other => panic!("{other:?}"),
    }
}

fn outside(told: Told) -> Outside {
    match told.outcome {
        Outcome::Outside(outside) => outside,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_polls_keeps_the_place_and_who_is_silent_loses_it_and_is_told() {
    let mut house = House::of(Settings::new(0, 60));
    let mut first = house.wait("").await;
    let second = house.wait("").await;
    let ticket = house.claims(&first).ticket;
    for _ in 0..30 {
        house.pass_time(20_000).await;
        first = house.wait(&first).await;
        assert_eq!(house.claims(&first).ticket, ticket);
    }
    let outside = outside(house.come(&second).await);
    assert_eq!(outside.reason, Some(Reason::PlaceExpired));
    let again = token_in(&outside.set_cookie.expect("a cookie")).to_owned();
    assert!(
        house.claims(&again).ticket > ticket,
        "a new place, at the end"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_away_is_let_in_first_when_it_returns() {
    let mut house = House::of(Settings::new(1, 60));
    let seated = house.enter("").await;
    let away = house.wait("").await;
    let mut present = house.wait("").await;
    for _ in 0..4 {
        house.pass_time(20_000).await;
        present = house.wait(&present).await;
    }
    let back = house.wait(&away).await;
    assert_eq!(house.claims(&back).ticket, house.claims(&away).ticket);
    let lines = [("cookie", format!("__cfwaitingroom={seated}"))];
    assert!(house.door.leave(&request(&lines)).is_some());
    house.pass_time(1000).await;
    house.enter(&back).await;
    house.wait(&present).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_first_to_wait_is_promised_nothing_that_was_true_before() {
    let mut house = House::of(Settings::new(2, 1000));
    house.pass_time(1000).await;
    for _ in 0..2 {
        house.enter("").await;
    }
    for _ in 0..3 {
        let told = outside(house.come("").await);
        assert!(told.place.is_some());
        assert_eq!(told.shown, None, "no seat was ever freed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_was_left_is_nobody_s_by_its_old_cookie() {
    let mut house = House::of(Settings::new(1, 1000));
    let mut left = Vec::new();
    for _ in 0..50 {
        let cookie = house.enter("").await;
        let lines = [("cookie", format!("__cfwaitingroom={cookie}"))];
        assert!(house.door.leave(&request(&lines)).is_some());
        left.push(cookie);
    }
    let seated = house.enter("").await;
    for cookie in &left {
        house.wait(cookie).await;
    }
    inside(house.come(&seated).await);
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_good_until_its_last_moment_and_not_after_it() {
    let settings = Settings::new(1, 60).session(20_000);
    for (ms, still) in [(-1000, true), (-1, true), (0, false), (1000, false)] {
        let mut house = House::of(settings);
        let seat = house.enter("").await;
        // Somebody is waiting for it.
        let mut other = house.wait("").await;
        let left = house.claims(&seat).lease_until - house.door.clock.now();
        let at = left.saturating_add_signed(ms);
        house.pass_time(at / 2).await;
        other = house.wait(&other).await;
        house.pass_time(at - at / 2).await;
        let told = house.come(&seat).await;
        match told.outcome {
            Outcome::Pass(pass) => assert!(still || !pass.admitted, "{ms} ms"),
            // A room gives a seat away a second after its holder was told; until then the same
            // holder may have it again.
            Outcome::Outside(outside) => assert!(!still && outside.place.is_some(), "{ms} ms"),
            Outcome::Bypass(why) => panic!("{why:?}"),
        }
        // Never both.
        if still {
            house.wait(&other).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_called_and_does_not_come_waits_on_and_another_is_called() {
    let mut house = House::of(Settings::new(1, 60));
    let seated = house.enter("").await;
    let late = house.wait("").await;
    let mut next = house.wait("").await;
    house.pass_time(20_000).await;
    next = house.wait(&next).await;
    let lines = [("cookie", format!("__cfwaitingroom={seated}"))];
    assert!(house.door.leave(&request(&lines)).is_some());
    house.pass_time(1000).await;
    // A stream and a page are told until when.
    let mut claims = house.claims(&late);
    let called = house.door.stand(&mut claims, false, &mut house.presence);
    assert_eq!(called.stage, Stage::Called);
    let until = called.claim_by.expect("a moment");
    let view = house.door.view(&called);
    assert_eq!(view.claim_by, Some(Wall::from_millis(until.cast_signed())));
    for _ in 0..3 {
        house.pass_time(18_000).await;
        if let Outcome::Pass(_) = house.come(&next).await.outcome {
            break;
        }
    }
    assert!(house.door.clock.now() >= until);
    let again = house.wait(&late).await;
    assert_eq!(house.claims(&again).ticket, house.claims(&late).ticket);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_is_too_soon_changes_nothing() {
    let mut house = House::of(Settings::new(0, 60));
    let value = house.wait("").await;
    house.pass_time(5000).await;
    let early = outside(house.come(&value).await);
    assert_eq!(early.set_cookie, None);
    assert_eq!(early.last_updated, house.claims(&value).last_check_in);
    house.presence.flush();
    assert!(house.presence.is_empty());
    // Timers of browsers are not exact.
    house.pass_time(14_500).await;
    let due = outside(house.come(&value).await);
    assert!(due.set_cookie.is_some());
    assert!(!house.presence.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_is_noticed_and_where_it_is_to_be_somebody_new() {
    for copies in [Copies::Log, Copies::Fork] {
        let mut settings = Settings::new(1, 60).session(100_000);
        settings.copies = copies;
        let mut house = House::of(settings);
        let copy = house.enter("").await;
        let mut value = copy.clone();
        // Past the time within which its requests pass without the owner.
        for _ in 0..4 {
            house.pass_time(21_000).await;
            value = house.enter(&value).await;
        }
        assert_eq!(house.claims(&value).standing, Standing::Active);
        let told = house.come(&copy).await;
        match copies {
            Copies::Log => assert!(inside(told).copy_seen),
            Copies::Fork => {
                let cleared = outside(told).set_cookie.expect("a cookie");
                assert_eq!(token_in(&cleared), "");
            }
        }
        house.enter(&value).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_revokes_a_seat_and_it_ends_when_the_answer_is_out() {
    let mut house = House::of(Settings::new(1, 60));
    let mut pass = inside(house.come("").await);
    let other = house.wait("").await;
    let set = house.door.answered(&mut pass, Some(b" revoke "));
    assert_eq!(token_in(&set.expect("a cookie")), "");
    house.pass_time(1000).await;
    house.wait(&other).await;
    house.door.over(&pass);
    house.pass_time(1000).await;
    house.enter(&other).await;
    // Other words are none.
    let mut pass = inside(house.come(&other).await);
    for word in ["Revoke", "revoke, revoke", ""] {
        let set = house.door.answered(&mut pass, Some(word.as_bytes()));
        assert!(set.is_none_or(|set| !token_in(&set).is_empty()), "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_room_that_is_off_or_without_an_owner() {
    let mut settings = Settings::new(1, 60);
    settings.suspended = true;
    let mut house = House::of(settings);
    let told = house.come("").await;
    assert!(matches!(told.outcome, Outcome::Bypass(Bypass::Suspended)));

    let mut house = House::of(Settings::new(2, 60));
    let seat = house.enter("").await;
    house.door.post.close().await;
    house.enter(&seat).await;
    let told = outside(house.come("").await);
    assert_eq!((told.place, told.set_cookie), (None, None));
    house.door.on_failure = OnStoreFailure::Open;
    let told = house.come("").await;
    assert!(matches!(told.outcome, Outcome::Bypass(Bypass::Unanswered)));
}
