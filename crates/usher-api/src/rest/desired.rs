//! What is wanted: what the file declares, and what the store keeps.
//!
//! The two never mix. What is declared is the file's, and the API only shows it; everything else is
//! the store's. Here they are laid beside each other for those who ask about all of it: a check of
//! one change, which reads what it touches and no more, and the node, which needs the whole.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};
use usher_core::catalog::{
    Balancer, Bypass, Catalog, Draft, Endpoint, HostPattern, Monitor, MonitorGroup, Pool, Room,
    Ssl, Zone,
};
use usher_core::id::{Id, Kind as IdKind};
use usher_core::time::Wall;
use usher_store::{Kind, Resource, Revision, Scope, State, Store};

use super::document::{self, Field};
use super::{fields, names, rooms as room_calls};
use crate::wire::places::{Place, Places};
use crate::wire::reader::{ACCOUNT, Cursor, Mode, Report, declared};
use crate::wire::{balancers, monitor_groups, monitors, pools, rooms};

/// The id of the only account there is so far.
#[must_use]
pub fn account() -> Id {
    declared(IdKind::Account, ACCOUNT)
}

/// The fields of a kind, as answers show them.
pub(crate) const fn fields_of(kind: Kind) -> &'static [Field] {
    match kind {
        Kind::Monitor => fields::MONITOR,
        Kind::MonitorGroup => fields::MONITOR_GROUP,
        Kind::Pool => fields::POOL,
        Kind::Balancer => fields::BALANCER,
        Kind::Zone => fields::ZONE,
        Kind::ZoneSettings => fields::ZONE_SETTINGS,
        Kind::Token => fields::TOKEN,
        Kind::Room => fields::ROOM,
        Kind::RoomRules => fields::ROOM_RULES,
        Kind::Account | Kind::NotificationPolicy | Kind::WebhookDestination => &[],
    }
}

/// What the API shows and changes.
#[derive(Debug, Clone)]
pub struct Desired {
    /// What the file declares.
    pub declared: Arc<Declared>,
    /// Where everything else is kept. `None`: nothing can be written.
    pub store: Option<Arc<dyn Store>>,
}

impl Desired {
    /// Only what a file declares.
    #[must_use]
    pub fn fixed(declared: Arc<Declared>) -> Desired {
        Desired {
            declared,
            store: None,
        }
    }

    /// What is kept right now.
    pub(crate) fn state(&self) -> Arc<State> {
        self.store
            .as_ref()
            .map_or_else(Arc::default, |store| store.state())
    }
}

/// What a file declares.
#[derive(Debug, Clone)]
pub struct Declared {
    draft: Draft,
    shown: BTreeMap<Kind, Vec<Arc<Shown>>>,
    index: HashMap<(Kind, Id), Arc<Shown>>,
    file: String,
}

/// A resource, from wherever it comes, as the API shows it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) kind: Kind,
    pub(crate) id: Id,
    pub(crate) scope: Scope,
    pub(crate) name: String,
    pub(crate) document: String,
    /// When it was created and changed last; nobody knows it of what a file declares.
    pub(crate) times: Option<(usher_store::Stamp, usher_store::Stamp)>,
}

impl Shown {
    pub(crate) fn of(resource: &Resource) -> Shown {
        Shown {
            kind: resource.kind,
            id: resource.id,
            scope: resource.scope,
            name: resource.name.clone(),
            document: resource.document.clone(),
            times: Some((resource.created_on, resource.modified_on)),
        }
    }

    pub(crate) fn value(&self) -> Map<String, Value> {
        match serde_json::from_str(&self.document) {
            Ok(Value::Object(map)) => map,
            // What this process has accepted is an object.
            Ok(_) | Err(_) => Map::new(),
        }
    }
}

/// Lists of the file, and what they hold.
const SECTIONS: [(&str, Kind, IdKind); 5] = [
    ("monitors", Kind::Monitor, IdKind::Monitor),
    ("monitor_groups", Kind::MonitorGroup, IdKind::MonitorGroup),
    ("pools", Kind::Pool, IdKind::Pool),
    ("load_balancers", Kind::Balancer, IdKind::Balancer),
    ("waiting_rooms", Kind::Room, IdKind::Room),
];

