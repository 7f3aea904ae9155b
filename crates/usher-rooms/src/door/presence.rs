//! Waiting visitors that one worker of a front has seen, until their rooms hear of it.
//!
//! A poll of a waiting visitor changes nothing but when it was last heard of, so a worker tells it for
//! many at once. It owns this alone: nothing is shared on the path of a request.

use usher_core::admission::Visitor;
use usher_core::id::Id;

use crate::owner::Post;

/// A worker calls [`Presence::flush`] at least this often, ms.
pub const FLUSH_MS: u64 = 1000;
/// So many of one room are told at once.
const VISITORS_MAX: usize = 512;

/// Who was seen, room by room.
#[derive(Debug, Default)]
pub struct Presence(Vec<Seen>);

#[derive(Debug)]
struct Seen {
    room: Id,
    post: Post,
    visitors: Vec<Visitor>,
}

impl Presence {
    /// Nobody was seen.
    #[must_use]
    pub fn new() -> Presence {
        Presence::default()
    }

    /// `visitor` was seen.
    pub(super) fn note(&mut self, room: Id, post: &Post, visitor: Visitor) {
        let place = self.0.iter().position(|seen| seen.room == room);
        let place = place.unwrap_or_else(|| {
            self.0.push(Seen {
                room,
                post: post.clone(),
                visitors: Vec::new(),
            });
            self.0.len() - 1
        });
        let seen = &mut self.0[place];
        seen.visitors.push(visitor);
        if seen.visitors.len() >= VISITORS_MAX {
            seen.tell();
        }
    }

    /// Tells the rooms.
    pub fn flush(&mut self) {
        for seen in &mut self.0 {
            seen.tell();
        }
        // A room of another configuration has another post.
        self.0.clear();
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Seen {
    fn tell(&mut self) {
        let visitors = std::mem::take(&mut self.visitors);
        if !visitors.is_empty() {
            // An owner that is behind does without: presence lasts for two polls.
            let _ = self.post.check_in(visitors);
        }
    }
}
