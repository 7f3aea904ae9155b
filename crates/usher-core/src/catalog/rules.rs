//! The rules themselves, resource by resource in the order of the draft.
//!
//! Source: load-balancing specification 3.1 to 3.5 and 18; clarification 1 for what is unique
//! inside a pool.

mod balancer;
mod room;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::check::{CatalogError, Fault, Field, SheddingField, Subject, TlsField};
use super::syntax;
use super::{
    Address, Draft, Endpoint, EndpointTls, HttpCheck, Monitor, MonitorGroup, MonitorKind,
    Monitoring, Pool, Reference, Zone,
};
use crate::region::Region;
use crate::steering::CANDIDATES_MAX;

/// Zones, monitors and monitor groups of a catalog, each.
const RESOURCES_MAX: usize = 10_000;
/// Pools and load balancers of a catalog, each.
const POOLS_MAX: usize = 100_000;
/// Monitors of a group.
const MEMBERS_MAX: usize = 64;
/// Headers of a monitor, and values of one header.
const HEADERS_MAX: usize = 64;
const NAME_LEN_MAX: usize = 255;
const DESCRIPTION_LEN_MAX: usize = 4096;
const METHOD_LEN_MAX: usize = 32;
const PATH_LEN_MAX: usize = 2048;
const HEADER_LEN_MAX: usize = 4096;
/// What a probe reads of a body; a longer text cannot be found in it.
const EXPECTED_BODY_LEN_MAX: usize = 10 * 1024;
const INTERVAL_LEAST: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
const RETRIES_MAX: u32 = 5;
const SLOW_START_MIN: Duration = Duration::from_secs(1);
const SLOW_START_MAX: Duration = Duration::from_secs(3600);
/// Suggestions cost a walk over all names, so only the first faults get one.
const SUGGESTIONS_MAX: usize = 100;

/// Every fault of `draft`, in its order.
pub(super) fn faults(draft: &Draft) -> Vec<Fault> {
    let known = Known::new(draft);
    let mut all = Vec::new();
    lists(
        draft,
        &mut At {
            subject: Subject::Node,
            faults: &mut all,
        },
    );
    let mut each = |subject, check: &mut dyn FnMut(&mut At<'_>)| {
        check(&mut At {
            subject,
            faults: &mut all,
        })
    };
    for (ix, zone) in draft.zones.iter().enumerate() {
        each(Subject::Zone(ix), &mut |at| check_zone(zone, at));
    }
    for (ix, monitor) in draft.monitors.iter().enumerate() {
        each(Subject::Monitor(ix), &mut |at| {
            check_monitor(monitor, draft.interval_min, at)
        });
    }
    for (ix, group) in draft.monitor_groups.iter().enumerate() {
        each(Subject::MonitorGroup(ix), &mut |at| {
            check_group(group, &known, at)
        });
    }
    for (ix, pool) in draft.pools.iter().enumerate() {
        each(Subject::Pool(ix), &mut |at| check_pool(pool, &known, at));
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for (place, endpoint) in pool.endpoints.iter().enumerate() {
            let subject = Subject::Endpoint {
                pool: ix,
                endpoint: place,
            };
            each(subject, &mut |at| {
                check_endpoint(endpoint, at);
                at.unique(
                    Field::Name,
                    "endpoint name",
                    &endpoint.name,
                    names.insert(&endpoint.name),
                );
                let unique = places.insert((canonical(&endpoint.address), endpoint.port));
                at.unique(
                    Field::Address,
                    "endpoint address",
                    &place_text(endpoint),
                    unique,
                );
            });
        }
    }
    for (ix, balancer) in draft.balancers.iter().enumerate() {
        each(Subject::Balancer(ix), &mut |at| {
            balancer::check(balancer, &known, at)
        });
    }
    for (ix, room) in draft.rooms.iter().enumerate() {
        each(Subject::Room(ix), &mut |at| {
            room::check(room, &known.zones, draft.room_profile, at)
        });
    }
    unique_names(draft, &mut all);
    room::unique(draft, &mut all);
    all.sort_by_key(|fault| fault.subject);
    all
}

/// Where faults are being found.
struct At<'a> {
    subject: Subject,
    faults: &'a mut Vec<Fault>,
}

