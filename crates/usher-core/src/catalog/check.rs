//! What is said of a draft that cannot be: which resource, which field, and why.
//!
//! All faults are found, not the first: somebody who mends a file wants to mend it once. Fields are
//! named in the words of this crate; who read the draft knows where each of them was written.

use crate::rules::{RuleError, RuleField};

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The resource, by its place in the draft.
    pub subject: Subject,
    /// The field of that resource.
    pub field: Field,
    /// What is wrong with it.
    pub error: CatalogError,
}

/// A resource of a draft, by its place in the draft's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `Draft::node`, and what belongs to no resource.
    Node,
    /// `Draft::zones`
    Zone(usize),
    /// `Draft::monitors`
    Monitor(usize),
    /// `Draft::monitor_groups`
    MonitorGroup(usize),
    /// `Draft::pools`
    Pool(usize),
    /// `Draft::pools[pool].endpoints[endpoint]`
    Endpoint {
        /// Place of the pool.
        pool: usize,
        /// Place of the endpoint in it.
        endpoint: usize,
    },
    /// `Draft::balancers`
    Balancer(usize),
    /// `Draft::rooms`
    Room(usize),
}

/// A field of a [`Subject`], in the words of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The name, which in a file is the key.
    Name,
    /// Free text.
    Description,
    /// Node: PoP code.
    Code,
    /// Node: region code.
    Region,
    /// Node: country code.
    Country,
    /// Node: latitude and longitude.
    Coordinates,
    /// `Draft::interval_min`.
    IntervalMin,
    /// The length of a list of the draft itself (zones, monitors, pools, ...).
    Count,
    /// Monitor: request method.
    Method,
    /// Monitor: request path.
    Path,
    /// Monitor, endpoint: port.
    Port,
    /// Monitor: one request header, by its place.
    Header(usize),
    /// Monitor: text expected in the body.
    ExpectedBody,
    /// Monitor: time between probes.
    Interval,
    /// Monitor: time for an attempt.
    Timeout,
    /// Monitor: extra attempts.
    Retries,
    /// Monitor: failures in a row.
    ConsecutiveDown,
    /// Monitor: passes in a row.
    ConsecutiveUp,
    /// Monitor group: the list of members.
    Members,
    /// Monitor group: one member, by its place.
    Member(usize),
    /// Pool: the list of endpoints.
    Endpoints,
    /// Pool: [`super::Pool::endpoints_min`].
    EndpointsMin,
    /// Pool: the monitor or monitor group.
    Monitoring,
    /// Pool, zone: one setting of [`super::EndpointTls`].
    Tls(TlsField),
    /// Endpoint: where it is.
    Address,
    /// Endpoint: weight.
    Weight,
    /// Endpoint: `Host` header.
    HostHeader,
    /// Load balancer: the zone.
    Zone,
    /// Load balancer: the list of pools.
    Pools,
    /// Load balancer: one pool of the list, by its place.
    Pool(usize),
    /// Load balancer: the fallback pool.
    Fallback,
    /// Load balancer: weight of pools that have none of their own.
    WeightDefault,
    /// Load balancer: one of [`super::Balancer::weights`], by its place.
    PoolWeight(usize),
    /// Pool: one setting of [`super::Shedding`].
    Shedding(SheddingField),
    /// Pool: [`super::Pool::slow_start`].
    SlowStart,
    /// Load balancer: the pools of one place, or one pool of them.
    Area {
        /// Which map.
        map: AreaMap,
        /// Place of the code in the map.
        place: usize,
        /// Place of the pool in the list of the code.
        pool: Option<usize>,
    },
    /// Load balancer: how a pool is chosen.
    Steering,
    /// Load balancer: [`super::Balancer::endpoint_header`].
    EndpointHeader,
    /// Load balancer: one setting of [`super::Affinity`].
    Affinity(AffinityField),
    /// Load balancer: the list of pool sets.
    PoolSets,
    /// Load balancer: something of a pool set.
    PoolSet {
        /// Its place.
        place: usize,
        /// Which part.
        part: PoolSetPart,
    },
    /// Load balancer: the list of rules.
    Rules,
    /// Load balancer: something of a rule.
    Rule {
        /// Its place.
        place: usize,
        /// Which part.
        part: RulePart,
    },
    /// Waiting room: a field that only rooms have.
    Room(RoomField),
}