impl Declared {
    /// Of a file that passed every check: `draft` is what was read from `root`, its JSON. Messages
    /// call it `file`.
    #[must_use]
    pub fn new(draft: Draft, root: &Value, file: &str) -> Declared {
        let mut all: BTreeMap<Kind, Vec<Arc<Shown>>> = BTreeMap::new();
        for zone in &draft.zones {
            let mut add = |kind, document: Value| {
                let shown = Shown {
                    kind,
                    id: zone.id,
                    scope: Scope::Account(account()),
                    name: zone.name.clone(),
                    document: document.to_string(),
                    times: None,
                };
                all.entry(kind).or_default().push(Arc::new(shown));
            };
            add(Kind::Zone, serde_json::json!({"name": zone.name}));
            let settings = serde_json::json!({
                "ssl": ssl_word(zone.ssl), "always_use_https": zone.always_use_https,
            });
            add(Kind::ZoneSettings, settings);
        }
        for (section, kind, id_kind) in SECTIONS {
            let resources = root.get(section).and_then(Value::as_object);
            for (key, value) in resources.into_iter().flatten() {
                let rules = room_calls::declared_rules(kind, key, value);
                let mut value = Value::from(whole(kind, key, value));
                names::visit(kind, &mut value, &mut |kind, text| {
                    *text = declared(id_kind_of(kind), text).to_string();
                });
                let id = declared(id_kind, key);
                let scope = match kind {
                    Kind::Balancer => zone_of(&draft, id),
                    Kind::Room => zone_of_room(&draft, id),
                    _ => Scope::Account(account()),
                };
                let shown = Shown {
                    kind,
                    id,
                    scope,
                    name: shown_name(kind, key),
                    document: value.to_string(),
                    times: None,
                };
                all.entry(kind).or_default().push(Arc::new(shown));
                if let Some(rules) = rules {
                    let shown = Shown {
                        kind: Kind::RoomRules,
                        id,
                        scope,
                        name: String::new(),
                        document: rules.to_string(),
                        times: None,
                    };
                    all.entry(Kind::RoomRules)
                        .or_default()
                        .push(Arc::new(shown));
                }
            }
        }
        let index = all.values().flatten();
        let index = index
            .map(|shown| ((shown.kind, shown.id), Arc::clone(shown)))
            .collect();
        Declared {
            draft,
            shown: all,
            index,
            file: file.to_owned(),
        }
    }

    /// The resource of this kind with this id.
    pub(crate) fn find(&self, kind: Kind, id: Id) -> Option<&Arc<Shown>> {
        self.index.get(&(kind, id))
    }

    /// What messages call the file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The draft of the file without its resources.
    pub(crate) fn frame(&self) -> Draft {
        Draft {
            room_profile: self.draft.room_profile,
            interval_min: self.draft.interval_min,
            hash_key: self.draft.hash_key,
            ..Draft::new(self.draft.node.clone())
        }
    }
}

fn whole(kind: Kind, key: &str, value: &Value) -> Map<String, Value> {
    let mut map = value.as_object().cloned().unwrap_or_default();
    if matches!(kind, Kind::Pool | Kind::Balancer | Kind::Room) {
        map.insert("name".to_owned(), key.into());
    }
    // A file may leave out what the API wants.
    map.entry("description").or_insert_with(|| "".into());
    let mut map = document::canonical(&map, fields_of(kind));
    if kind == Kind::Room {
        room_calls::settle(&mut map);
    }
    map
}

/// What people find it by. A load balancer's is its host, which has no case.
fn shown_name(kind: Kind, key: &str) -> String {
    match kind {
        Kind::Balancer => key.to_ascii_lowercase(),
        _ => key.to_owned(),
    }
}

fn zone_of(draft: &Draft, balancer: Id) -> Scope {
    let found = draft.balancers.iter().find(|found| found.id == balancer);
    let zone = found.map_or("", |balancer| balancer.zone.as_str());
    Scope::Zone(declared(IdKind::Zone, zone))
}

/// A room of every host stands in no zone.
fn zone_of_room(draft: &Draft, room: Id) -> Scope {
    let found = draft.rooms.iter().find(|found| found.id == room);
    match found.map_or("", |room| room.zone.as_str()) {
        "" => Scope::Account(account()),
        zone => Scope::Zone(declared(IdKind::Zone, zone)),
    }
}

