//! The cookie of a room: found among a visitor's cookies, opened, and given anew.
//!
//! The seal is the process' own ([`Sealer`]): rooms and pins are sealed with the same keys by the
//! same code. What is sealed is bound to the room and to the cookie's name, so the cookie of one room
//! is noise to another, and one that was planted under another name too.

pub mod claims;

use std::fmt::Write as _;
use std::hash::Hasher as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use memchr::memmem;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use usher_core::admission::Claims;
use usher_core::id::Id;
use usher_core::request::Headers;

/// The cookie's name; with a suffix, an underscore and the suffix follow.
pub const NAME: &str = "__cfwaitingroom";
/// Header of programs that keep no cookies: the same sealed value, both ways. Who sends it, even
/// empty, is answered with it.
pub const TOKEN: &str = "usher-waiting-room-token";
/// Most characters of a sealed value that is looked at.
pub const TEXT_LEN_MAX: usize = 200;
/// Cookies of this name that are looked at in one request.
const VALUES_MAX: usize = 4;

/// Seals and opens what visitors carry for us. `of` is what a text is bound to.
pub trait Sealer: Send + Sync {
    /// A text of letters, digits, `-` and `_`, at most [`TEXT_LEN_MAX`] for [`claims::LEN`] bytes.
    fn seal(&self, of: Id, claims: &[u8]) -> String;

    /// Whether `text` was sealed for `of`, and what it holds: copied to `claims`, and how long it is.
    fn open(&self, of: Id, text: &[u8], claims: &mut [u8; claims::LEN]) -> Option<usize>;
}

/// What the operator says of the cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// The suffix of the name; empty for none.
    pub suffix: String,
    /// The path, as the room's: `/` when it has more routes, or when its path is the beginning of
    /// others (a browser sends a cookie of `/shop` to `/shop/a` and not to `/shopping`).
    pub path: String,
    /// A domain, when the routes are on several hosts.
    pub domain: Option<String>,
    /// Only over TLS.
    pub secure: bool,
    /// Where it comes along.
    pub same_site: SameSite,
}

/// Where a cookie comes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SameSite {
    /// With navigations.
    Lax,
    /// Everywhere, in frames too: then each embedding site has its own.
    None,
    /// Only on the site itself.
    Strict,
}

/// The cookie of one room.
pub struct Jar {
    name: String,
    path: String,
    /// What follows the value and the age.
    tail: String,
    of: Id,
    sealer: Arc<dyn Sealer>,
}

impl std::fmt::Debug for Jar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jar")
            .field("name", &self.name)
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

/// What a request's cookies say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Of the first cookie that opens.
    pub claims: Option<Claims>,
    /// Cookies of this name that do not open: forged, damaged, of another room or key.
    pub invalid: u8,
}

impl Jar {
    /// The cookie of `room`.
    #[must_use]
    pub fn new(room: Id, attributes: &Attributes, sealer: Arc<dyn Sealer>) -> Jar {
        let name = match attributes.suffix.as_str() {
            "" => NAME.to_owned(),
            suffix => format!("{NAME}_{suffix}"),
        };
        let path = path_attribute(&attributes.path);
        let mut tail = format!("; Path={path}");
        if let Some(domain) = &attributes.domain {
            tail.push_str("; Domain=");
            tail.push_str(domain);
        }
        tail.push_str("; HttpOnly; SameSite=");
        tail.push_str(match attributes.same_site {
            SameSite::Lax => "Lax",
            SameSite::None => "None",
            SameSite::Strict => "Strict",
        });
        if attributes.secure {
            tail.push_str("; Secure");
        }
        // A browser takes this only together with Secure.
        if attributes.secure && attributes.same_site == SameSite::None {
            tail.push_str("; Partitioned");
        }
        Jar {
            of: bound_to(room, &name),
            name,
            path: path.to_owned(),
            tail,
            sealer,
        }
    }