/// A field of a [`super::Room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoomField {
    /// The list of routes.
    Routes,
    /// Host of a route, by its place.
    Host(usize),
    /// Path of a route, by its place.
    Path(usize),
    /// The routes after the first.
    AdditionalRoutes,
    /// End of the cookie's name.
    CookieSuffix,
    /// Marks of the cookie.
    CookieMarks,
    /// Seats at once.
    Seats,
    /// Admissions in a minute.
    PerMinute,
    /// How long a silent visitor keeps a seat.
    Session,
    /// The operator's own page.
    Page,
    /// The list of rules.
    Rules,
    /// Expression of a rule, by its place.
    Expression(usize),
    /// Description of a rule, by its place.
    RuleDescription(usize),
}

/// A field of [`super::Shedding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SheddingField {
    /// Of requests without a pin.
    Default,
    /// Of requests with one.
    Session,
}

/// A map of [`super::Areas`], or the list of such codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AreaMap {
    /// By node.
    Pops,
    /// By country.
    Countries,
    /// By region.
    Regions,
}

impl AreaMap {
    /// What its codes stand for.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            AreaMap::Pops => "node code",
            AreaMap::Countries => "country",
            AreaMap::Regions => "region",
        }
    }
}

/// A field of [`super::Affinity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityField {
    /// How long a pin holds.
    Ttl,
    /// `SameSite` of the cookie.
    SameSite,
    /// How long pins of a disabled endpoint hold.
    Drain,
    /// What becomes of a pinned request that cannot be sent on.
    Failover,
    /// The list of headers.
    Headers,
    /// One header, by its place.
    Header(usize),
}

/// A part of a [`super::PoolSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolSetPart {
    /// All of it.
    Whole,
    /// Its name.
    Name,
    /// What it matches.
    Match,
    /// A list of places, and one entry by its place.
    Places(AreaMap, usize),
    /// The list of pools.
    Pools,
    /// One pool, by its place.
    Pool(usize),
    /// The fallback pool.
    Fallback,
    /// The weight of pools that have none of their own.
    WeightDefault,
    /// One weight, by its place.
    Weight(usize),
    /// How a pool is chosen.
    Steering,
    /// Something of the fixed response.
    Response(RuleField),
}

/// A part of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulePart {
    /// Its condition.
    Condition,
    /// What a rule can be asked for by itself.
    Own(RuleField),
    /// One of `overrides.pools`, by its place.
    Pool(usize),
    /// The list `overrides.default_pools`, or one of it by its place.
    DefaultPool(Option<usize>),
    /// The pools of one place, or one pool of them.
    Area {
        /// Which map.
        map: AreaMap,
        /// Place of the code in the map.
        place: usize,
        /// Place of the pool in the list of the code.
        pool: Option<usize>,
    },
    /// The fallback pool.
    Fallback,
    /// One setting of affinity.
    Affinity(AffinityField),
}

/// A field of [`super::EndpointTls`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsField {
    /// File of authorities.
    Ca,
    /// File of the client certificate.
    ClientCert,
    /// File of its key.
    ClientKey,
    /// Name to ask for.
    Sni,
}

