//! Sealed texts: what a visitor carries for us, and must neither read nor make.
//!
//! A cookie that names an endpoint decides where a request goes, so it is encrypted and
//! authenticated: AES-256-GCM-SIV, which forgives what random nonces of 96 bits may do once in a very
//! long while. The sealed bytes are
//!
//! ```text
//! version (1) | key id (4) | nonce (12) | encrypted claims | tag (16)
//! ```
//!
//! in unpadded base64url. Version, key id and [`Scope`] are authenticated with the claims, so a text
//! of one load balancer is noise to another. What the claims mean is not known here.
//!
//! Whatever arrives costs a look at its length, decoding at most [`TEXT_LEN_MAX`] characters, and at
//! most one decryption: the key id says which key, and nobody's text makes us try them all.

mod key_file;
mod visit;

use std::fmt;
use std::ops::Deref;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use usher_core::id::Id;

pub use key_file::KEY_FILE_NAME;

/// Most bytes of claims in one text.
pub const CLAIMS_LEN_MAX: usize = 256;
/// Most characters of a sealed text; a longer one is not looked at.
pub const TEXT_LEN_MAX: usize = (SEALED_LEN_MAX * 4).div_ceil(3);
/// Fewest characters of a secret.
pub const SECRET_LEN_MIN: usize = 32;
/// Most keys at one time.
pub const KEYS_MAX: usize = 16;

const VERSION: u8 = 1;
const KEY_ID_LEN: usize = 4;
const HEAD_LEN: usize = 1 + KEY_ID_LEN + NONCE_LEN;
const TAG_LEN: usize = 16;
const SEALED_LEN_MAX: usize = HEAD_LEN + CLAIMS_LEN_MAX + TAG_LEN;
/// Decoding works in whole groups of three bytes.
const BUFFER_LEN: usize = TEXT_LEN_MAX.div_ceil(4) * 3;

/// What a text is sealed for; opened for anything else it is noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// What kind of claims it holds.
    pub purpose: Purpose,
    /// Whose claims: the load balancer, or a waiting room's cookie.
    pub of: Id,
}

/// The kinds of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A visitor's tie to an endpoint, in the cookie `__cflb`.
    Pin,
    /// A visitor's seat or place in a waiting room, in the cookie `__cfwaitingroom`.
    Visit,
}

impl Purpose {
    const fn tag(self) -> u8 {
        match self {
            Purpose::Pin => 1,
            Purpose::Visit => 2,
        }
    }
}

/// The keys of a cluster: the first one seals, all of them open.
///
/// To change the key, put the new one in front on every node, and take the old one away when the
/// last text that it sealed has expired.
pub struct Keys(Vec<Key>);

struct Key {
    id: [u8; KEY_ID_LEN],
    cipher: RandomizedNonceKey,
}

/// A list of secrets that makes no keys. Places count from 0, and from 1 in the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// There is none.
    #[error("no key is given")]
    None,
    /// There are too many.
    #[error("{found} keys are more than {KEYS_MAX}")]
    Many {
        /// How many.
        found: usize,
    },
    /// One is too short.
    #[error("key {} has {found} characters, fewer than {SECRET_LEN_MIN}", place + 1)]
    Short {
        /// Which one.
        place: usize,
        /// Its characters.
        found: usize,
    },
    /// One can be guessed.
    #[error("key {} is made of {found} different characters, fewer than {VARIETY_MIN}", place + 1)]
    Monotonous {
        /// Which one.
        place: usize,
        /// Its different characters.
        found: usize,
    },
    /// One is there twice.
    #[error("key {} is key {} again", place + 1, first + 1)]
    Twice {
        /// Which one.
        place: usize,
        /// The same one before it.
        first: usize,
    },
}

/// Fewest different characters of a secret. A random key of 16 hexadecimal digits has fewer about
/// once in a million times.
pub const VARIETY_MIN: usize = 8;

