//! Tokens of the API: drawn here, shown once, kept as digests.
//!
//! A token is 256 random bits, so SHA-256 is enough: there is no dictionary to try, and a call is
//! not slowed down by a hash made to be slow. Whoever reads the store finds no token in it.

use std::fmt;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::{constant_time, digest};

use crate::secret::Secret;

/// In front of every token, so that people and scanners know one when they see it.
pub const PREFIX: &str = "usher_";

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; Digest::LEN]);

impl Digest {
    /// Bytes of a digest.
    pub const LEN: usize = 32;

    /// Of what a caller presents.
    #[must_use]
    pub fn of(text: &str) -> Digest {
        Digest::of_parts(&[text.as_bytes()])
    }

    /// Of several parts, each with its length, so that they do not run into each other.
    pub(crate) fn of_lengths_and_parts(parts: &[&[u8]]) -> Digest {
        let lengths: Vec<[u8; 8]> = parts
            .iter()
            .map(|part| (part.len() as u64).to_be_bytes())
            .collect();
        let woven: Vec<&[u8]> = lengths
            .iter()
            .zip(parts)
            .flat_map(|(length, part)| [length.as_slice(), part])
            .collect();
        Digest::of_parts(&woven)
    }

    fn of_parts(parts: &[&[u8]]) -> Digest {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(part);
        }
        let mut bytes = [0; Digest::LEN];
        bytes.copy_from_slice(context.finish().as_ref());
        Digest(bytes)
    }

    /// The digest with these bytes, which came out of [`Digest::as_bytes`].
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Digest::LEN]) -> Digest {
        Digest(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Digest::LEN] {
        &self.0
    }

    /// Whether they are the same, in a time that does not tell where they differ.
    #[must_use]
    pub fn matches(&self, other: &Digest) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(...)")
    }
}

/// Why nobody holds what a caller presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoHolder {
    /// There is no such token.
    #[error("no such token")]
    Unknown,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
}

/// The system gives no random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bits")]
pub struct NoChance;

/// A new token, to be shown once: [`PREFIX`] and 64 hexadecimal digits. Keep [`Digest::of`] it.
///
/// # Errors
/// The system gives no random bits.
pub fn draw() -> Result<Secret, NoChance> {
    use fmt::Write as _;

    let mut bits = [0; 32];
    SystemRandom::new().fill(&mut bits).map_err(|_| NoChance)?;
    let mut text = String::with_capacity(PREFIX.len() + 2 * bits.len());
    text.push_str(PREFIX);
    for byte in bits {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_alike_and_none_shows_itself() {
        let [one, other] = [draw(), draw()].map(|token| token.expect("random bits"));
        assert_ne!(one.expose(), other.expose());
        assert_eq!(one.expose().len(), 70);
        let digest = Digest::of(one.expose());
        assert!(digest.matches(&Digest::of(one.expose())));
        assert!(!digest.matches(&Digest::of(other.expose())));
        assert_eq!(format!("{digest:?}"), "Digest(...)");
    }

    #[test]
    fn a_digest_is_sha_256() {
        let abc = Digest::of("abc");
        assert_eq!(abc.as_bytes()[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
