//! From a fault of the core back to the JSON that caused it.
//!
//! The core numbers what it checks and names fields in its own words; this remembers where each
//! number stood and knows which key each field is read from.

use usher_core::catalog::{
    self, CatalogError, Draft, Field, MonitorKind, Monitoring, Subject, TlsField,
};

use super::reader::{Cursor, Fault, Mode, Report};

/// Where every resource of a draft stands in the JSON that it was read from, list by list in the
/// order of the draft.
#[derive(Debug, Default)]
pub struct Places {
    /// Of `Draft::zones`, without those at its end that are only implied by a load balancer.
    pub zones: Vec<Place>,
    /// Of `Draft::monitors`.
    pub monitors: Vec<Place>,
    /// Of `Draft::monitor_groups`.
    pub monitor_groups: Vec<Place>,
    /// Of `Draft::pools`.
    pub pools: Vec<Place>,
    /// Of `Draft::balancers`.
    pub balancers: Vec<Place>,
}

/// Where one resource stands.
#[derive(Debug, Clone)]
pub struct Place {
    pointer: String,
    label: String,
    mode: Mode,
}

impl Place {
    /// Where `cursor` points.
    #[must_use]
    pub fn of(cursor: &Cursor<'_>) -> Place {
        Place {
            pointer: cursor.pointer().to_owned(),
            label: cursor.place().to_owned(),
            mode: cursor.mode(),
        }
    }
}

impl Places {
    /// Tells `report` a fault of the core, unless it only follows from another one.
    pub fn tell(&self, report: &Report, draft: &Draft, fault: &catalog::Fault) {
        if matches!(fault.subject, Subject::Zone(index) if index >= self.zones.len()) {
            // The load balancer that implies the zone has the same fault, and a line to show.
            return;
        }
        let mut found = self.finding(draft, fault.subject, fault.field, fault.error.to_string());
        let mut of = Vec::new();
        if let CatalogError::Missing { .. } = fault.error {
            // A weight for a pool that does not exist: the name is wrong, and it is a key.
            found.at_key |= matches!(fault.field, Field::PoolWeight(_));
        }
        if let CatalogError::ProbeOverlap { .. } = fault.error {
            let monitor = found
                .pointer
                .rsplit_once('/')
                .map_or("", |(monitor, _)| monitor);
            of.extend(["interval", "timeout", "retries"].map(|key| format!("{monitor}/{key}")));
        }
        report.consequence(found, &of);
    }

    /// The warning of the core as a note on the JSON.
    #[must_use]
    pub fn note(&self, draft: &Draft, warning: &catalog::Warning) -> Fault {
        let note = self.finding(draft, warning.subject, warning.field, warning.text.clone());
        // A whole sentence, which names the resource.
        Fault {
            place: String::new(),
            ..note
        }
    }

    /// `message`, about a field of a resource of `draft`.
    #[must_use]
    pub fn finding(&self, draft: &Draft, subject: Subject, field: Field, message: String) -> Fault {
        let nowhere = || Place {
            pointer: String::new(),
            label: String::new(),
            mode: Mode::File,
        };
        let at = |list: &[Place], index: usize| list.get(index).cloned().unwrap_or_else(nowhere);
        let place = match subject {
            Subject::Node => nowhere(),
            Subject::Zone(index) => at(&self.zones, index),
            Subject::Monitor(index) => at(&self.monitors, index),
            Subject::MonitorGroup(index) => at(&self.monitor_groups, index),
            Subject::Pool(index) => at(&self.pools, index),
            Subject::Balancer(index) => at(&self.balancers, index),
            Subject::Endpoint { pool, endpoint } => {
                let pool_place = at(&self.pools, pool);
                let name = draft
                    .pools
                    .get(pool)
                    .and_then(|pool| pool.endpoints.get(endpoint));
                let name = name
                    .map(|endpoint| endpoint.name.clone())
                    .filter(|name| !name.is_empty());
                let name = name.unwrap_or_else(|| (endpoint + 1).to_string());
                Place {
                    pointer: format!("{}/origins/{endpoint}", pool_place.pointer),
                    label: format!("{}endpoint {name}: ", pool_place.label),
                    mode: pool_place.mode,
                }
            }
        };
        let key = key(draft, subject, field, place.mode);
        let at_key = key.is_empty();
        Fault {
            pointer: format!("{}{key}", place.pointer),
            at_key,
            place: place.label,
            message,
        }
    }
}

