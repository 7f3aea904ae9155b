//! Visitors: where they come from, what they ask, and the pins that they hold.

use std::collections::BTreeMap;
use std::net::IpAddr;

use usher_core::affinity::{Pin, PinKey, Pins};
use usher_core::id::Id;
use usher_core::region::{CountryCode, Region};
use usher_core::request::{Location, Request, Scheme};
use usher_core::time::Wall;

use crate::rng::Rng;

/// Nodes that requests come to, so that pop maps have something to find.
pub(crate) const NODES: [&str; 3] = ["SIM", "AMS", "SJC"];
pub(crate) const COUNTRIES: [&str; 3] = ["NL", "US", "KR"];
pub(crate) const REGIONS: [Region; 3] = [Region::Weu, Region::Wnam, Region::Neas];
const PLACES: [(f64, f64); 3] = [(52.3, 4.8), (37.4, -121.9), (37.5, 127.0)];
/// Visitors of a world.
const VISITORS: usize = 12;

/// Somebody who comes again.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    pub(crate) client: IpAddr,
    headers: Vec<(&'static str, String)>,
    /// What its cookies say, by the load balancer that set them.
    pub(crate) cookies: BTreeMap<Id, Pin>,
}

/// One request of a visitor.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    pub(crate) node: &'static str,
    pub(crate) country: Option<CountryCode>,
    pub(crate) region: Option<Region>,
    pub(crate) coordinates: Option<(f64, f64)>,
    pub(crate) method: &'static str,
    pub(crate) client: IpAddr,
    pub(crate) time: Wall,
    headers: Vec<(&'static str, String)>,
}

/// Everybody, and the table of a front.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    pub(crate) visitors: Vec<Visitor>,
    pub(crate) table: BTreeMap<PinKey, Pin>,
}

impl Crowd {
    pub(crate) fn draw(rng: &mut Rng) -> Crowd {
        let visitor = |place: usize| Visitor {
            client: match rng.percent(30) {
                true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, rng.below(9) as u16]),
                false => IpAddr::from([198, 51, 100, rng.below(200) as u8]),
            },
            headers: match rng.percent(70) {
                true => vec![("X-Visitor", format!("v{place}"))],
                false => Vec::new(),
            },
            cookies: BTreeMap::new(),
        };
        Crowd {
            visitors: (0..VISITORS).map(visitor).collect(),
            table: BTreeMap::new(),
        }
    }
}

impl Visit {
    pub(crate) fn draw(rng: &mut Rng, visitor: &Visitor, time: Wall) -> Visit {
        Visit {
            node: rng.pick::<&str>(&NODES),
            country: (!rng.percent(20))
                .then(|| CountryCode::parse(rng.pick::<&str>(&COUNTRIES)).expect("a code")),
            region: (!rng.percent(20)).then(|| *rng.pick(&REGIONS)),
            coordinates: (!rng.percent(20)).then(|| *rng.pick(&PLACES)),
            method: if rng.percent(30) { "POST" } else { "GET" },
            client: visitor.client,
            time,
            headers: visitor.headers.clone(),
        }
    }

    pub(crate) fn request<'a>(&'a self, host: &'a str, draw: u64) -> Request<'a> {
        Request {
            host,
            method: self.method,
            uri: "/",
            version: "HTTP/1.1",
            headers: &self.headers,
            scheme: Scheme::Http,
            client: self.client,
            location: Location {
                node: self.node,
                region: self.region,
                country: self.country,
                coordinates: self.coordinates,
            },
            time: self.time,
            draw,
        }
    }

    pub(crate) fn has_header(&self) -> bool {
        !self.headers.is_empty()
    }
}

/// What one visitor brings, and the table.
pub(crate) struct Brought<'a> {
    pub(crate) cookies: &'a BTreeMap<Id, Pin>,
    pub(crate) table: &'a BTreeMap<PinKey, Pin>,
}

impl Pins for Brought<'_> {
    fn in_cookie(&self, balancer: Id) -> Option<Pin> {
        self.cookies.get(&balancer).copied()
    }

    fn under_key(&self, key: PinKey) -> Option<Pin> {
        self.table.get(&key).copied()
    }
}
