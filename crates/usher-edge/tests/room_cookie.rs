//! The cookie of a room, sealed by the keys that the process seals everything with.

use std::sync::Arc;

use usher_core::admission::{Claims, Stamp, Standing, Visitor};
use usher_core::id::Id;
use usher_edge::seal::{Keys, Purpose, Scope};
use usher_rooms::cookie::{Attributes, Found, Jar, SameSite, TEXT_LEN_MAX};

const ROOM: Id = Id::from_bytes([1; 16]);
const OTHER: Id = Id::from_bytes([2; 16]);
const OLD: &str = "an old secret, 0123456789 abcdefghij";
const NEW: &str = "a new secret, 0123456789 abcdefghij";

fn keys(secrets: &[&str]) -> Arc<Keys> {
    Arc::new(Keys::new(secrets).expect("good secrets"))
}

fn attributes(suffix: &str) -> Attributes {
    Attributes {
        suffix: suffix.to_owned(),
        path: "/shop".to_owned(),
        domain: None,
        secure: false,
        same_site: SameSite::Lax,
    }
}

fn jar(room: Id, suffix: &str, secrets: &[&str]) -> Jar {
    Jar::new(room, &attributes(suffix), keys(secrets))
}

fn claims() -> Claims {
    Claims {
        visitor: Visitor::from_u128(u128::MAX - 5),
        standing: Standing::Waiting,
        ticket: u64::MAX >> 11,
        arrived: u64::MAX,
        last_check_in: 1_796_119_200_000,
        lease_until: 0,
        renew_from: 0,
        stamp: Stamp {
            epoch: 1,
            sequence: u64::MAX,
        },
        generation: u32::MAX,
        shown: None,
    }
}

fn value(set_cookie: &str) -> &str {
    let pair = set_cookie.split(';').next().expect("a pair");
    pair.split_once('=').expect("a value").1
}

fn opened(jar: &Jar, line: &str) -> Found {
    jar.open(&[("Cookie", line)])
}

#[test]
fn a_visitor_carries_it_and_brings_it_back() {
    let jar = jar(ROOM, "", &[NEW]);
    let set = jar.set(&claims(), 300);
    let sealed = value(&set);
    assert_eq!(
        set,
        format!("__cfwaitingroom={sealed}; Max-Age=300; Path=/shop; HttpOnly; SameSite=Lax")
    );
    assert!(sealed.len() <= TEXT_LEN_MAX, "{} characters", sealed.len());
    let expected = Found {
        claims: Some(claims()),
        invalid: 0,
    };
    for line in [
        format!("__cfwaitingroom={sealed}"),
        format!("a=b; __cfwaitingroom={sealed}; c=d"),
        format!("a=__cfwaitingroom;__cfwaitingroom = \"{sealed}\""),
    ] {
        assert_eq!(opened(&jar, &line), expected, "{line}");
    }
    assert_ne!(jar.set(&claims(), 300), set, "each seal is different");
    assert_eq!(
        jar.clear(),
        "__cfwaitingroom=; Max-Age=0; Path=/shop; HttpOnly; SameSite=Lax"
    );
}

#[test]
fn attributes_are_as_the_operator_says() {
    let rows = [
        (
            Attributes {
                path: "/".to_owned(),
                domain: Some("example.com".to_owned()),
                secure: true,
                same_site: SameSite::None,
                ..attributes("sale")
            },
            "__cfwaitingroom_sale=; Max-Age=0; Path=/; Domain=example.com; HttpOnly; SameSite=None; Secure; Partitioned",
        ),
        (
            Attributes {
                path: "/a;b".to_owned(),
                same_site: SameSite::Strict,
                ..attributes("")
            },
            "__cfwaitingroom=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict",
        ),
    ];
    for (attributes, expected) in rows {
        assert_eq!(Jar::new(ROOM, &attributes, keys(&[NEW])).clear(), expected);
    }
}

#[test]
fn whatever_was_not_sealed_for_this_cookie_is_no_cookie() {
    let ours = jar(ROOM, "", &[NEW, OLD]);
    let set = ours.set(&claims(), 300);
    let good = value(&set);
    let refused = |text: &str| {
        let found = opened(&ours, &format!("__cfwaitingroom={text}"));
        assert_eq!(found.claims, None, "{text}");
        assert_eq!(found.invalid, 1, "{text}");
    };
    // Of another room, under another name, by an unknown key, of another purpose.
    refused(value(&jar(OTHER, "", &[NEW]).set(&claims(), 300)));
    refused(value(&jar(ROOM, "x", &[NEW]).set(&claims(), 300)));
    let unknown = "nobody's secret, 0123456789 abcdefghij";
    refused(value(&jar(ROOM, "", &[unknown]).set(&claims(), 300)));
    let pin = keys(&[NEW]).seal(
        Scope {
            purpose: Purpose::Pin,
            of: ROOM,
        },
        &[0; 80],
    );
    refused(&pin);
    // Truncated at any place, with any character changed, longer than it may be.
    for len in 0..good.len() {
        refused(&good[..len]);
    }
    for at in 0..good.len() - 1 {
        let other = if &good[at..=at] == "A" { "B" } else { "A" };
        refused(&format!("{}{other}{}", &good[..at], &good[at + 1..]));
    }
    refused(&"A".repeat(TEXT_LEN_MAX + 1));
    refused("");
    // An old key still opens.
    let old = jar(ROOM, "", &[OLD]).set(&claims(), 300);
    assert_eq!(ours.open_value(value(&old).as_bytes()), Some(claims()));
}

#[test]
fn the_first_good_one_counts_and_the_search_ends() {
    let ours = jar(ROOM, "", &[NEW]);
    let set = ours.set(&claims(), 300);
    let good = value(&set);
    let found = opened(&ours, &format!("__cfwaitingroom=x; __cfwaitingroom={good}"));
    assert_eq!((found.claims, found.invalid), (Some(claims()), 1));
    let lines: Vec<(&str, String)> = (0..4)
        .map(|_| ("cookie", "__cfwaitingroom=x".to_owned()))
        .chain([("cookie", format!("__cfwaitingroom={good}"))])
        .collect();
    let found = ours.open(&lines);
    assert_eq!((found.claims, found.invalid), (None, 4));
}