/// Pointer of the field from its resource; empty for what is not a field of its own.
fn key(draft: &Draft, subject: Subject, field: Field, mode: Mode) -> String {
    let fixed = match field {
        Field::Name => match (subject, mode) {
            (Subject::Endpoint { .. }, _) | (_, Mode::Api) => "/name",
            (Subject::Node, Mode::File) => "/node/name",
            // In a file the key is the name.
            (_, Mode::File) => "",
        },
        Field::Zone => "",
        Field::Count => return String::new(),
        Field::Description => "/description",
        Field::Code => "/node/code",
        Field::Region => "/node/region",
        Field::Country => "/node/country",
        Field::Coordinates => "/node/latitude",
        Field::IntervalMin => "/limits/monitor_interval_min",
        Field::Method => "/method",
        Field::Path => "/path",
        Field::Port => "/port",
        Field::ExpectedBody => "/expected_body",
        Field::Interval => "/interval",
        Field::Timeout => "/timeout",
        Field::Retries => "/retries",
        Field::ConsecutiveDown => "/consecutive_down",
        Field::ConsecutiveUp => "/consecutive_up",
        Field::Members => "/members",
        Field::Endpoints => "/origins",
        Field::EndpointsMin => "/minimum_origins",
        Field::Address => "/address",
        Field::Weight => "/weight",
        Field::HostHeader => "/header/Host/0",
        Field::Pools => "/default_pools",
        Field::Fallback => "/fallback_pool",
        Field::WeightDefault => "/random_steering/default_weight",
        Field::Header(index) => {
            let name = header_name(draft, subject, index).unwrap_or_default();
            return format!("/header/{}", token(&name));
        }
        Field::Member(index) => return format!("/members/{index}/monitor_id"),
        Field::Pool(index) => return format!("/default_pools/{index}"),
        Field::PoolWeight(index) => {
            let Subject::Balancer(balancer) = subject else {
                return String::new();
            };
            let weights = draft
                .balancers
                .get(balancer)
                .map(|balancer| &balancer.weights);
            let name = weights
                .and_then(|weights| weights.get(index))
                .map(|(pool, _)| &pool.text);
            return format!(
                "/random_steering/pool_weights/{}",
                token(name.map_or("", |name| name))
            );
        }
        Field::Monitoring => {
            let Subject::Pool(pool) = subject else {
                return String::new();
            };
            match draft.pools.get(pool).map(|pool| &pool.monitoring) {
                Some(Monitoring::Group(_)) => "/monitor_group",
                Some(Monitoring::Monitor(_) | Monitoring::None) | None => "/monitor",
            }
        }
        Field::Tls(field) => {
            let is_zone = matches!(subject, Subject::Zone(_));
            let object = if is_zone { "upstream" } else { "usher" };
            let key = match field {
                TlsField::Ca => "ca",
                TlsField::ClientCert => "client_cert",
                TlsField::ClientKey => "client_key",
                TlsField::Sni => "sni",
            };
            return format!("/{object}/{key}");
        }
    };
    fixed.to_owned()
}

fn header_name(draft: &Draft, subject: Subject, index: usize) -> Option<String> {
    let Subject::Monitor(monitor) = subject else {
        return None;
    };
    let check = match &draft.monitors.get(monitor)?.kind {
        MonitorKind::Http(check) | MonitorKind::Https { check, .. } => check,
        MonitorKind::Tcp => return None,
    };
    check.headers.get(index).map(|(name, _)| name.clone())
}

/// `text` as one token of a JSON pointer.
pub(super) fn token(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1")
}