impl Keys {
    /// Keys from secrets. A secret is any text of at least [`SECRET_LEN_MIN`] characters that nobody
    /// can guess, in whatever encoding: `openssl rand -base64 32` makes a good one. White space
    /// around it does not count. The same text gives the same key on every node.
    ///
    /// # Errors
    /// A secret is too short or too plain or there twice, or there are none or more than
    /// [`KEYS_MAX`].
    pub fn new<S: AsRef<str>>(secrets: &[S]) -> Result<Keys, SecretFault> {
        let found = secrets.len();
        match found {
            0 => return Err(SecretFault::None),
            1..=KEYS_MAX => {}
            _ => return Err(SecretFault::Many { found }),
        }
        let mut keys: Vec<Key> = Vec::with_capacity(found);
        for (place, secret) in secrets.iter().enumerate() {
            let secret = secret.as_ref().trim();
            let found = secret.chars().count();
            if found < SECRET_LEN_MIN {
                return Err(SecretFault::Short { place, found });
            }
            let mut characters: Vec<char> = secret.chars().collect();
            characters.sort_unstable();
            characters.dedup();
            let found = characters.len();
            if found < VARIETY_MIN {
                return Err(SecretFault::Monotonous { place, found });
            }
            let key = Key::derive(secret);
            if let Some(first) = keys.iter().position(|other| other.id == key.id) {
                return Err(SecretFault::Twice { place, first });
            }
            keys.push(key);
        }
        Ok(Keys(keys))
    }

    /// A new secret for [`Keys::new`]: 256 random bits in base64url.
    #[must_use]
    pub fn generate() -> String {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).expect("the system has entropy");
        BASE64.encode(bytes)
    }

    /// Seals `claims` for `scope`: letters, digits, `-` and `_`, different each time.
    ///
    /// # Panics
    /// With more than [`CLAIMS_LEN_MAX`] bytes of claims: they are ours, and their length with them.
    #[must_use]
    pub fn seal(&self, scope: Scope, claims: &[u8]) -> String {
        assert!(
            claims.len() <= CLAIMS_LEN_MAX,
            "{} bytes of claims",
            claims.len()
        );
        let key = &self.0[0];
        let mut sealed = [0; SEALED_LEN_MAX];
        let (head, body) = sealed.split_at_mut(HEAD_LEN);
        let (body, rest) = body.split_at_mut(claims.len());
        body.copy_from_slice(claims);
        let aad = Aad::from(associated(key.id, scope));
        let (nonce, tag) = key
            .cipher
            .seal_in_place_separate_tag(aad, body)
            .expect("the system has entropy, and the claims are short");
        head[0] = VERSION;
        head[1..=KEY_ID_LEN].copy_from_slice(&key.id);
        head[1 + KEY_ID_LEN..].copy_from_slice(nonce.as_ref());
        rest[..TAG_LEN].copy_from_slice(tag.as_ref());
        BASE64.encode(&sealed[..HEAD_LEN + claims.len() + TAG_LEN])
    }

    /// The claims in `text`, if one of the keys sealed it for `scope`. Does not allocate.
    #[must_use]
    pub fn open(&self, scope: Scope, text: &[u8]) -> Option<Claims> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let mut buffer = [0; BUFFER_LEN];
        let len = BASE64.decode_slice(text, &mut buffer).ok()?;
        let (head, body) = buffer[..len].split_at_mut_checked(HEAD_LEN)?;
        let (version, head) = head.split_first()?;
        let (id, nonce) = head.split_first_chunk::<KEY_ID_LEN>()?;
        let key = self
            .0
            .iter()
            .find(|key| *version == VERSION && key.id == *id)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from(associated(*id, scope));
        let opened = key.cipher.open_in_place(nonce, aad, body).ok()?;
        let mut claims = Claims {
            bytes: [0; CLAIMS_LEN_MAX],
            len: opened.len(),
        };
        claims
            .bytes
            .get_mut(..opened.len())?
            .copy_from_slice(opened);
        Some(claims)
    }
}

