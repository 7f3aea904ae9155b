//! What a cookie says, as bytes.
//!
//! ```text
//! version (1) | standing (1) | visitor (16) | ticket (8) | arrived (8) | last check-in (8)
//! | lease until (8) | renew from (8) | epoch (8) | sequence (8) | generation (4)
//! | minutes shown (4, 0 for none) | doubted (1)
//! ```
//!
//! Little-endian, in a fixed order and of one length, so that a cookie's length tells nothing. The
//! bytes were sealed by us; they are read with care all the same, because another version may have
//! sealed them.

use usher_core::admission::{Claims, Shown, Stamp, Standing, Visitor};

/// Bytes of encoded claims.
pub const LEN: usize = 1 + 1 + 16 + 5 * 8 + 2 * 8 + 4 + 4 + 1;

const VERSION: u8 = 1;

/// The bytes of `claims`.
#[must_use]
pub fn encode(claims: &Claims) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    put(&[VERSION, standing_byte(claims.standing)]);
    put(&claims.visitor.as_u128().to_le_bytes());
    for number in [
        claims.ticket,
        claims.arrived,
        claims.last_check_in,
        claims.lease_until,
        claims.renew_from,
        claims.stamp.epoch,
        claims.stamp.sequence,
    ] {
        put(&number.to_le_bytes());
    }
    put(&claims.generation.to_le_bytes());
    put(&claims.shown.map_or(0, |shown| shown.minutes).to_le_bytes());
    put(&[u8::from(claims.shown.is_some_and(|shown| shown.doubted))]);
    bytes
}

/// The claims in `bytes`, if this version wrote them.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Claims> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    let (visitor, rest) = rest.split_first_chunk::<16>()?;
    let (numbers, rest) = rest.split_first_chunk::<56>()?;
    let (generation, rest) = rest.split_first_chunk::<4>()?;
    let (minutes, rest) = rest.split_first_chunk::<4>()?;
    let [version, standing] = *head;
    if version != VERSION {
        return None;
    }
    let (numbers, _) = numbers.as_chunks::<8>();
    let number = |place: usize| u64::from_le_bytes(numbers[place]);
    let minutes = u32::from_le_bytes(*minutes);
    let doubted = match rest {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    Some(Claims {
        visitor: Visitor::from_u128(u128::from_le_bytes(*visitor)),
        standing: match standing {
            0 => Standing::Waiting,
            1 => Standing::Active,
            2 => Standing::Decoy,
            _ => return None,
        },
        ticket: number(0),
        arrived: number(1),
        last_check_in: number(2),
        lease_until: number(3),
        renew_from: number(4),
        stamp: Stamp {
            epoch: number(5),
            sequence: number(6),
        },
        generation: u32::from_le_bytes(*generation),
        shown: (minutes > 0).then_some(Shown { minutes, doubted }),
    })
}

fn standing_byte(standing: Standing) -> u8 {
    match standing {
        Standing::Waiting => 0,
        Standing::Active => 1,
        Standing::Decoy => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Claims {
        Claims {
            visitor: Visitor::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            standing: Standing::Active,
            ticket: 1_796_119_200_000_001,
            arrived: 1_796_119_200_000,
            last_check_in: 1_796_119_230_000,
            lease_until: 1_796_119_540_000,
            renew_from: 1_796_119_240_000,
            stamp: Stamp {
                epoch: 2,
                sequence: 77,
            },
            generation: 3,
            shown: Some(Shown {
                minutes: 5,
                doubted: true,
            }),
        }
    }

    #[test]
    fn the_bytes_are_these() {
        let bytes = encode(&sample());
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, GOLDEN);
        assert_eq!(decode(&bytes), Some(sample()));
    }

    const GOLDEN: &str = "0101100f0e0d0c0b0a090807060504030201\
        01e8e3968f61060000010c31a201000030760c31a201000020311131a2010000409d0c31a2010000\
        02000000000000004d00000000000000030000000500000001";

    #[test]
    fn other_versions_and_nonsense_are_no_claims() {
        let bytes = encode(&sample());
        for (at, byte) in [(0, 0), (0, 2), (1, 3), (LEN - 1, 2)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(decode(&other), None, "byte {at} is {byte}");
        }
        assert_eq!(decode(&bytes[1..]), None);
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(decode(&[]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bytes_of_any_kind_are_claims_that_say_the_same_or_none(bytes in prop::collection::vec(any::<u8>(), LEN)) {
            if let Some(claims) = decode(&bytes) {
                let again = encode(&claims);
                prop_assert_eq!(decode(&again), Some(claims));
            }
        }
    }
}