/// The kind in the words of the core, which makes ids of keys.
fn id_kind_of(kind: Kind) -> IdKind {
    match kind {
        Kind::Monitor => IdKind::Monitor,
        Kind::MonitorGroup => IdKind::MonitorGroup,
        Kind::Balancer => IdKind::Balancer,
        Kind::Zone | Kind::ZoneSettings => IdKind::Zone,
        Kind::Pool => IdKind::Pool,
        Kind::Room | Kind::RoomRules => IdKind::Room,
        Kind::Account | Kind::NotificationPolicy | Kind::WebhookDestination | Kind::Token => {
            IdKind::Account
        }
    }
}

pub(crate) const fn ssl_word(ssl: Ssl) -> &'static str {
    match ssl {
        Ssl::Flexible => "flexible",
        Ssl::Full => "full",
        Ssl::Strict => "strict",
    }
}

/// All of what is wanted, at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) declared: &'a Declared,
    pub(crate) state: &'a State,
}

impl Whole<'_> {
    /// The resource of this kind with this id.
    pub(crate) fn find(&self, kind: Kind, id: Id) -> Option<Arc<Shown>> {
        let declared = self.declared.find(kind, id).cloned();
        declared.or_else(|| {
            let kept = self.state.find(kind, id)?;
            Some(Arc::new(Shown::of(kept)))
        })
    }

    /// Every resource of a kind: what is declared, then what is kept, oldest first.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = Arc<Shown>> {
        let declared = self.declared.shown.get(&kind).into_iter().flatten();
        let kept = self.state.all(kind);
        // A zone may be declared after it was created.
        let kept = kept.filter(move |kept| self.declared.find(kind, kept.id).is_none());
        declared
            .cloned()
            .chain(kept.map(|kept| Arc::new(Shown::of(kept))))
    }

    /// Whether another resource of that kind is called so, among those of accounts or those of zones.
    pub(crate) fn is_taken(&self, kind: Kind, name: &str, but: Id, of_account: bool) -> bool {
        let of_kind = |scope: Scope| matches!(scope, Scope::Account(_)) == of_account;
        let declared = self.declared.shown.get(&kind).into_iter().flatten();
        let mut declared = declared.filter(|shown| shown.id != but && of_kind(shown.scope));
        let kept = self.state.all(kind);
        let mut kept = kept.filter(|kept| kept.id != but && of_kind(kept.scope));
        declared.any(|shown| shown.name == name) || kept.any(|kept| kept.name == name)
    }

    /// Those of `kind` whose documents name this resource.
    pub(crate) fn referrers(&self, kind: Kind, target: (Kind, Id)) -> Vec<Arc<Shown>> {
        let id = target.1.to_string();
        // Most documents do not even hold the digits.
        let all = self.all(kind).filter(|shown| shown.document.contains(&id));
        all.filter(|shown| names::named(kind, &shown.value().into()).contains(&target))
            .collect()
    }

    /// The zone of this id.
    pub(crate) fn zone(&self, id: Id) -> Option<Zone> {
        let own = self.declared.draft.zones.iter().find(|zone| zone.id == id);
        own.cloned().or_else(|| {
            let kept = self.state.find(Kind::Zone, id)?;
            let settings = self.state.find(Kind::ZoneSettings, id);
            Some(kept_zone(kept, settings.map(|kept| &**kept)))
        })
    }

    /// Adds a resource that is there, and what it names in turn.
    fn add(&self, draft: &mut Draft, (kind, id): (Kind, Id)) {
        let Some(shown) = self.find(kind, id) else {
            return;
        };
        if is_in(draft, kind, id) {
            return;
        }
        let document = Value::from(shown.value());
        if let Some(parsed) = self.own_or_kept(kind, id) {
            parsed.push(draft);
        }
        for target in names::named(kind, &document) {
            self.add(draft, target);
        }
    }

    /// A resource that is there, in the words of the core.
    pub(crate) fn own_or_kept(&self, kind: Kind, id: Id) -> Option<Parsed> {
        self.own(kind, id).or_else(|| {
            let shown = self.find(kind, id)?;
            let zone = match shown.scope {
                Scope::Zone(zone) => self.zone(zone).map(|zone| zone.name),
                Scope::Account(_) | Scope::Installation => None,
            };
            parse(&shown, &shown.value().into(), &zone.unwrap_or_default())
        })
    }

    /// As the file's own reader read it: paths in it start elsewhere than those of the API.
    fn own(&self, kind: Kind, id: Id) -> Option<Parsed> {
        let draft = &self.declared.draft;
        match kind {
            Kind::Monitor => {
                let found = draft.monitors.iter().find(|found| found.id == id);
                found.cloned().map(Parsed::Monitor)
            }
            Kind::MonitorGroup => {
                let found = draft.monitor_groups.iter().find(|found| found.id == id);
                found.cloned().map(Parsed::Group)
            }
            Kind::Pool => {
                let found = draft.pools.iter().find(|found| found.id == id);
                found.cloned().map(Parsed::Pool)
            }
            Kind::Room => {
                let found = draft.rooms.iter().find(|found| found.id == id);
                found.cloned().map(Parsed::Room)
            }
            _ => None,
        }
    }

    /// Reads `document` as a resource of `kind` that shall be there, and checks it with all that it
    /// names. What is wrong or odd goes to `report`. `zone` is the one a load balancer stands in.
    pub(crate) fn check(
        &self,
        report: &Report,
        (kind, id): (Kind, Id),
        document: &Value,
        zone: Option<&Zone>,
    ) -> Option<Parsed> {
        let cursor = Cursor::root(report, document);
        let zone_name = zone.map_or("", |zone| zone.name.as_str());
        let mut draft = self.declared.frame();
        let parsed = match (kind, zone) {
            (Kind::Balancer, None) => {
                let balancer = balancers::read_private(&cursor, id);
                draft.zones.push(stand_in());
                Parsed::Balancer(as_if_of_zone(balancer))
            }
            _ => read(kind, &cursor, id, zone_name)?,
        };
        draft.zones.extend(zone.cloned());
        let mut places = Places::default();
        let place = Place::of(&cursor);
        match kind {
            Kind::Monitor => places.monitors.push(place),
            Kind::MonitorGroup => places.monitor_groups.push(place),
            Kind::Pool => places.pools.push(place),
            Kind::Balancer => places.balancers.push(place),
            Kind::Room => places.rooms.push(place),
            _ => {}
        }
        parsed.clone().push(&mut draft);
        for target in names::named(kind, document) {
            self.add(&mut draft, target);
        }
        if let Some(name) = parsed.unique_name()
            && self.is_taken(kind, name, id, zone.is_none())
        {
            let name_cursor = format!("{} {name:?} is not unique", kind_name(kind));
            report.fault(crate::wire::reader::Fault {
                pointer: "/name".to_owned(),
                at_key: false,
                inside: 0,
                place: String::new(),
                message: name_cursor,
            });
        }
        if let Parsed::Room(room) = &parsed {
            room_calls::clashes(*self, report, room, zone);
        }
        match Catalog::check(draft.clone()) {
            Ok(catalog) => {
                let own = |warning: &&usher_core::catalog::Warning| is_first(kind, warning.subject);
                for warning in catalog.warnings().iter().filter(own) {
                    report.note(places.note(&draft, warning));
                }
            }
            Err(faults) => {
                for fault in faults.iter().filter(|fault| is_first(kind, fault.subject)) {
                    places.tell(report, &draft, fault);
                }
            }
        }
        Some(parsed)
    }
}

