//! What a waiting room would say of a request that nobody sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_api::wire::explain::RoomSays;
use usher_core::catalog::Catalog;
use usher_core::request::Request;
use usher_core::rules::facts::Facts;
use usher_edge::http::rooms::Rooms;
use usher_edge::seal::Keys;
use usher_rooms::clock::Clock;
use usher_rooms::owner::Post;
use usher_rooms::route::Ambiguous;

use super::keeper::Placed;
use super::make::{Seals, of_front, wanted};

/// The rooms of `catalog` as they are when nobody is in any of them: for those who ask without a
/// running node. `keys` open the cookies of rooms that outlive a process.
#[must_use]
pub fn presumed(catalog: &Catalog, keys: Option<Keys>) -> Rooms {
    let clock = Clock::start(0);
    let placed = wanted(catalog).into_iter().map(|wanted| {
        let placed = Placed {
            name: wanted.name,
            post: Post::presumed(wanted.settings, clock.now()),
            clock,
        };
        (wanted.id, placed)
    });
    let standing: BTreeMap<_, _> = placed.collect();
    of_front(catalog, &standing, &Seals::new().with(keys.map(Arc::new)))
}

/// What the room that owns `request` would say; `None` where none does.
///
/// # Errors
/// By how its path is read, it is one room's or another's.
pub fn ask(rooms: &Rooms, request: &Request<'_>) -> Result<Option<RoomSays>, Ambiguous> {
    let Some(room) = rooms.owner_of(request.host, request.uri)? else {
        return Ok(None);
    };
    let facts = Facts::of("", request, &request.location, request.time);
    Ok(Some(RoomSays {
        name: room.name.clone(),
        status: room.status,
        foretold: room.door.foretell(request, &facts),
    }))
}
