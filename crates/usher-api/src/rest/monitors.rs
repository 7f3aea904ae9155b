//! Monitors.

use usher_store::Kind;

use super::resource::{self, Resource};
use super::{Route, previews, references};

pub(crate) struct Monitors;

impl Resource for Monitors {
    const KIND: Kind = Kind::Monitor;
    const NOUNS: (&'static str, &'static str) = ("monitor", "monitors");
}

pub(crate) fn routes() -> Vec<Route> {
    let mut all = Vec::new();
    for (base, prefix) in super::pools::BASES {
        let path = format!("{base}/monitors");
        all.extend(resource::routes::<Monitors>(&path, prefix));
        let item = format!("{path}/{{monitor_id}}");
        all.push(references::route::<Monitors>(&item, prefix));
        all.push(previews::of_monitor(&item, prefix));
    }
    all
}