/// The zone in which a load balancer of an account is checked: it has none, and the core knows no
/// other kind.
const STAND_IN: &str = "account.invalid";

fn stand_in() -> Zone {
    Zone {
        id: declared(IdKind::Zone, STAND_IN),
        name: STAND_IN.to_owned(),
        ssl: Ssl::Flexible,
        always_use_https: false,
        tls: Default::default(),
    }
}

fn as_if_of_zone(mut balancer: Balancer) -> Balancer {
    balancer.zone = STAND_IN.to_owned();
    balancer.host = HostPattern::Exact(format!("balancer.{STAND_IN}"));
    balancer
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Pool => "pool name",
        other => other.name(),
    }
}

/// Whether a finding of the core is about the resource that was added first.
fn is_first(kind: Kind, subject: usher_core::catalog::Subject) -> bool {
    use usher_core::catalog::Subject;
    match subject {
        Subject::Monitor(0) => kind == Kind::Monitor,
        Subject::MonitorGroup(0) => kind == Kind::MonitorGroup,
        Subject::Pool(0) | Subject::Endpoint { pool: 0, .. } => kind == Kind::Pool,
        Subject::Balancer(0) => kind == Kind::Balancer,
        Subject::Room(0) => kind == Kind::Room,
        _ => false,
    }
}

