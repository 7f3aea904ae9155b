//! What holds for every line of cookies that a visitor sends. A test and a fuzz target call the same
//! law; it panics when it is broken.

use std::sync::Arc;

use usher_core::admission::door::{Door, Kind, decide};
use usher_core::admission::{Claims, Method, Room, Settings, Standing};
use usher_core::id::Id;

use super::cookie::{Attributes, Jar, SameSite, Sealer, TEXT_LEN_MAX, claims, token_in};

/// The time that doors go by here.
const NOW: u64 = 1_796_119_200_000;

/// A seal that anybody can make, so that a fuzzer gets behind it: claims in hexadecimal digits.
struct Open;

impl Sealer for Open {
    fn seal(&self, _: Id, claims: &[u8]) -> String {
        claims.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn open(&self, _: Id, text: &[u8], into: &mut [u8; claims::LEN]) -> Option<usize> {
        let (pairs, odd) = text.as_chunks::<2>();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        if !odd.is_empty() || pairs.len() > into.len() {
            return None;
        }
        for (byte, [high, low]) in into.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(pairs.len())
    }
}

fn jar() -> Jar {
    let attributes = Attributes {
        suffix: String::new(),
        path: "/".to_owned(),
        domain: None,
        secure: false,
        same_site: SameSite::Lax,
    };
    Jar::new(Id::from_bytes([1; 16]), &attributes, Arc::new(Open))
}

/// Whatever stands in `line`, there is one answer to it: the claims of the first good cookie, which
/// sealed again say the same, and a way through the door for them. Tells whether there were any.
pub(crate) fn of_cookies(line: &[u8]) -> bool {
    let jar = jar();
    let found = jar.open(&[("cookie", line)]);
    assert!(found.invalid <= 4);
    let tokens = jar.open(&[("usher-waiting-room-token", line)]);
    assert!(tokens.claims.is_none() || tokens.claims == jar.open_value(line));
    if let Some(claims) = found.claims {
        let set = jar.set(&claims, 300);
        assert!(token_in(&set).len() <= TEXT_LEN_MAX);
        assert_eq!(jar.open_value(token_in(&set).as_bytes()), Some(claims));
        through_the_door(&claims);
    }
    found.claims.is_some()
}

/// No claims, however odd, let somebody pass whose seat is over, and none break the door.
fn through_the_door(claims: &Claims) {
    let kinds = [
        Kind::Navigation,
        Kind::Subrequest,
        Kind::Head,
        Kind::Preflight,
    ];
    for method in Method::ALL {
        for (total, queue_all, kind) in [(0, false, 0), (1, true, 1), (9, false, 2), (1, false, 3)]
        {
            let mut settings = Settings::new(total, 60);
            settings.method = method;
            settings.queue_all = queue_all;
            let summary = Room::default().summary(&settings, NOW);
            let way = decide(&settings, &summary, Some(claims), kinds[kind], NOW);
            if let Door::Pass { .. } = way {
                assert!(claims.standing == Standing::Active && NOW < claims.lease_until);
            }
            // Said of every place, whether it is one or not.
            let _ = summary.place(claims.ticket);
            let _ = summary.estimate(claims.ticket, method);
            let _ = summary.guaranteed_by(claims.ticket, method);
            let _ = summary.concerns(claims.visitor, claims.ticket);
        }
    }
}
