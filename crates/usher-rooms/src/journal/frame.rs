//! Frames: what is written in one piece, and told to be whole when it is read.
//!
//! ```text
//! mark (4) | length of the payload (4) | number (8) | CRC-32 (4) | payload
//! ```
//!
//! All numbers are little-endian; the sum is over everything else. A frame is one group commit, and
//! the next one is written when this one is on disk. So whatever a crash tears is the last frame of a
//! file, however the kernel ordered its pages, and anything else that does not read is damage. The
//! mark makes the two easy to tell apart: behind a tear no whole frame follows.

use memchr::memmem;

/// Most bytes of a payload. A length beyond it is not believed.
pub(super) const PAYLOAD_LEN_MAX: usize = 16 << 20;

const MARK: [u8; 4] = *b"\xf5uj1";
pub(super) const HEAD_LEN: usize = 20;

/// Records on their way into one frame. The buffer is used again and again.
#[derive(Debug)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// Without records.
    #[must_use]
    pub fn new() -> Batch {
        Batch(vec![0; HEAD_LEN])
    }

    /// Where records are appended.
    pub fn records(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Bytes of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() - HEAD_LEN
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.0.truncate(HEAD_LEN);
    }

    /// The frame with this number.
    pub(super) fn frame(&mut self, number: u64) -> &[u8] {
        let (head, payload) = self.0.split_at_mut(HEAD_LEN);
        let len = u32::try_from(payload.len()).expect("a batch is shorter than PAYLOAD_LEN_MAX");
        head[..4].copy_from_slice(&MARK);
        head[4..8].copy_from_slice(&len.to_le_bytes());
        head[8..16].copy_from_slice(&number.to_le_bytes());
        let sum = sum(&head[..16], payload);
        head[16..].copy_from_slice(&sum.to_le_bytes());
        &self.0
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

/// A whole frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) number: u64,
    pub(super) payload: &'a [u8],
    /// Where the next one begins.
    pub(super) end: usize,
}

/// The frame that begins at `at`, if it is whole.
pub(super) fn read(bytes: &[u8], at: usize) -> Option<Frame<'_>> {
    let rest = bytes.get(at..)?;
    let (head, rest) = rest.split_first_chunk::<HEAD_LEN>()?;
    let (fields, stored) = head.split_first_chunk::<16>()?;
    let (mark, fields_rest) = fields.split_first_chunk::<4>()?;
    let (len, number) = fields_rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    if *mark != MARK || len > PAYLOAD_LEN_MAX {
        return None;
    }
    let payload = rest.get(..len)?;
    (sum(fields, payload).to_le_bytes() == *stored).then(|| Frame {
        number: u64::from_le_bytes(number.try_into().expect("8 of 16 bytes are left")),
        payload,
        end: at + HEAD_LEN + len,
    })
}

/// Whether a whole frame begins anywhere behind `at`: then what is at `at` was not torn by a crash.
pub(super) fn follows(bytes: &[u8], at: usize) -> bool {
    let from = (at + 1).min(bytes.len());
    memmem::find_iter(&bytes[from..], &MARK).any(|place| read(bytes, from + place).is_some())
}

fn sum(fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(number: u64, payload: &[u8]) -> Vec<u8> {
        let mut batch = Batch::new();
        batch.records().extend_from_slice(payload);
        batch.frame(number).to_vec()
    }

    #[test]
    fn a_frame_is_read_back() {
        let bytes = [framed(7, b"one"), framed(8, b"")].concat();
        let one = read(&bytes, 0).expect("whole");
        assert_eq!((one.number, one.payload), (7, &b"one"[..]));
        let two = read(&bytes, one.end).expect("whole");
        assert_eq!(
            (two.number, two.payload, two.end),
            (8, &b""[..], bytes.len())
        );
        assert_eq!(read(&bytes, bytes.len()), None);
    }

    #[test]
    fn a_batch_is_used_again() {
        let mut batch = Batch::new();
        batch.records().extend_from_slice(b"long ago");
        assert_eq!(batch.len(), 8);
        batch.clear();
        assert!(batch.is_empty());
        batch.records().extend_from_slice(b"now");
        assert_eq!(batch.frame(1), framed(1, b"now"));
    }

    #[test]
    fn a_length_beyond_the_limit_is_not_believed() {
        let mut bytes = framed(1, b"x");
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&bytes, 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_flipped_bit_goes_unseen(payload in prop::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, bit in 0..8) {
            let mut bytes = framed(3, &payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert_eq!(read(&bytes, 0), None);
        }

        #[test]
        fn any_cut_is_a_tear_and_anything_before_a_frame_is_damage(payload in prop::collection::vec(any::<u8>(), 0..64), keep: prop::sample::Index) {
            let whole = framed(3, &payload);
            let torn = &whole[..keep.index(whole.len())];
            prop_assert_eq!(read(torn, 0), None);
            prop_assert!(!follows(torn, 0));
            let mut damaged = whole.clone();
            damaged[0] ^= 1;
            damaged.extend(framed(4, b"next"));
            prop_assert!(follows(&damaged, 0));
        }

        #[test]
        fn bytes_of_any_kind_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            prop_assert_eq!(read(&bytes, 0), None);
            prop_assert!(!follows(&bytes, 0));
        }
    }
}