fn is_in(draft: &Draft, kind: Kind, id: Id) -> bool {
    match kind {
        Kind::Monitor => draft.monitors.iter().any(|found| found.id == id),
        Kind::MonitorGroup => draft.monitor_groups.iter().any(|found| found.id == id),
        Kind::Pool => draft.pools.iter().any(|found| found.id == id),
        Kind::Balancer => draft.balancers.iter().any(|found| found.id == id),
        Kind::Room => draft.rooms.iter().any(|found| found.id == id),
        _ => false,
    }
}

/// A resource in the words of the core.
#[derive(Debug, Clone)]
pub(crate) enum Parsed {
    Monitor(Monitor),
    Group(MonitorGroup),
    Pool(Pool),
    Balancer(Balancer),
    Room(Room),
    /// Of the room with this id.
    RoomRules(Id, Vec<Bypass>),
}

impl Parsed {
    fn push(self, draft: &mut Draft) {
        match self {
            Parsed::Monitor(monitor) => draft.monitors.push(monitor),
            Parsed::Group(group) => draft.monitor_groups.push(group),
            Parsed::Pool(pool) => draft.pools.push(pool),
            Parsed::Balancer(balancer) => draft.balancers.push(balancer),
            Parsed::Room(room) => draft.rooms.push(room),
            Parsed::RoomRules(room, bypass) => {
                let room = draft.rooms.iter_mut().find(|found| found.id == room);
                if let Some(room) = room {
                    room.bypass = bypass;
                }
            }
        }
    }

    /// What it is called, where no other may be called so.
    fn unique_name(&self) -> Option<&str> {
        let name = match self {
            Parsed::Pool(pool) => &pool.name,
            Parsed::Balancer(balancer) => &balancer.name,
            // Rooms of two zones may share a name.
            Parsed::Monitor(_) | Parsed::Group(_) | Parsed::Room(_) | Parsed::RoomRules(..) => {
                return None;
            }
        };
        Some(name.as_str()).filter(|name| !name.is_empty())
    }

    /// What it is kept under.
    pub(crate) fn name(&self) -> &str {
        match self {
            Parsed::Pool(pool) => &pool.name,
            Parsed::Balancer(balancer) => &balancer.name,
            Parsed::Monitor(monitor) => &monitor.description,
            Parsed::Group(group) => &group.description,
            Parsed::Room(room) => &room.name,
            Parsed::RoomRules(..) => "",
        }
    }
}

fn read(kind: Kind, cursor: &Cursor<'_>, id: Id, zone: &str) -> Option<Parsed> {
    // Nobody gives a monitor a name in the API; messages need one.
    let name = id.to_string();
    Some(match kind {
        Kind::Monitor => Parsed::Monitor(monitors::read(cursor, id, &name)),
        Kind::MonitorGroup => Parsed::Group(monitor_groups::read(cursor, id, &name)),
        Kind::Pool => {
            let mut pool = pools::read(cursor, id, None);
            turned_off(&mut pool.endpoints, cursor.value());
            Parsed::Pool(pool)
        }
        Kind::Balancer => {
            let mut balancer = balancers::read(cursor, id, None);
            zone.clone_into(&mut balancer.zone);
            Parsed::Balancer(balancer)
        }
        Kind::Room => {
            let mut room = rooms::read(cursor, id, None);
            zone.clone_into(&mut room.zone);
            Parsed::Room(room)
        }
        Kind::RoomRules => Parsed::RoomRules(id, room_calls::bypass(cursor)),
        Kind::Account
        | Kind::Zone
        | Kind::ZoneSettings
        | Kind::NotificationPolicy
        | Kind::WebhookDestination
        | Kind::Token => return None,
    })
}

