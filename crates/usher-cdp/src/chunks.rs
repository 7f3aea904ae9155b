//! The framing of older clients: a message is its length, four bytes, the lowest first, and its
//! text, cut into pieces.
//!
//! Each message begins with a piece of its own and ends with one. Some of these clients count
//! characters where bytes are meant and never send the tail of a message, so the next message
//! stands where the tail should: that is noticed by its length or by not being JSON, and ends the
//! connection. To go on would be to guess.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a piece, its length included. Clients take no longer one.
pub const PIECE_MAX: usize = 1_048_575;

/// Bytes that tell the length.
const LENGTH: usize = 4;

/// What a client of this kind sends as text to keep the connection: neither answered nor counted.
pub const PING: &str = "ping";

/// Why a piece makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// The first piece is too short to tell a length.
    #[error("a message begins with {0} bytes, fewer than its length takes")]
    Short(usize),
    /// A message of length 0.
    #[error("a message of no bytes")]
    Empty,
    /// Longer than this connection takes.
    #[error("a message of {len} bytes is over this connection's limit of {limit}")]
    TooLong {
        /// What it says of itself.
        len: usize,
        /// What may be.
        limit: usize,
    },
    /// More than the message said of itself.
    #[error("{found} bytes where {left} were left of a message")]
    Overrun {
        /// Bytes of the piece.
        found: usize,
        /// Bytes that were to come.
        left: usize,
    },
    /// Not text.
    #[error("a message is not UTF-8")]
    NotText,
}

impl ChunkFault {
    /// The code and the reason to close the WebSocket with.
    #[must_use]
    pub fn close(&self) -> (u16, &'static str) {
        match self {
            ChunkFault::TooLong { .. } => (1009, "message too big"),
            ChunkFault::Short(_)
            | ChunkFault::Empty
            | ChunkFault::Overrun { .. }
            | ChunkFault::NotText => (1007, "bad chunk"),
        }
    }
}

/// Puts a client's pieces together.
#[derive(Debug)]
pub struct Assembler {
    limit: usize,
    /// Bytes that the message under way will have; 0 between two messages.
    len: usize,
    text: Vec<u8>,
}

impl Assembler {
    /// For messages of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Assembler {
        Assembler {
            limit,
            len: 0,
            text: Vec::new(),
        }
    }

    /// Takes the next binary message of the WebSocket. Answers with a whole one if this was its
    /// last piece. Memory is taken for what came, never for what was announced.
    ///
    /// # Errors
    /// The piece does not belong there; nothing that follows can be understood.
    pub fn piece(&mut self, piece: &[u8]) -> Result<Option<String>, ChunkFault> {
        let piece = if self.len == 0 {
            let short = ChunkFault::Short(piece.len());
            let (length, rest) = piece.split_first_chunk::<LENGTH>().ok_or(short)?;
            let len = u32::from_le_bytes(*length) as usize;
            if len == 0 {
                return Err(ChunkFault::Empty);
            }
            if len > self.limit {
                let limit = self.limit;
                return Err(ChunkFault::TooLong { len, limit });
            }
            self.len = len;
            rest
        } else {
            piece
        };
        let left = self.len - self.text.len();
        if piece.len() > left {
            let found = piece.len();
            return Err(ChunkFault::Overrun { found, left });
        }
        self.text.extend_from_slice(piece);
        if self.text.len() < self.len {
            return Ok(None);
        }
        self.len = 0;
        let text = String::from_utf8(std::mem::take(&mut self.text));
        text.map(Some).map_err(|_| ChunkFault::NotText)
    }

    /// Whether a message is under way.
    #[must_use]
    pub fn is_amid(&self) -> bool {
        self.len != 0
    }
}

