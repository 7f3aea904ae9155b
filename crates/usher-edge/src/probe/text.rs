//! Looks for a text in a response body while it streams in.
//!
//! The search runs over each piece as it comes, because an endpoint may send the text at once and
//! then keep the response open. Only the first [`SEARCHED_MAX`] bytes count, after decoding: that
//! bounds memory for endless bodies and for gzip bodies that unpack to gigabytes.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

/// Bytes of a decoded body that are searched: the documented 10 KiB.
pub const SEARCHED_MAX: usize = 10 * 1024;

/// What is known after a piece of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// The text is there.
    Found,
    /// It may still come.
    NotYet,
    /// It can no longer come: the limit is reached or the encoding is broken.
    Absent,
}

/// A search through one body.
#[derive(Debug)]
pub(super) enum Search {
    Plain(Text),
    Gzip(Box<MultiGzDecoder<Text>>),
}

impl Search {
    /// Looks for `wanted` without regard to case. An encoding other than gzip is searched as it is.
    pub(super) fn new(wanted: &str, encoding: Option<&[u8]>) -> Search {
        let text = Text {
            wanted: fold(wanted),
            seen: Vec::new(),
            found: false,
        };
        let gzip = |name: &[u8]| {
            name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip")
        };
        if encoding.map(<[u8]>::trim_ascii).is_some_and(gzip) {
            Search::Gzip(Box::new(MultiGzDecoder::new(text)))
        } else {
            Search::Plain(text)
        }
    }

    /// Takes the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Sight {
        let (taken, text) = match self {
            Search::Plain(text) => (text.write_all(piece), &*text),
            Search::Gzip(decoder) => {
                let taken = decoder.write_all(piece).and_then(|()| decoder.flush());
                (taken, decoder.get_ref())
            }
        };
        match taken {
            _ if text.found => Sight::Found,
            Ok(()) => Sight::NotYet,
            Err(_) => Sight::Absent,
        }
    }
}

/// The decoded body so far. As a writer it fails once it wants no more.
#[derive(Debug)]
pub(super) struct Text {
    wanted: String,
    seen: Vec<u8>,
    found: bool,
}

impl Write for Text {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let room = SEARCHED_MAX - self.seen.len();
        if room == 0 || self.found {
            return Err(io::Error::other("enough seen"));
        }
        let taken = piece.len().min(room);
        // The text may have begun in an earlier piece. A character has at most three times the
        // bytes of its lower case (the Kelvin sign and k).
        let mut from = self.seen.len().saturating_sub(3 * self.wanted.len());
        while from > 0 && self.seen.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
            from -= 1;
        }
        self.seen.extend_from_slice(&piece[..taken]);
        let window = String::from_utf8_lossy(&self.seen[from..]);
        self.found = fold(&window).contains(&self.wanted);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lower case, character by character: what a character becomes must not depend on where the
/// window was cut.
fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_does_not_matter_in_any_script() {
        for (wanted, body) in [
            ("ok", "status: OK"),
            ("OK", "status: ok"),
            ("äpfel", "frische ÄPFEL"),
            ("ΟΔΟΣ", "οδοσ"),
            ("1 k", "1 \u{212a}"),
        ] {
            assert_eq!(
                search(wanted, None, body.as_bytes(), 1),
                Sight::Found,
                "{wanted} {body}"
            );
        }
        assert_eq!(search("ok", None, b"o k", 1), Sight::NotYet);
    }

    #[test]
    fn only_the_first_ten_kib_count() {
        let body = |before: usize| [vec![b'.'; before], b"alive".to_vec()].concat();
        for size in [1, 7, 4096, 20_000] {
            assert_eq!(
                search("alive", None, &body(SEARCHED_MAX - 5), size),
                Sight::Found
            );
            assert_eq!(
                search("alive", None, &body(SEARCHED_MAX - 4), size),
                Sight::Absent
            );
        }
    }

    #[test]
    fn gzip_is_searched_decoded() {
        let body = |before: usize| gzip(&[vec![b'.'; before], b"alive".to_vec()].concat());
        for size in [1, 7, 4096] {
            for name in ["gzip", "X-GZIP", " gzip "] {
                let found = search("ALIVE", Some(name), &body(SEARCHED_MAX - 5), size);
                assert_eq!(found, Sight::Found, "{name} {size}");
            }
            let absent = search("alive", Some("gzip"), &body(SEARCHED_MAX - 4), size);
            assert_eq!(absent, Sight::Absent, "{size}");
        }
        assert_eq!(search("alive", Some("br"), &body(0), 100), Sight::NotYet);
        let two_members = [body(0), gzip(b"kicking")].concat();
        assert_eq!(
            search("alivekicking", Some("gzip"), &two_members, 3),
            Sight::Found
        );
        assert_eq!(
            search("alive", Some("gzip"), b"this is not gzip at all", 3),
            Sight::Absent
        );
    }

    #[test]
    fn a_gzip_body_that_unpacks_to_much_is_dropped_early() {
        let bomb = gzip(&vec![0; 64 << 20]);
        let mut search = Search::new("alive", Some(b"gzip"));
        assert_eq!(search.feed(&bomb), Sight::Absent);
        let Search::Gzip(decoder) = search else {
            panic!("gzip was announced")
        };
        assert!(decoder.get_ref().seen.capacity() <= 2 * SEARCHED_MAX);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            body in "[aAbBäÄ\u{212a}k]{0,60}",
            wanted in "[abäk]{1,4}",
            size in 1_usize..9,
        ) {
            let whole = fold(&body).contains(&fold(&wanted));
            let found = search(&wanted, None, body.as_bytes(), size) == Sight::Found;
            prop_assert_eq!(found, whole);
        }
    }

    fn search(wanted: &str, encoding: Option<&str>, body: &[u8], size: usize) -> Sight {
        let mut search = Search::new(wanted, encoding.map(str::as_bytes));
        let mut sight = Sight::NotYet;
        for piece in body.chunks(size) {
            sight = search.feed(piece);
            if sight != Sight::NotYet {
                break;
            }
        }
        sight
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).expect("a Vec takes all");
        encoder.finish().expect("a Vec takes all")
    }
}