    /// The cookie's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path below which browsers send it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the cookies of a request say. Looks at four of them at most.
    #[must_use]
    pub fn open(&self, headers: &dyn Headers) -> Found {
        let mut found = Found::default();
        let mut left = VALUES_MAX;
        headers.visit(&mut |name, line| {
            if name.eq_ignore_ascii_case(b"cookie") {
                self.open_line(line, &mut left, &mut found);
            } else if name.eq_ignore_ascii_case(TOKEN.as_bytes()) && !line.is_empty() {
                left -= 1;
                self.look_at(line, &mut found);
            } else {
                return ControlFlow::Continue(());
            }
            if found.claims.is_some() || left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        found
    }

    fn open_line(&self, line: &[u8], left: &mut usize, found: &mut Found) {
        // A quick look first: most cookies are the site's own.
        if memmem::find(line, self.name.as_bytes()).is_none() {
            return;
        }
        for cookie in line.split(|&byte| byte == b';') {
            let Some(value) = self.value(cookie) else {
                continue;
            };
            if *left == 0 {
                return;
            }
            *left -= 1;
            self.look_at(value, found);
            if found.claims.is_some() {
                return;
            }
        }
    }

    fn look_at(&self, value: &[u8], found: &mut Found) {
        found.claims = self.open_value(value);
        found.invalid += u8::from(found.claims.is_none());
    }

    /// What a sealed value says, if it was sealed for this room.
    #[must_use]
    pub fn open_value(&self, value: &[u8]) -> Option<Claims> {
        if value.len() > TEXT_LEN_MAX {
            return None;
        }
        let mut bytes = [0; claims::LEN];
        let len = self.sealer.open(self.of, value, &mut bytes)?;
        claims::decode(bytes.get(..len)?)
    }

    /// The value of a `Set-Cookie` that gives `claims` to a visitor, who keeps it for `age_secs`.
    #[must_use]
    pub fn set(&self, claims: &Claims, age_secs: u64) -> String {
        let sealed = self.sealer.seal(self.of, &claims::encode(claims));
        self.line(&sealed, age_secs)
    }

    /// The value of a `Set-Cookie` that takes the cookie away.
    #[must_use]
    pub fn clear(&self) -> String {
        self.line("", 0)
    }

    fn line(&self, value: &str, age_secs: u64) -> String {
        let len = self.name.len() + value.len() + self.tail.len() + 32;
        let mut text = String::with_capacity(len);
        let (name, tail) = (&self.name, &self.tail);
        let written = write!(text, "{name}={value}; Max-Age={age_secs}{tail}");
        written.expect("a String takes any text");
        text
    }

    /// The value of `cookie`, a name and a value, if it is ours.
    fn value<'a>(&self, cookie: &'a [u8]) -> Option<&'a [u8]> {
        let rest = cookie
            .trim_ascii_start()
            .strip_prefix(self.name.as_bytes())?;
        let value = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
        let unquoted = value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""));
        Some(unquoted.unwrap_or(value))
    }
}

/// The sealed value in a `Set-Cookie` of a jar's, as [`TOKEN`] carries it.
#[must_use]
pub fn token_in(set_cookie: &str) -> &str {
    let pair = set_cookie.split(';').next().unwrap_or_default();
    pair.split_once('=').map_or("", |(_, value)| value)
}

/// Room and name in one.
fn bound_to(room: Id, name: &str) -> Id {
    // A fixed key: this is a name, not a secret.
    let mut hasher = SipHasher24::new_with_keys(0x7573_6865_722d_726f, 1);
    hasher.write(&room.to_bytes());
    hasher.write(name.as_bytes());
    Id::from_bytes(hasher.finish128().as_bytes())
}

/// A path that would end the attribute, or that no header may carry, gives way to all paths: the room
/// in the seal decides whose cookie it is.
fn path_attribute(path: &str) -> &str {
    let plain = path
        .bytes()
        .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b';');
    if plain { path } else { "/" }
}
