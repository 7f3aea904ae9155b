//! The laws of rooms' cookies.

#[path = "../../crates/usher-rooms/src/cookie/mod.rs"]
#[allow(dead_code)]
pub(crate) mod cookie;
#[path = "../../crates/usher-rooms/tests/cookie/laws.rs"]
mod laws;

/// `line` is what a client sends as cookies.
pub fn room_cookie(line: &[u8]) {
    laws::of_cookies(line);
}