impl At<'_> {
    fn fault(&mut self, field: Field, error: CatalogError) {
        self.faults.push(Fault {
            subject: self.subject,
            field,
            error,
        });
    }

    fn range(&mut self, field: Field, what: &'static str, found: f64, min: f64, max: f64) -> bool {
        let inside = (min..=max).contains(&found);
        if !inside {
            self.fault(
                field,
                CatalogError::OutOfRange {
                    what,
                    found,
                    min,
                    max,
                },
            );
        }
        inside
    }

    fn count(&mut self, field: Field, what: &'static str, found: usize, min: usize, max: usize) {
        if !(min..=max).contains(&found) {
            self.fault(
                field,
                CatalogError::Count {
                    what,
                    found,
                    min,
                    max,
                },
            );
        }
    }

    fn len(&mut self, field: Field, what: &'static str, text: &str, max: usize) -> bool {
        let inside = text.len() <= max;
        if !inside {
            self.fault(
                field,
                CatalogError::TooLong {
                    what,
                    found: text.len(),
                    max,
                },
            );
        }
        inside
    }

    fn syntax(
        &mut self,
        field: Field,
        what: &'static str,
        found: &str,
        rule: &'static str,
        kept: bool,
    ) {
        if found.is_empty() {
            self.fault(field, CatalogError::Empty { what });
        } else if !kept {
            self.fault(
                field,
                CatalogError::Syntax {
                    what,
                    found: found.to_owned(),
                    rule,
                },
            );
        }
    }

    fn unique(&mut self, field: Field, what: &'static str, found: &str, unique: bool) {
        if !unique {
            self.fault(
                field,
                CatalogError::NotUnique {
                    what,
                    found: found.to_owned(),
                },
            );
        }
    }

    fn weight(&mut self, field: Field, what: &'static str, found: f64) {
        if self.range(field, what, found, 0.0, 1.0) {
            self.step(field, what, found);
        }
    }

    /// Weights and percentages have two decimals.
    fn step(&mut self, field: Field, what: &'static str, found: f64) {
        let hundredths = found * 100.0;
        if (hundredths - hundredths.round()).abs() > 1e-9 {
            let step = 0.01;
            self.fault(field, CatalogError::Step { what, found, step });
        }
    }

    fn exists(
        &mut self,
        field: Field,
        what: &'static str,
        reference: &Reference,
        known: &Names<'_>,
    ) {
        if !known.ids.contains(&reference.id) {
            self.missing(field, what, &reference.text, &known.names);
        }
    }

    fn missing(&mut self, field: Field, what: &'static str, found: &str, names: &[&str]) {
        let suggest = self.faults.len() < SUGGESTIONS_MAX;
        let nearest = if suggest {
            syntax::nearest(found, names.iter().copied())
        } else {
            None
        };
        self.fault(
            field,
            CatalogError::Missing {
                what,
                found: found.to_owned(),
                nearest,
            },
        );
    }

    fn free_text(&mut self, description: &str) {
        self.len(
            Field::Description,
            "description",
            description,
            DESCRIPTION_LEN_MAX,
        );
    }

    fn tls(&mut self, tls: &EndpointTls) {
        let given = |file: &Option<String>| file.is_some();
        if given(&tls.client_cert) && !given(&tls.client_key) {
            let error = CatalogError::Incomplete {
                what: "client_cert",
                other: "client_key",
            };
            self.fault(Field::Tls(TlsField::ClientCert), error);
        }
        if given(&tls.client_key) && !given(&tls.client_cert) {
            let error = CatalogError::Incomplete {
                what: "client_key",
                other: "client_cert",
            };
            self.fault(Field::Tls(TlsField::ClientKey), error);
        }
        let files = [
            (TlsField::Ca, "ca", &tls.ca),
            (TlsField::ClientCert, "client_cert", &tls.client_cert),
            (TlsField::ClientKey, "client_key", &tls.client_key),
        ];
        for (field, what, file) in files {
            if file.as_ref().is_some_and(String::is_empty) {
                self.fault(Field::Tls(field), CatalogError::Empty { what });
            }
        }
        if let Some(sni) = &tls.sni {
            self.syntax(
                Field::Tls(TlsField::Sni),
                "sni",
                sni,
                "is not a hostname",
                syntax::is_hostname(sni),
            );
        }
    }
}

/// The ids and names of one kind of resource.
struct Names<'a> {
    ids: BTreeSet<crate::id::Id>,
    names: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn new(all: impl Iterator<Item = (crate::id::Id, &'a String)>) -> Names<'a> {
        let (ids, names) = all.map(|(id, name)| (id, name.as_str())).unzip();
        Names { ids, names }
    }
}

struct Known<'a> {
    zones: Vec<&'a str>,
    monitors: Names<'a>,
    groups: Names<'a>,
    pools: Names<'a>,
}