/// When endpoints were turned off is kept in their document, and no client can set it.
fn turned_off(endpoints: &mut [Endpoint], document: &Value) {
    let origins = document.get("origins").and_then(Value::as_array);
    let origins = origins.into_iter().flatten();
    for (endpoint, origin) in endpoints.iter_mut().zip(origins) {
        let at = origin.get("disabled_at").and_then(Value::as_str);
        let at = at.and_then(usher_store::Stamp::parse);
        endpoint.disabled_at = at
            .filter(|_| !endpoint.enabled)
            .map(|at| Wall::from_millis(at.as_micros() / 1000));
    }
}

/// A document that was accepted once.
fn parse(shown: &Shown, document: &Value, zone: &str) -> Option<Parsed> {
    let report = Report::new(Mode::Api);
    let cursor = Cursor::root(&report, document);
    read(shown.kind, &cursor, shown.id, zone)
}

fn kept_zone(kept: &Resource, settings: Option<&Resource>) -> Zone {
    let settings = settings.map(|kept| Shown::of(kept).value());
    let setting = |key: &str| settings.as_ref().and_then(|map| map.get(key).cloned());
    Zone {
        id: kept.id,
        name: kept.name.clone(),
        ssl: match setting("ssl").as_ref().and_then(Value::as_str) {
            Some("full") => Ssl::Full,
            Some("strict") => Ssl::Strict,
            _ => Ssl::Flexible,
        },
        always_use_https: setting("always_use_https") == Some(Value::Bool(true)),
        tls: Default::default(),
    }
}

/// Turns all of what is wanted into a catalog, again and again, reading again only what changed.
#[derive(Debug, Default)]
pub struct Assembler {
    read: HashMap<(Kind, Id), (Revision, Parsed)>,
}

impl Assembler {
    /// The catalog of what `declared` and `state` say together.
    ///
    /// # Errors
    /// What contradicts itself, a line each: a file may declare what the store has already.
    pub fn assemble(
        &mut self,
        declared: &Declared,
        state: &State,
    ) -> Result<Arc<Catalog>, Vec<String>> {
        let mut draft = declared.draft.clone();
        for kept in state.all(Kind::Zone) {
            if declared.find(Kind::Zone, kept.id).is_none() {
                let settings = state.find(Kind::ZoneSettings, kept.id);
                draft
                    .zones
                    .push(kept_zone(kept, settings.map(|kept| &**kept)));
            }
        }
        let zones: HashMap<Id, String> = draft
            .zones
            .iter()
            .map(|zone| (zone.id, zone.name.clone()))
            .collect();
        let mut read = HashMap::new();
        let kinds = SECTIONS.into_iter().map(|(_, kind, _)| kind);
        // Of rooms that are in the draft by then, the file's too.
        for kind in kinds.chain([Kind::RoomRules]) {
            let kept = state.all(kind);
            for kept in kept.filter(|kept| declared.find(kind, kept.id).is_none()) {
                let known = self.read.remove(&(kind, kept.id));
                let known = known.filter(|(revision, _)| *revision == kept.revision);
                if matches!((kind, kept.scope), (Kind::Balancer, Scope::Account(_))) {
                    // Nothing reaches it.
                    continue;
                }
                let parsed = known.map(|(_, parsed)| parsed).or_else(|| {
                    let zone = match kept.scope {
                        Scope::Zone(zone) => zones.get(&zone).map_or("", String::as_str),
                        Scope::Account(_) | Scope::Installation => "",
                    };
                    let shown = Shown::of(kept);
                    parse(&shown, &shown.value().into(), zone)
                });
                if let Some(parsed) = parsed {
                    parsed.clone().push(&mut draft);
                    read.insert((kind, kept.id), (kept.revision, parsed));
                }
            }
        }
        self.read = read;
        match Catalog::check(draft) {
            Ok(catalog) => Ok(Arc::new(catalog)),
            Err(faults) => Err(faults
                .iter()
                .map(|fault| format!("{:?}: {}", fault.subject, fault.error))
                .collect()),
        }
    }
}
