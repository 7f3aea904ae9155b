//! Memory for what is large.
//!
//! One message may be as long as a client takes, and 16 clients of each of many sessions could each
//! be amid one. Small ones are bounded by what is under way; those beyond [`SMALL_MAX`] share room
//! that the session has, and all sessions of a process have. Who finds none is told at once: to wait
//! for others who wait would be for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{MESSAGE_MAX, OUTBOX_MAX};

/// What takes no room.
pub(super) const SMALL_MAX: usize = OUTBOX_MAX;
/// Bytes of all sessions of a process.
pub const LARGE_MAX: usize = 1 << 30;
/// Bytes of one session.
const SESSION_MAX: usize = 2 * MESSAGE_MAX;

#[derive(Debug)]
struct Space {
    used: AtomicUsize,
    max: usize,
}

impl Space {
    fn new(max: usize) -> Arc<Space> {
        Arc::new(Space {
            used: AtomicUsize::new(0),
            max,
        })
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|&all| all <= self.max);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.used.fetch_update(set, fetch, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Room for the large messages of a process. Clones are the same room.
#[derive(Debug, Clone)]
pub struct Room(Arc<Space>);

impl Default for Room {
    /// [`LARGE_MAX`] bytes.
    fn default() -> Room {
        Room::new(LARGE_MAX)
    }
}

impl Room {
    /// This many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Room {
        Room(Space::new(bytes))
    }

    /// The part of it that one session may have.
    pub(super) fn of_session(&self) -> Share {
        Share([Arc::clone(&self.0), Space::new(SESSION_MAX)])
    }
}

/// A session's part of the room.
#[derive(Debug, Clone)]
pub(super) struct Share([Arc<Space>; 2]);

impl Share {
    /// Room for one message, of which nothing is there yet.
    pub(super) fn hold(&self) -> Hold {
        Hold {
            share: self.clone(),
            held: 0,
        }
    }
}

/// Room that a message has.
#[derive(Debug)]
pub(super) struct Hold {
    share: Share,
    held: usize,
}

impl Hold {
    /// Whether there is room for the message to be `bytes` long.
    pub(super) fn reach(&mut self, bytes: usize) -> bool {
        if bytes <= SMALL_MAX.max(self.held) {
            return true;
        }
        let more = bytes - self.held;
        let [process, session] = &self.share.0;
        if !session.take(more) {
            return false;
        }
        if !process.take(more) {
            session.give_back(more);
            return false;
        }
        self.held = bytes;
        true
    }

    /// The message is done with.
    pub(super) fn let_go(&mut self) {
        let held = std::mem::take(&mut self.held);
        for space in &self.share.0 {
            space.give_back(held);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_finds_room_or_is_told_that_there_is_none() {
        let room = Room::new(100 << 20);
        let (one, other) = (room.of_session(), room.of_session());
        let (mut first, mut second) = (one.hold(), other.hold());
        assert!(first.reach(SMALL_MAX) && second.reach(SMALL_MAX));
        assert!(first.reach(60 << 20) && first.reach(70 << 20));
        assert!(!second.reach(31 << 20));
        assert!(second.reach(30 << 20));
        first.let_go();
        assert!(second.reach(100 << 20));
        assert!(!first.reach(SMALL_MAX + 1));
        drop(second);
        assert!(first.reach(100 << 20));
        let alone = Room::new(usize::MAX).of_session();
        assert!(!alone.hold().reach(SESSION_MAX + 1));
    }
}