impl<'a> Known<'a> {
    fn new(draft: &'a Draft) -> Known<'a> {
        Known {
            zones: draft.zones.iter().map(|zone| zone.name.as_str()).collect(),
            monitors: Names::new(
                draft
                    .monitors
                    .iter()
                    .map(|monitor| (monitor.id, &monitor.name)),
            ),
            groups: Names::new(
                draft
                    .monitor_groups
                    .iter()
                    .map(|group| (group.id, &group.name)),
            ),
            pools: Names::new(draft.pools.iter().map(|pool| (pool.id, &pool.name))),
        }
    }
}

fn lists(draft: &Draft, at: &mut At<'_>) {
    let lists = [
        ("zones", draft.zones.len(), RESOURCES_MAX),
        ("monitors", draft.monitors.len(), RESOURCES_MAX),
        ("monitor groups", draft.monitor_groups.len(), RESOURCES_MAX),
        ("pools", draft.pools.len(), POOLS_MAX),
        ("load balancers", draft.balancers.len(), POOLS_MAX),
        ("waiting rooms", draft.rooms.len(), RESOURCES_MAX),
    ];
    for (what, found, max) in lists {
        at.count(Field::Count, what, found, 0, max);
    }
    let (least, max) = (INTERVAL_LEAST.as_secs_f64(), INTERVAL_MAX.as_secs_f64());
    at.range(
        Field::IntervalMin,
        "monitor_interval_min",
        draft.interval_min.as_secs_f64(),
        least,
        max,
    );
    let node = &draft.node;
    at.syntax(Field::Name, "node name", &node.name, "", true);
    at.len(Field::Name, "node name", &node.name, NAME_LEN_MAX);
    let code = |code: &str, len: usize| {
        code.len() == len && code.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    if let Some(country) = &node.country {
        at.syntax(
            Field::Country,
            "country",
            country,
            "is not a code of two letters",
            code(country, 2),
        );
    }
    if let Some(region) = &node.region {
        let known = Region::parse(region).is_some();
        at.syntax(
            Field::Region,
            "region",
            region,
            "is none of the 13 region codes (WNAM, ENAM, WEU, ...)",
            known,
        );
    }
    coordinates(node.coordinates, at);
}

fn coordinates(coordinates: Option<(f64, f64)>, at: &mut At<'_>) {
    if let Some((latitude, longitude)) = coordinates {
        at.range(Field::Coordinates, "latitude", latitude, -90.0, 90.0);
        at.range(Field::Coordinates, "longitude", longitude, -180.0, 180.0);
    }
}

fn check_zone(zone: &Zone, at: &mut At<'_>) {
    let kept = syntax::is_lower_hostname(&zone.name);
    at.syntax(
        Field::Name,
        "zone",
        &zone.name,
        "is not a domain name",
        kept,
    );
    at.tls(&zone.tls);
}

fn check_monitor(monitor: &Monitor, interval_min: Duration, at: &mut At<'_>) {
    at.syntax(Field::Name, "monitor name", &monitor.name, "", true);
    at.len(Field::Name, "monitor name", &monitor.name, NAME_LEN_MAX);
    at.free_text(&monitor.description);
    let seconds = |duration: Duration| duration.as_secs_f64();
    let (interval, timeout) = (seconds(monitor.interval), seconds(monitor.timeout));
    // Were the floor itself out of range, that is the fault, and not every interval below it.
    let floor = seconds(interval_min.clamp(INTERVAL_LEAST, INTERVAL_MAX));
    let settled = [
        at.range(
            Field::Interval,
            "interval",
            interval,
            floor,
            seconds(INTERVAL_MAX),
        ),
        at.range(
            Field::Timeout,
            "timeout",
            timeout,
            seconds(TIMEOUT_MIN),
            seconds(TIMEOUT_MAX),
        ),
        at.range(
            Field::Retries,
            "retries",
            f64::from(monitor.retries),
            0.0,
            f64::from(RETRIES_MAX),
        ),
    ];
    if settled == [true; 3] && monitor.timeout * (monitor.retries + 1) >= monitor.interval {
        let error = CatalogError::ProbeOverlap {
            retries: monitor.retries,
            timeout,
            interval,
        };
        at.fault(Field::Timeout, error);
    }
    if let Some(port) = monitor.port {
        at.range(
            Field::Port,
            "port",
            f64::from(port),
            1.0,
            f64::from(u16::MAX),
        );
    }
    match &monitor.kind {
        MonitorKind::Http(check) | MonitorKind::Https { check, .. } => check_http(check, at),
        MonitorKind::Tcp if monitor.port.is_none() => {
            at.fault(
                Field::Port,
                CatalogError::PortRequired {
                    kind: monitor.kind.name(),
                },
            );
        }
        MonitorKind::Tcp => {}
    }
}

fn check_http(check: &HttpCheck, at: &mut At<'_>) {
    let method = syntax::is_token(&check.method) && check.method != "CONNECT";
    at.syntax(
        Field::Method,
        "method",
        &check.method,
        "is not a method that can be probed with",
        method,
    );
    at.len(Field::Method, "method", &check.method, METHOD_LEN_MAX);
    let rule = "does not start with \"/\" or holds blanks, \"#\", control or non-ASCII characters";
    at.syntax(
        Field::Path,
        "path",
        &check.path,
        rule,
        syntax::is_path(&check.path),
    );
    at.len(Field::Path, "path", &check.path, PATH_LEN_MAX);
    at.len(
        Field::ExpectedBody,
        "expected_body",
        &check.expected_body,
        EXPECTED_BODY_LEN_MAX,
    );
    if check.headers.len() > HEADERS_MAX {
        at.count(
            Field::Header(HEADERS_MAX),
            "headers",
            check.headers.len(),
            0,
            HEADERS_MAX,
        );
    }
    let mut names = BTreeSet::new();
    for (place, (name, values)) in check.headers.iter().enumerate() {
        let field = Field::Header(place);
        at.syntax(
            field,
            "header name",
            name,
            "is not the name of a header",
            syntax::is_token(name),
        );
        let lower = name.to_ascii_lowercase();
        if ["user-agent", "content-length", "transfer-encoding"].contains(&lower.as_str()) {
            at.fault(
                field,
                CatalogError::HeaderFixed {
                    found: name.clone(),
                },
            );
        }
        let is_host = lower == "host";
        at.unique(field, "header", name, names.insert(lower));
        at.count(
            field,
            "header values",
            values.len(),
            1,
            if is_host { 1 } else { HEADERS_MAX },
        );
        for value in values {
            at.len(field, "header value", value, HEADER_LEN_MAX);
            if is_host {
                let kept = syntax::is_authority(value);
                at.syntax(field, "Host header", value, "is not a hostname", kept);
            } else if !syntax::is_field_value(value) {
                let rule = "holds control characters, or blanks at an end";
                at.syntax(field, "header value", value, rule, false);
            }
        }
    }
}

fn check_group(group: &MonitorGroup, known: &Known<'_>, at: &mut At<'_>) {
    at.syntax(Field::Name, "monitor group name", &group.name, "", true);
    at.len(Field::Name, "monitor group name", &group.name, NAME_LEN_MAX);
    at.free_text(&group.description);
    at.count(
        Field::Members,
        "members",
        group.members.len(),
        1,
        MEMBERS_MAX,
    );
    let mut seen = BTreeSet::new();
    for (place, member) in group.members.iter().enumerate() {
        let (field, found) = (Field::Member(place), &member.monitor.text);
        at.exists(field, "monitor", &member.monitor, &known.monitors);
        at.unique(field, "monitor", found, seen.insert(member.monitor.id));
        if member.must_be_healthy && member.monitoring_only {
            at.fault(
                field,
                CatalogError::Contradiction {
                    found: found.clone(),
                },
            );
        }
    }
}

fn check_pool(pool: &Pool, known: &Known<'_>, at: &mut At<'_>) {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let rule = "holds other characters than letters, digits, \"_\" and \"-\"";
    at.syntax(
        Field::Name,
        "pool name",
        &pool.name,
        rule,
        pool.name.bytes().all(inside),
    );
    at.len(Field::Name, "pool name", &pool.name, NAME_LEN_MAX);
    at.free_text(&pool.description);
    at.count(
        Field::Endpoints,
        "endpoints",
        pool.endpoints.len(),
        1,
        CANDIDATES_MAX,
    );
    match &pool.monitoring {
        Monitoring::None => {}
        Monitoring::Monitor(monitor) => {
            at.exists(Field::Monitoring, "monitor", monitor, &known.monitors)
        }
        Monitoring::Group(group) => {
            at.exists(Field::Monitoring, "monitor group", group, &known.groups)
        }
    }
    at.tls(&pool.tls);
    coordinates(pool.coordinates, at);
    let shedding = &pool.shedding;
    for (field, what, percent) in [
        (
            SheddingField::Default,
            "default_percent",
            shedding.default_percent,
        ),
        (
            SheddingField::Session,
            "session_percent",
            shedding.session_percent,
        ),
    ] {
        let field = Field::Shedding(field);
        if at.range(field, what, percent, 0.0, 100.0) {
            at.step(field, what, percent);
        }
    }
    if let Some(slow_start) = pool.slow_start {
        let (min, max) = (SLOW_START_MIN.as_secs_f64(), SLOW_START_MAX.as_secs_f64());
        at.range(
            Field::SlowStart,
            "slow_start",
            slow_start.as_secs_f64(),
            min,
            max,
        );
    }
}

fn check_endpoint(endpoint: &Endpoint, at: &mut At<'_>) {
    let kept = !endpoint.name.chars().any(char::is_control);
    at.syntax(
        Field::Name,
        "endpoint name",
        &endpoint.name,
        "holds control characters",
        kept,
    );
    at.len(Field::Name, "endpoint name", &endpoint.name, NAME_LEN_MAX);
    match &endpoint.address {
        Address::Ip(ip) => {
            let one = !ip.is_unspecified() && !ip.is_multicast() && *ip != IpAddr::from([255; 4]);
            at.syntax(
                Field::Address,
                "address",
                &ip.to_string(),
                "is not the address of one host",
                one,
            );
        }
        Address::Host(host) => {
            let kept = syntax::is_lower_hostname(host);
            at.syntax(
                Field::Address,
                "address",
                host,
                "is neither an IP address nor a hostname",
                kept,
            );
        }
    }
    if let Some(port) = endpoint.port {
        at.range(
            Field::Port,
            "port",
            f64::from(port),
            1.0,
            f64::from(u16::MAX),
        );
    }
    at.weight(Field::Weight, "weight", endpoint.weight);
    if let Some(host) = &endpoint.host_header {
        let kept = syntax::is_authority(host);
        at.syntax(
            Field::HostHeader,
            "Host header",
            host,
            "is not a hostname",
            kept,
        );
    }
}

/// Names stand for resources, so each may be used once; ids follow from them.
fn unique_names(draft: &Draft, faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    let mut one = |subject, what, name: &str, id: Option<crate::id::Id>| {
        let name_unique = seen.insert((what, name.to_owned()));
        let id_unique = id.is_none_or(|id| seen.insert((what, format!("id {id}"))));
        At { subject, faults }.unique(Field::Name, what, name, name_unique && id_unique);
    };
    for (ix, zone) in draft.zones.iter().enumerate() {
        one(Subject::Zone(ix), "zone", &zone.name, Some(zone.id));
    }
    for (ix, monitor) in draft.monitors.iter().enumerate() {
        one(
            Subject::Monitor(ix),
            "monitor name",
            &monitor.name,
            Some(monitor.id),
        );
    }
    for (ix, group) in draft.monitor_groups.iter().enumerate() {
        one(
            Subject::MonitorGroup(ix),
            "monitor group name",
            &group.name,
            Some(group.id),
        );
    }
    for (ix, pool) in draft.pools.iter().enumerate() {
        one(Subject::Pool(ix), "pool name", &pool.name, Some(pool.id));
    }
    for (ix, balancer) in draft.balancers.iter().enumerate() {
        one(
            Subject::Balancer(ix),
            "load balancer",
            &balancer.host.to_string(),
            Some(balancer.id),
        );
    }
}

fn is_within(host: &str, zone: &str) -> bool {
    host.strip_suffix(zone)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn canonical(address: &Address) -> Address {
    match address {
        Address::Ip(ip) => Address::Ip(ip.to_canonical()),
        Address::Host(host) => Address::Host(host.clone()),
    }
}

fn place_text(endpoint: &Endpoint) -> String {
    match (&endpoint.address, endpoint.port) {
        (address, None) => address.to_string(),
        (Address::Ip(IpAddr::V6(ip)), Some(port)) => format!("[{ip}]:{port}"),
        (address, Some(port)) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests;