/// What is authenticated beside the claims.
fn associated(id: [u8; KEY_ID_LEN], scope: Scope) -> [u8; 2 + KEY_ID_LEN + 16] {
    let mut bytes = [0; 2 + KEY_ID_LEN + 16];
    bytes[0] = VERSION;
    bytes[1] = scope.purpose.tag();
    bytes[2..2 + KEY_ID_LEN].copy_from_slice(&id);
    bytes[2 + KEY_ID_LEN..].copy_from_slice(&scope.of.to_bytes());
    bytes
}

impl Key {
    /// Two values that tell nothing about each other, so that the id may be seen.
    fn derive(secret: &str) -> Key {
        let secret = Salt::new(HKDF_SHA256, b"usher seal").extract(secret.as_bytes());
        let expand = |label: &[u8]| {
            let mut bytes = [0; 32];
            let label = [label];
            let expanded = secret
                .expand(&label, HKDF_SHA256)
                .and_then(|out| out.fill(&mut bytes));
            expanded.expect("32 bytes are one block of SHA-256");
            bytes
        };
        let [a, b, c, d, ..] = expand(b"id 1");
        let cipher = RandomizedNonceKey::new(&AES_256_GCM_SIV, &expand(b"key 1"));
        Key {
            id: [a, b, c, d],
            cipher: cipher.expect("the cipher takes 32 bytes"),
        }
    }
}

impl fmt::Debug for Keys {
    /// The ids only: they stand in every cookie.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |key: &Key| format!("{:08x}", u32::from_be_bytes(key.id));
        f.debug_list().entries(self.0.iter().map(id)).finish()
    }
}

/// Claims that were sealed with one of our keys.
#[derive(Clone, Copy)]
pub struct Claims {
    bytes: [u8; CLAIMS_LEN_MAX],
    len: usize,
}

impl Deref for Claims {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for Claims {
    /// Their length only: they may say who somebody is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use usher_core::id::Kind;

    use super::*;

    const OLD: &str = "an old secret of the example, 1 of 2";
    const NEW: &str = "a new secret of the example, 2 of 2!";

    #[test]
    fn what_is_sealed_opens_and_differs_each_time() {
        let keys = keys(&[NEW]);
        for len in [0, 1, 57, CLAIMS_LEN_MAX] {
            let claims: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            let [one, two] = [keys.seal(SHOP, &claims), keys.seal(SHOP, &claims)];
            assert_ne!(one, two);
            assert!(one.len() <= TEXT_LEN_MAX);
            assert!(
                one.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            );
            for text in [one, two] {
                assert_eq!(opened(&keys, &text).as_deref(), Some(&claims[..]));
            }
        }
    }

    /// Visitors keep their cookies over an upgrade.
    #[test]
    fn a_text_of_an_earlier_version_opens() {
        let scope = Scope {
            purpose: Purpose::Pin,
            of: Id::from_bytes([7; 16]),
        };
        let claims = keys(&[OLD]).open(scope, GOLDEN.as_bytes());
        assert_eq!(claims.as_deref(), Some(&b"claims"[..]));
    }

    #[test]
    fn the_first_key_seals_and_all_of_them_open() {
        let [old, new] = [keys(&[OLD]), keys(&[NEW])];
        let both = keys(&[NEW, OLD]);
        assert_eq!(
            opened(&both, &old.seal(SHOP, b"x")).as_deref(),
            Some(&b"x"[..])
        );
        assert_eq!(
            opened(&new, &both.seal(SHOP, b"x")).as_deref(),
            Some(&b"x"[..])
        );
        assert!(opened(&new, &old.seal(SHOP, b"x")).is_none());
        assert!(opened(&old, &both.seal(SHOP, b"x")).is_none());
    }