/// What is wrong with a value. Its `Display` names the thing, the value and the limit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CatalogError {
    /// A visitor is to be known by headers, and none is named.
    #[error(
        "session_affinity header needs session_affinity_attributes.headers: 1 to {} names",
        super::AFFINITY_HEADERS_MAX
    )]
    AffinityHeaders,
    /// A number is too small or too large. Durations are in seconds.
    #[error("{what} {found} is outside {min}..{max}")]
    OutOfRange {
        /// The thing.
        what: &'static str,
        /// Its value.
        found: f64,
        /// The least value that is allowed.
        min: f64,
        /// The greatest value that is allowed.
        max: f64,
    },
    /// A number is between two steps.
    #[error("{what} {found} is not a multiple of {step}")]
    Step {
        /// The thing.
        what: &'static str,
        /// Its value.
        found: f64,
        /// The step.
        step: f64,
    },
    /// A list is too short or too long.
    #[error("number of {what} {found} is outside {min}..{max}")]
    Count {
        /// What is counted, in the plural.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The fewest that are allowed.
        min: usize,
        /// The most that are allowed.
        max: usize,
    },
    /// A text is too long.
    #[error("{what} is {found} characters long; the most is {max}")]
    TooLong {
        /// The thing.
        what: &'static str,
        /// Its length in bytes.
        found: usize,
        /// The greatest length that is allowed.
        max: usize,
    },
    /// A text is empty that may not be.
    #[error("{what} is empty")]
    Empty {
        /// The thing.
        what: &'static str,
    },
    /// A text does not have the form that it must have.
    #[error("{what} {found:?} {rule}")]
    Syntax {
        /// The thing.
        what: &'static str,
        /// Its value.
        found: String,
        /// The form, to be read after the value: `does not start with "/"`.
        rule: &'static str,
    },
    /// Two things carry what only one may.
    #[error("{what} {found:?} is not unique")]
    NotUnique {
        /// The thing.
        what: &'static str,
        /// What both carry.
        found: String,
    },
    /// A reference to nothing.
    #[error("{what} {found:?} does not exist{}", nearest_text(.nearest.as_deref()))]
    Missing {
        /// The kind of thing.
        what: &'static str,
        /// How it was named.
        found: String,
        /// A name that does exist and is nearly the same.
        nearest: Option<String>,
    },
    /// All attempts of a probe do not fit between two probes.
    #[error("(retries {retries} + 1) x timeout {timeout} s is {}, which is not less than interval {interval} s", product(*.retries, *.timeout))]
    ProbeOverlap {
        /// Extra attempts.
        retries: u32,
        /// Seconds for each attempt.
        timeout: f64,
        /// Seconds between probes.
        interval: f64,
    },
    /// A monitor of this type needs a port of its own.
    #[error("a {kind} monitor needs a port")]
    PortRequired {
        /// The type.
        kind: &'static str,
    },
    /// A header that Usher sets itself.
    #[error("header {found:?} cannot be set")]
    HeaderFixed {
        /// The name as written.
        found: String,
    },
    /// A load balancer's name is not in its zone.
    #[error("load balancer {found:?} is not inside zone {zone:?}")]
    OutsideZone {
        /// The name.
        found: String,
        /// The zone.
        zone: String,
    },
    /// A route of a waiting room is not in its zone.
    #[error("host {found:?} is outside the zone {zone:?}")]
    RouteOutsideZone {
        /// The host.
        found: String,
        /// The zone.
        zone: String,
    },
    /// A page is too large.
    #[error("custom_page_html has {found} bytes, more than {max}")]
    PageTooLarge {
        /// Its length in bytes.
        found: usize,
        /// The greatest length that is allowed.
        max: usize,
    },
    /// An expression asks what nobody knows before a load balancer is found.
    #[error("expression reads {field}, which has no value in a waiting room")]
    NotKnownYet {
        /// The field.
        field: &'static str,
    },
    /// A member is to decide and to have no vote.
    #[error("monitor {found:?} cannot be both must_be_healthy and monitoring_only")]
    Contradiction {
        /// The monitor, as written.
        found: String,
    },
    /// Two things exclude each other.
    #[error("{what} and {other} exclude each other")]
    Excluded {
        /// One.
        what: &'static str,
        /// The other.
        other: &'static str,
    },
    /// A pool set is not what one must be. The API's own word comes first.
    #[error("{code}: {rule}")]
    PoolSet {
        /// The word.
        code: &'static str,
        /// What it breaks.
        rule: &'static str,
    },
    /// A value of a rule or fixed response.
    #[error(transparent)]
    Rule(RuleError),
    /// Certificate and key are set only together.
    #[error("{what} is set without {other}")]
    Incomplete {
        /// What is set.
        what: &'static str,
        /// What is not.
        other: &'static str,
    },
}

fn nearest_text(nearest: Option<&str>) -> String {
    nearest
        .map(|name| format!("; the nearest name is {name:?}"))
        .unwrap_or_default()
}

fn product(retries: u32, timeout: f64) -> String {
    format!("{} s", (f64::from(retries) + 1.0) * timeout)
}
