//! A room that is switched off, or taken away and made again, while visitors hold its cookies: what
//! they hold from before is good as it was, or is nothing, and no place is ever two visitors'.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::api::named;
use crate::support::config::HOST;
use crate::support::{Config, Endpoint, Usher, Visitor, eventually};

const SEATS: usize = 2;

/// Two seats; whoever waits is present for two minutes after each poll.
fn room() -> Value {
    json!({
        "host": HOST, "path": "/sale",
        "total_active_users": SEATS, "new_users_per_minute": 1000,
        "usher": {"refresh_interval_seconds": 60, "json_extensions": true},
    })
}

fn config(endpoint: &Endpoint) -> Config {
    Config::serving([endpoint.origin("a")]).set(&["store"], json!({"url": "sqlite:usher.db"}))
}

fn with(config: &Config, room: Value) -> Config {
    config.clone().set(&["waiting_rooms", "sale"], room)
}

fn enters(usher: &Usher, visitor: &mut Visitor) -> bool {
    visitor.enters(usher, "/sale", "a")
}

fn id(usher: &Usher) -> String {
    let state = usher.state();
    let room = named(&state["rooms"], "sale");
    room["id"].as_str().unwrap().to_owned()
}

/// Two inside, and fifty behind them.
fn full(usher: &Usher) -> (Vec<Visitor>, Vec<Visitor>) {
    let mut inside = vec![Visitor::new(); SEATS];
    let mut line = vec![Visitor::new(); 50];
    assert!(inside.iter_mut().all(|visitor| enters(usher, visitor)));
    assert!(!line.iter_mut().any(|visitor| enters(usher, visitor)));
    (inside, line)
}

/// The places of all of them, once the room tells of so many who wait.
fn places(usher: &Usher, line: &mut [Visitor]) -> Vec<u64> {
    let room = id(usher);
    let count = line.len();
    eventually("everybody in line", || {
        let state = usher.state();
        (named(&state["rooms"], "sale")["waiting"] == count).then_some(())
    });
    let places = line.iter_mut().map(|visitor| {
        let told = visitor.status(usher, &room);
        told["usher"]["position"].as_u64().expect("a place")
    });
    places.collect()
}

fn in_order(count: u64) -> Vec<u64> {
    (1..=count).collect()
}

#[test]
fn places_and_seats_outlive_a_switch() {
    let endpoint = Endpoint::named("a");
    let config = config(&endpoint);
    let usher = Usher::start(&with(&config, room()));
    let (mut inside, mut line) = full(&usher);
    assert_eq!(places(&usher, &mut line), in_order(50));
    let mut off = room();
    off["suspended"] = json!(true);
    usher.reload(&with(&config, off));
    let mut passing = Visitor::new();
    assert!(enters(&usher, &mut passing));
    assert_eq!(passing.cookie, None, "nobody is counted");
    let before: Vec<_> = line.iter().map(|visitor| visitor.cookie.clone()).collect();
    assert!(line.iter_mut().all(|visitor| enters(&usher, visitor)));
    let after: Vec<_> = line.iter().map(|visitor| visitor.cookie.clone()).collect();
    assert_eq!(before, after, "nobody loses its cookie");
    usher.reload(&with(&config, room()));
    assert!(inside.iter_mut().all(|visitor| enters(&usher, visitor)));
    assert!(!enters(&usher, &mut Visitor::new()));
    line.push(Visitor::new());
    let last = line.last_mut().expect("just pushed");
    assert!(!enters(&usher, last));
    // The one without a cookie in its hands waits as well, before the last.
    let room = id(&usher);
    let told: Vec<u64> = eventually("all places", || {
        let all = line
            .iter_mut()
            .map(|visitor| visitor.position(&usher, &room));
        let all: Vec<u64> = all.map(|place| place.expect("a place")).collect();
        (all[50] == 52).then_some(all)
    });
    assert_eq!(told[..50], in_order(50));
}

#[test]
fn numbers_of_before_a_reset_are_nobodys_after_it() {
    let endpoint = Endpoint::named("a");
    let config = config(&endpoint);
    let usher = Usher::start(&with(&config, room()));
    let (mut inside, mut line) = full(&usher);
    let before: BTreeSet<_> = line.iter().map(|visitor| visitor.cookie.clone()).collect();
    usher.reload(&config);
    assert!(enters(&usher, &mut Visitor::new()), "no room, no line");
    usher.reload(&with(&config, room()));
    // Those who come now are the first, whoever was the first before; the last come first.
    line.reverse();
    let entered = line
        .iter_mut()
        .map(|visitor| enters(&usher, visitor))
        .take_while(|inside| *inside);
    assert_eq!(entered.count(), SEATS);
    let line = &mut line[SEATS..];
    assert!(!line.iter_mut().any(|visitor| enters(&usher, visitor)));
    // A seat of before is no seat. Its holder may be on the way once more, and not twice.
    for visitor in &mut inside {
        enters(&usher, visitor);
        eventually("the end of an old seat", || {
            (!enters(&usher, visitor)).then_some(())
        });
    }
    let mut all: Vec<Visitor> = line.iter().chain(&inside).cloned().collect();
    assert_eq!(places(&usher, &mut all), in_order(50));
    let after: BTreeSet<_> = all.iter().map(|visitor| visitor.cookie.clone()).collect();
    assert!(before.is_disjoint(&after), "everybody has a cookie of now");
    assert_eq!(after.len(), 50);
}