    #[test]
    fn a_text_of_another_load_balancer_is_noise() {
        let keys = keys(&[NEW]);
        let other = Scope {
            of: Id::derive("default", Kind::Balancer, "www"),
            ..SHOP
        };
        assert!(keys.open(other, keys.seal(SHOP, b"x").as_bytes()).is_none());
    }

    #[test]
    fn a_text_with_any_character_changed_or_missing_does_not_open() {
        let keys = keys(&[NEW]);
        let text = keys.seal(SHOP, b"twenty bytes of text");
        for place in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            for byte in [b'A', b'_', b'=', b' ', 0, 0xff] {
                let own = std::mem::replace(&mut forged[place], byte);
                assert_eq!(keys.open(SHOP, &forged).is_some(), own == byte, "{place}");
                forged[place] = own;
            }
            assert!(opened(&keys, &text[..place]).is_none());
            assert!(opened(&keys, &text[place + 1..]).is_none());
        }
        assert!(opened(&keys, &format!("{text}A")).is_none());
        assert!(opened(&keys, &format!("{text}=")).is_none());
    }

    #[test]
    fn a_long_text_is_not_looked_at() {
        let keys = keys(&[NEW]);
        for len in [TEXT_LEN_MAX, TEXT_LEN_MAX + 1, 8192] {
            assert!(keys.open(SHOP, &vec![b'A'; len]).is_none());
        }
    }

    #[test]
    fn a_secret_that_can_be_guessed_is_refused() {
        let random = Keys::generate();
        let rows: [(&[&str], &str); 7] = [
            (&[], "no key is given"),
            (&[&random, "short"], "key 2 has 5 characters, fewer than 32"),
            (&[""], "key 1 has 0 characters, fewer than 32"),
            (
                &["0123456789abcdef0123456789abcde "],
                "key 1 has 31 characters, fewer than 32",
            ),
            (
                &["abcdefgabcdefgabcdefgabcdefgabcdefg"],
                "key 1 is made of 7 different characters, fewer than 8",
            ),
            (&[NEW, OLD, NEW], "key 3 is key 1 again"),
            (&[NEW; 17], "17 keys are more than 16"),
        ];
        for (secrets, expected) in rows {
            let fault = Keys::new(secrets).expect_err("a fault");
            assert_eq!(fault.to_string(), expected);
        }
        keys(&[
            &random,
            "0123456789abcdef0123456789abcdef",
            &format!(" {NEW}\n"),
        ]);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let keys = keys(&[OLD]);
        let shown = format!("{keys:?} {:?}", opened(&keys, &keys.seal(SHOP, b"claims")));
        assert_eq!(shown, format!("[\"{}\"] Some(6 bytes)", hex(&keys.0[0].id)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn noise_does_not_open(text in prop::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(keys(&[NEW]).open(SHOP, &text).is_none());
        }

        #[test]
        fn noise_in_the_right_alphabet_does_not_open(text in "[A-Za-z0-9_-]{0,400}") {
            prop_assert!(opened(&keys(&[NEW]), &text).is_none());
        }

        /// Version and key id are right, the rest is made up.
        #[test]
        fn noise_behind_a_true_head_does_not_open(noise in prop::collection::vec(any::<u8>(), 0..256)) {
            let keys = keys(&[NEW]);
            let forged = [&[VERSION], &keys.0[0].id[..], &noise].concat();
            prop_assert!(opened(&keys, &BASE64.encode(forged)).is_none());
        }
    }

    const GOLDEN: &str = "AVrGCLfhH3EkTNc0o5ho0lh6O-akgi8auqFOvu83L4IZX-pTnwG8";
    const SHOP: Scope = Scope {
        purpose: Purpose::Pin,
        of: Id::from_bytes([1; 16]),
    };

    fn keys(secrets: &[&str]) -> Keys {
        Keys::new(secrets).expect("good secrets")
    }

    fn opened(keys: &Keys, text: &str) -> Option<Claims> {
        keys.open(SHOP, text.as_bytes())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