/// Cuts a message for a client. Nothing for an empty one, which the client would swallow, nor for
/// one beyond 4 GiB, which it could not be told of.
pub fn cut(message: Bytes) -> impl Iterator<Item = Bytes> {
    let len = u32::try_from(message.len()).unwrap_or(0);
    let mut rest = if len == 0 { Bytes::new() } else { message };
    let mut first = true;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if !std::mem::take(&mut first) {
            return Some(rest.split_to(rest.len().min(PIECE_MAX)));
        }
        let text = rest.split_to(rest.len().min(PIECE_MAX - LENGTH));
        let mut piece = BytesMut::with_capacity(LENGTH + text.len());
        piece.put_u32_le(len);
        piece.put(text);
        Some(piece.freeze())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 32 << 20;

    #[test]
    fn pieces_are_as_they_were_seen_on_the_wire() {
        // A command of 38 bytes went as 42, one of 3,000,346 as these.
        let command = Bytes::from_static(br#"{"method":"Browser.getVersion","id":1}"#);
        let pieces: Vec<_> = cut(command.clone()).collect();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0][..4], [0x26, 0, 0, 0]);
        assert_eq!(pieces[0][4..], command);
        let lengths: Vec<_> = cut(vec![b' '; 3_000_346].into())
            .map(|piece| piece.len())
            .collect();
        assert_eq!(lengths, [1_048_575, 1_048_575, 903_200]);
        let mut assembler = Assembler::new(LIMIT);
        assert_eq!(
            assembler.piece(&pieces[0]),
            Ok(String::from_utf8(command.to_vec()).ok())
        );
    }

    #[test]
    fn the_edges_of_a_piece_hold() {
        for (len, pieces) in [
            (0, vec![]),
            (1, vec![5]),
            (PIECE_MAX - 4, vec![PIECE_MAX]),
            (PIECE_MAX - 3, vec![PIECE_MAX, 1]),
            (2 * PIECE_MAX - 4, vec![PIECE_MAX, PIECE_MAX]),
            (2 * PIECE_MAX - 3, vec![PIECE_MAX, PIECE_MAX, 1]),
        ] {
            let lengths: Vec<_> = cut(vec![b'x'; len].into())
                .map(|piece| piece.len())
                .collect();
            assert_eq!(lengths, pieces, "{len}");
        }
    }

    #[test]
    fn what_lies_about_its_length_ends_the_connection() {
        let mut assembler = Assembler::new(10);
        for piece in [&b""[..], b"\x01", b"\x01\0\0"] {
            assert_eq!(
                Assembler::new(10).piece(piece),
                Err(ChunkFault::Short(piece.len()))
            );
        }
        assert_eq!(assembler.piece(b"\0\0\0\0"), Err(ChunkFault::Empty));
        let too_long = ChunkFault::TooLong { len: 11, limit: 10 };
        assert_eq!(Assembler::new(10).piece(b"\x0b\0\0\0"), Err(too_long));
        assert_eq!(too_long.close(), (1009, "message too big"));
        let huge = Assembler::new(LIMIT).piece(b"\xff\xff\xff\xff");
        assert!(matches!(huge, Err(ChunkFault::TooLong { .. })));
        let overrun = ChunkFault::Overrun { found: 3, left: 2 };
        assert_eq!(Assembler::new(10).piece(b"\x02\0\0\0{}x"), Err(overrun));
        assert_eq!(overrun.close(), (1007, "bad chunk"));
        // The tail that never came, and the next message in its place.
        assert_eq!(assembler.piece(b"\x05\0\0\0{\"a"), Ok(None));
        assert!(assembler.is_amid());
        assert_eq!(
            assembler.piece(b"\x02\0\0\0{}"),
            Err(ChunkFault::Overrun { found: 6, left: 2 })
        );
        assert_eq!(
            Assembler::new(10).piece(b"\x01\0\0\0\xff"),
            Err(ChunkFault::NotText)
        );
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut assembler = Assembler::new(LIMIT);
        let len = u32::try_from(LIMIT).expect("small").to_le_bytes();
        assert_eq!(assembler.piece(&[&len[..], b"{"].concat()), Ok(None));
        assert!(assembler.text.capacity() < 1024);
        // Pieces of nothing are no end, and no harm.
        for _ in 0..1000 {
            assert_eq!(assembler.piece(b""), Ok(None));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn cut_and_put_together_is_the_same(text in "\\PC{1,200}", times in 1_usize..20_000) {
            let text = text.repeat(times.min(3_000_000 / text.len() + 1));
            let mut assembler = Assembler::new(64 << 20);
            let mut whole = None;
            for piece in cut(text.clone().into()) {
                prop_assert!(piece.len() <= PIECE_MAX && whole.is_none());
                whole = assembler.piece(&piece).expect("well cut");
            }
            prop_assert!(whole.is_some_and(|whole| whole == text) && !assembler.is_amid());
        }

        #[test]
        fn nothing_that_a_client_sends_does_harm(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..20)) {
            let mut assembler = Assembler::new(8);
            for piece in pieces {
                match assembler.piece(&piece) {
                    Ok(Some(text)) => prop_assert!((1..=8).contains(&text.len())),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
        }
    }
}
