//! The wire: the only place that knows Cloudflare's words.
//!
//! The configuration file and the API speak the same resources with the same fields, so one set of
//! readers serves both. A reader takes JSON, tells a [`reader::Report`] everything that is wrong
//! with it, each fault with a JSON pointer, and yields the core's own type; where a value could not
//! be read it goes on with the default, so that one call finds every fault. What only the core can
//! judge comes back through [`places::Places`]. The API sends the pointers; the file turns them
//! into line and column.

pub mod affinity;
pub mod balancers;
pub mod browsers;
pub mod explain;
pub mod monitor_groups;
pub mod monitors;
pub mod places;
pub mod pool_sets;
pub mod pools;
pub mod reader;
pub mod rooms;
pub mod rules;
pub mod state;
pub mod zones;

use usher_core::catalog::Reference;
use usher_core::id::Kind;

/// Stands where a reference could not be read, so that lists keep their places. The fault about
/// the value has been told, and [`reader::Report::consequence`] drops what follows from it.
fn nowhere() -> Reference {
    Reference {
        id: reader::declared(Kind::Account, ""),
        text: String::new(),
    }
}

/// Looks at a list of texts that is only shown again.
fn texts(object: &reader::Object<'_>, key: &'static str) {
    for item in object.get(key).iter().flat_map(reader::Cursor::list) {
        let _ = item.text();
    }
}

/// The shape of every object of the resources, for the reference.
pub const SHAPES: [&reader::Shape; 36] = [
    &zones::ZONE,
    &zones::UPSTREAM,
    &monitors::MONITOR,
    &monitor_groups::MONITOR_GROUP,
    &monitor_groups::MEMBER,
    &pools::POOL,
    &pools::ORIGIN_STEERING,
    &pools::LOAD_SHEDDING,
    &pools::POOL_USHER,
    &pools::NOTIFICATION_FILTER,
    &pools::NOTIFICATION_PART,
    &pools::ORIGIN,
    &pools::ORIGIN_HEADER,
    &balancers::LOAD_BALANCER,
    &balancers::RANDOM_STEERING,
    &balancers::ADAPTIVE_ROUTING,
    &balancers::LOCATION_STRATEGY,
    &balancers::BALANCER_USHER,
    &affinity::AFFINITY_ATTRIBUTES,
    &rules::RULE,
    &rules::OVERRIDES,
    &rules::RULE_USHER,
    &rules::TRANSFORM,
    &rules::HEADER_EDIT,
    &rules::PATH_REWRITE,
    &pool_sets::POOL_SET,
    &pool_sets::POOL_SET_MATCH,
    &pool_sets::TOPOLOGY,
    &pool_sets::POOL_SET_OVERRIDES,
    &pool_sets::FIXED_RESPONSE,
    &rooms::WAITING_ROOM,
    &rooms::ADDITIONAL_ROUTE,
    &rooms::ROOM_COOKIE,
    &rooms::ROOM_USHER,
    &rooms::ROOM_RULE,
    &rooms::ROOM_SETTINGS,
];
