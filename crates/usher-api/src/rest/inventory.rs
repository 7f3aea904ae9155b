//! Resources of a running node in the words of the file, and what would make a node's like a file's.
//!
//! Kept as text beside code, resources are named by keys and not by the ids of one node: so the
//! same text describes another node as well. Pools and load balancers have names. Monitors and
//! monitor groups have none in the API, so there the description serves, where it is unique; one
//! without is called by its id. Everything here is made of answers of the API and makes calls of
//! it; who calls is not its matter.

use std::collections::HashMap;

use serde_json::{Map, Value};
use usher_core::id::{Id, Kind as IdKind};
use usher_store::Kind;

use super::desired::fields_of;
use super::document::{Field, canonical, lean};
use super::{fields, names, rooms};
use crate::wire::reader::{Fault, declared};
use crate::wire::rooms::ACTION;

/// A list of the file, in the order in which resources build on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Zones with their settings.
    Zones,
    /// Monitors.
    Monitors,
    /// Monitor groups.
    MonitorGroups,
    /// Pools.
    Pools,
    /// Load balancers.
    Balancers,
    /// Waiting rooms, with their rules.
    Rooms,
}

impl Section {
    /// All of them.
    pub const ALL: [Section; 6] = [
        Section::Zones,
        Section::Monitors,
        Section::MonitorGroups,
        Section::Pools,
        Section::Balancers,
        Section::Rooms,
    ];

    /// Its key in the file.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Section::Zones => "zones",
            Section::Monitors => "monitors",
            Section::MonitorGroups => "monitor_groups",
            Section::Pools => "pools",
            Section::Balancers => "load_balancers",
            Section::Rooms => "waiting_rooms",
        }
    }

    /// How messages call one of its resources.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Section::Zones => "zone",
            Section::Monitors => "monitor",
            Section::MonitorGroups => "monitor group",
            Section::Pools => "pool",
            Section::Balancers => "load balancer",
            Section::Rooms => "waiting room",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            // What there is to be said about a zone are its settings.
            Section::Zones => Kind::ZoneSettings,
            Section::Monitors => Kind::Monitor,
            Section::MonitorGroups => Kind::MonitorGroup,
            Section::Pools => Kind::Pool,
            Section::Balancers => Kind::Balancer,
            Section::Rooms => Kind::Room,
        }
    }

    const fn id_kind(self) -> IdKind {
        match self {
            Section::Zones => IdKind::Zone,
            Section::Monitors => IdKind::Monitor,
            Section::MonitorGroups => IdKind::MonitorGroup,
            Section::Pools => IdKind::Pool,
            Section::Balancers => IdKind::Balancer,
            Section::Rooms => IdKind::Room,
        }
    }

    /// That of the resources that documents call so.
    const fn of(kind: Kind) -> Section {
        match kind {
            Kind::Monitor => Section::Monitors,
            Kind::MonitorGroup => Section::MonitorGroups,
            Kind::Balancer => Section::Balancers,
            Kind::Room | Kind::RoomRules => Section::Rooms,
            Kind::Zone | Kind::ZoneSettings => Section::Zones,
            // Documents name nothing else.
            Kind::Pool
            | Kind::Account
            | Kind::NotificationPolicy
            | Kind::WebhookDestination
            | Kind::Token => Section::Pools,
        }
    }

    /// Whether the API knows its resources by a name of their own.
    const fn is_named(self) -> bool {
        !matches!(self, Section::Monitors | Section::MonitorGroups)
    }

    /// A resource with every field that a client sets, in their order.
    fn whole(self, shown: &Map<String, Value>) -> Map<String, Value> {
        let mut document = canonical(shown, fields_of(self.kind()));
        if self == Section::Rooms {
            rooms::settle(&mut document);
            if let Some(rules) = rules_of(shown, canonical) {
                document.insert(RULES.to_owned(), rules);
            }
        }
        document
    }
}

/// Of a room: its rules, which the API has calls of their own for.
const RULES: &str = "rules";

/// With every field, or without those that say nothing.
type Form = fn(&Map<String, Value>, &[Field]) -> Map<String, Value>;

fn rules_of(room: &Map<String, Value>, form: Form) -> Option<Value> {
    let rules = room.get(RULES)?.as_array()?.iter();
    let rules = rules.map(|rule| {
        let mut rule = form(
            &rule.as_object().cloned().unwrap_or_default(),
            fields::ROOM_RULE,
        );
        // There is only one action, and a list has its order.
        rule.shift_remove("action");
        rule.shift_remove("position");
        rule
    });
    Some(rules.map(Value::from).collect())
}

/// A resource of the node.
#[derive(Debug, Clone)]
struct Kept {
    id: String,
    /// What the file calls it.
    key: String,
    /// The node's own file has it: the API only shows it.
    declared: bool,
    /// As the API shows it, without what no client sets.
    document: Map<String, Value>,
}

/// What a node has, as its API tells it.
#[derive(Debug, Default)]
pub struct Inventory {
    kept: HashMap<Section, Vec<Kept>>,
}

/// What is to be done with a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// There is none yet.
    Create,
    /// It has this id, and these fields differ.
    Change {
        /// Its id.
        id: String,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// It has this id, and the file does not have it.
    Delete {
        /// Its id.
        id: String,
    },
}

/// One value that is not what it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Where, as `origins[0].weight`.
    pub field: String,
    /// What the node has. Null: nothing.
    pub before: Value,
    /// What the file says. Null: nothing.
    pub after: Value,
}

/// One call that brings a node nearer to a file.
#[derive(Debug, Clone)]
pub struct Step {
    /// Where the resource belongs.
    pub section: Section,
    /// What the file calls it.
    pub key: String,
    /// What is to be done.
    pub action: Action,
    /// The whole of what it should be, with keys where the API has ids.
    document: Map<String, Value>,
}

impl Step {
    /// The host that it is about: of a load balancer or a waiting room.
    #[must_use]
    pub fn host(&self) -> &str {
        match self.section {
            Section::Rooms => self.document.get("host").and_then(Value::as_str),
            _ => None,
        }
        .unwrap_or(&self.key)
    }

    /// What the rules of a waiting room should be, as its own call takes them, where they differ.
    #[must_use]
    pub fn rules(&self) -> Option<Value> {
        let rules = self.document.get(RULES)?.as_array()?;
        let differs = match &self.action {
            Action::Create => !rules.is_empty(),
            Action::Change { differences, .. } => {
                let mut fields = differences.iter().map(|it| it.field.as_str());
                fields.any(|field| field.starts_with(RULES))
            }
            Action::Delete { .. } => false,
        };
        let rules = rules.iter().map(|rule| {
            let mut rule = rule.clone();
            rule["action"] = ACTION.into();
            rule
        });
        differs.then(|| rules.collect())
    }

    /// The body of the call; `None` while it names what is not created yet. `created` finds the id of
    /// a resource that earlier steps have created.
    #[must_use]
    pub fn body(
        &self,
        inventory: &Inventory,
        created: impl Fn(Section, &str) -> Option<String>,
    ) -> Option<Value> {
        let mut whole = true;
        let mut document = self.document.clone();
        document.shift_remove(RULES);
        let mut body = Value::from(document);
        names::visit(self.section.kind(), &mut body, &mut |kind, text| {
            let section = Section::of(kind);
            let kept = inventory.by_key(section, text).map(|kept| kept.id.clone());
            match kept.or_else(|| created(section, text)) {
                Some(id) => *text = id,
                None => whole = false,
            }
        });
        whole.then_some(body)
    }
}

impl Inventory {
    /// Adds the resources of an answer. Those without `created_on` are the file's own: the API shows
    /// a time for everything that it keeps.
    pub fn add(&mut self, section: Section, resources: &[Value]) {
        for resource in resources {
            let Some(shown) = resource.as_object() else {
                continue;
            };
            let text = |key: &str| shown.get(key).and_then(Value::as_str).unwrap_or_default();
            let mut document = section.whole(shown);
            let mut key = text("name").to_owned();
            // A host has no case.
            if section == Section::Balancers {
                key.make_ascii_lowercase();
                document.insert("name".to_owned(), key.clone().into());
            }
            let kept = Kept {
                id: text("id").to_owned(),
                key,
                declared: !shown.contains_key("created_on"),
                document,
            };
            self.kept.entry(section).or_default().push(kept);
        }
    }

    /// Gives every resource its key, and has documents name each other by keys. To be called once,
    /// after the last was added.
    pub fn settle(&mut self) {
        for section in [Section::Monitors, Section::MonitorGroups] {
            let all = self.kept.entry(section).or_default();
            let descriptions: Vec<String> = all.iter().map(Kept::description).collect();
            for kept in all {
                let own = kept.description();
                let count = descriptions.iter().filter(|other| **other == own).count();
                let fit = !own.is_empty() && own.parse::<Id>().is_err() && count == 1;
                kept.key = if fit { own } else { kept.id.clone() };
            }
        }
        let keys: HashMap<(Section, String), String> = self
            .kept
            .iter()
            .flat_map(|(section, all)| {
                let pair = |kept: &Kept| ((*section, kept.id.clone()), kept.key.clone());
                all.iter().map(pair).collect::<Vec<_>>()
            })
            .collect();
        for (section, all) in &mut self.kept {
            for kept in all {
                let mut document = Value::from(std::mem::take(&mut kept.document));
                names::visit(section.kind(), &mut document, &mut |kind, text| {
                    if let Some(key) = keys.get(&(Section::of(kind), text.clone())) {
                        text.clone_from(key);
                    }
                });
                if let Value::Object(document) = document {
                    kept.document = document;
                }
            }
        }
    }

    fn all(&self, section: Section) -> &[Kept] {
        self.kept.get(&section).map_or(&[], Vec::as_slice)
    }

    fn by_key(&self, section: Section, key: &str) -> Option<&Kept> {
        self.all(section).iter().find(|kept| kept.key == key)
    }

    fn by_id(&self, section: Section, id: &str) -> Option<&Kept> {
        self.all(section).iter().find(|kept| kept.id == id)
    }

    /// Names that waiting rooms of several zones share: a file has room for one of each.
    #[must_use]
    pub fn shared_names(&self) -> Vec<&str> {
        let rooms = self.all(Section::Rooms);
        let before = |at: usize| rooms[..at].iter().map(|kept| kept.key.as_str());
        let shared = rooms.iter().enumerate();
        let shared = shared.filter(|(at, kept)| before(*at).any(|key| key == kept.key));
        shared.map(|(_, kept)| kept.key.as_str()).collect()
    }

    /// The id of the resource that has this key.
    #[must_use]
    pub fn id(&self, section: Section, key: &str) -> Option<&str> {
        self.by_key(section, key).map(|kept| kept.id.as_str())
    }

    /// The key of the longest-named zone that holds a host.
    #[must_use]
    pub fn zone_of(&self, host: &str) -> Option<&str> {
        let zones = self.all(Section::Zones).iter();
        longest(zones.map(|zone| zone.key.as_str()), host)
    }

    /// Everything that the API manages, as a file declares it: by key, without what is a default.
    #[must_use]
    pub fn file(&self) -> Value {
        let mut file = Map::new();
        for section in Section::ALL {
            let own = self.all(section).iter().filter(|kept| !kept.declared);
            let mut own: Vec<&Kept> = own.collect();
            own.sort_by(|a, b| a.key.cmp(&b.key));
            let resources: Map<String, Value> = own
                .iter()
                .map(|kept| (kept.key.clone(), kept.written(section).into()))
                .collect();
            if !resources.is_empty() {
                file.insert(section.key().to_owned(), resources.into());
            }
        }
        file.into()
    }

    /// What would give the node what `file` says; with `prune`, and nothing else.
    ///
    /// # Errors
    /// What cannot be meant: names of nothing, resources that the node's own file has, two that are
    /// the same one.
    pub fn plan(&self, file: &Value, prune: bool) -> Result<Vec<Step>, Vec<Fault>> {
        let mut faults = Vec::new();
        let wanted = Wanted::read(self, file, &mut faults);
        let mut steps = Vec::new();
        for one in &wanted.all {
            let document = wanted.document(one, &mut faults);
            let action = match one.kept {
                None => Action::Create,
                Some(kept) => {
                    let mut differences = Vec::new();
                    compare(
                        "",
                        &kept.document.clone().into(),
                        &document.clone().into(),
                        &mut differences,
                    );
                    if differences.is_empty() {
                        continue;
                    }
                    let id = kept.id.clone();
                    Action::Change { id, differences }
                }
            };
            if one.kept.is_some_and(|kept| kept.declared) {
                let what = "is declared in the node's own file: change it there";
                faults.push(one.fault(&format!("{} {} {what}", one.section.noun(), one.key)));
            }
            steps.push(Step {
                section: one.section,
                key: one.key.clone(),
                action,
                document,
            });
        }
        if prune {
            // What builds on others goes before them.
            for section in Section::ALL.into_iter().rev() {
                let own = self.all(section).iter().filter(|kept| !kept.declared);
                let unwanted = own.filter(|kept| !wanted.has(section, kept));
                steps.extend(unwanted.map(|kept| Step {
                    section,
                    key: kept.key.clone(),
                    action: Action::Delete {
                        id: kept.id.clone(),
                    },
                    document: match section {
                        // Its zone is that of its host.
                        Section::Rooms => kept.document.clone(),
                        _ => Map::new(),
                    },
                }));
            }
        }
        match faults.is_empty() {
            true => Ok(steps),
            false => Err(faults),
        }
    }
}

impl Kept {
    fn description(&self) -> String {
        let description = self.document.get("description").and_then(Value::as_str);
        description.unwrap_or_default().to_owned()
    }

    /// As the file has it, below its key.
    fn written(&self, section: Section) -> Map<String, Value> {
        let mut written = lean(&self.document, fields_of(section.kind()));
        if let Some(rules) = rules_of(&self.document, lean)
            && rules != Value::Array(Vec::new())
        {
            written.insert(RULES.to_owned(), rules);
        }
        if section.is_named() {
            written.shift_remove("name");
        } else if written.get("description").and_then(Value::as_str) == Some(self.key.as_str()) {
            written.shift_remove("description");
        }
        written
    }
}

/// A resource of the file.
struct One<'a> {
    section: Section,
    key: String,
    value: Map<String, Value>,
    kept: Option<&'a Kept>,
}

impl One<'_> {
    fn fault(&self, message: &str) -> Fault {
        let key = self.key.replace('~', "~0").replace('/', "~1");
        Fault {
            pointer: format!("/{}/{key}", self.section.key()),
            at_key: true,
            inside: 0,
            place: String::new(),
            message: message.to_owned(),
        }
    }
}

/// What a file asks for, beside what of it is there.
struct Wanted<'a> {
    inventory: &'a Inventory,
    all: Vec<One<'a>>,
}

impl<'a> Wanted<'a> {
    fn read(inventory: &'a Inventory, file: &Value, faults: &mut Vec<Fault>) -> Wanted<'a> {
        let mut wanted = Wanted {
            inventory,
            all: Vec::new(),
        };
        for section in Section::ALL {
            let resources = file.get(section.key()).and_then(Value::as_object);
            for (key, value) in resources.into_iter().flatten() {
                let mut one = One {
                    section,
                    key: match section {
                        Section::Zones | Section::Balancers => key.to_ascii_lowercase(),
                        _ => key.clone(),
                    },
                    value: value.as_object().cloned().unwrap_or_default(),
                    kept: None,
                };
                one.kept = match wanted.kept(&one) {
                    Ok(kept) => kept,
                    Err(message) => {
                        faults.push(one.fault(&message));
                        continue;
                    }
                };
                let same = one.kept.map(|kept| &kept.id);
                let mut earlier = wanted.all.iter().filter(|other| other.section == section);
                if let Some(other) = earlier.find(|other| {
                    other.key == one.key
                        || same.is_some() && other.kept.map(|kept| &kept.id) == same
                }) {
                    let message = format!(
                        "{} {} is the same as {}",
                        section.noun(),
                        one.key,
                        other.key
                    );
                    faults.push(one.fault(&message));
                    continue;
                }
                wanted.all.push(one);
            }
        }
        wanted.imply_zones();
        wanted
    }

    /// A host that is in no zone is in one of its own, as in the node's own file.
    fn imply_zones(&mut self) {
        let hosts = self.all.iter().filter_map(|one| match one.section {
            Section::Balancers => Some(one.key.clone()),
            Section::Rooms => {
                let host = one.value.get("host").and_then(Value::as_str)?;
                Some(host.to_ascii_lowercase())
            }
            _ => None,
        });
        let hosts: Vec<String> = hosts.collect();
        for host in hosts {
            let zones = self.all.iter().filter(|one| one.section == Section::Zones);
            let here = longest(zones.map(|one| one.key.as_str()), &host);
            if here.or_else(|| self.inventory.zone_of(&host)).is_none() {
                let zone = One {
                    section: Section::Zones,
                    key: crate::wire::zones::implied(&host).name,
                    value: Map::new(),
                    kept: None,
                };
                self.all.insert(0, zone);
            }
        }
    }

    /// The resource of the node that is meant.
    fn kept(&self, one: &One<'_>) -> Result<Option<&'a Kept>, String> {
        let (inventory, section) = (self.inventory, one.section);
        let own = declared(section.id_kind(), &one.key).to_string();
        let found = inventory
            .by_id(section, &one.key)
            .filter(|_| !section.is_named())
            .or_else(|| inventory.by_key(section, &one.key))
            .or_else(|| inventory.by_id(section, &own));
        if found.is_some() || section.is_named() {
            return Ok(found);
        }
        let description = described(one);
        let mut alike =
            (inventory.all(section).iter()).filter(|kept| kept.description() == description);
        match (alike.next(), alike.next()) {
            (Some(_), Some(_)) => Err(format!(
                "{} {}: several are described as {description:?}; say which by its id as the key",
                section.noun(),
                one.key
            )),
            (found, _) => Ok(found),
        }
    }

    fn has(&self, section: Section, kept: &Kept) -> bool {
        let mut all = self.all.iter().filter(|one| one.section == section);
        all.any(|one| one.kept.is_some_and(|own| own.id == kept.id))
    }

    /// What the resource should be: every field, and names as the inventory has them.
    fn document(&self, one: &One<'_>, faults: &mut Vec<Fault>) -> Map<String, Value> {
        let mut value = one.value.clone();
        let kind = one.section.kind();
        match one.section {
            Section::Zones => {}
            Section::Pools | Section::Balancers => {
                value.insert("name".to_owned(), one.key.clone().into());
            }
            Section::Rooms => {
                value.insert("name".to_owned(), one.key.clone().into());
                // A file that says nothing of rules leaves them to the API.
                let rules = one.kept.and_then(|kept| kept.document.get(RULES));
                let rules = rules.cloned().unwrap_or(Value::Array(Vec::new()));
                value.entry(RULES).or_insert(rules);
            }
            Section::Monitors | Section::MonitorGroups => {
                value.insert("description".to_owned(), described(one).into());
            }
        }
        let mut document = Value::from(one.section.whole(&value));
        names::visit(kind, &mut document, &mut |kind, text| match self
            .resolved(Section::of(kind), text)
        {
            Some(key) => *text = key,
            None => {
                let noun = Section::of(kind).noun();
                let message = format!(
                    "{} {}: {noun} {text:?} is neither in the file nor on the node",
                    one.section.noun(),
                    one.key
                );
                faults.push(one.fault(&message));
            }
        });
        match document {
            Value::Object(document) => document,
            _ => Map::new(),
        }
    }

    /// The key that the inventory has, or that a resource to be created will have.
    fn resolved(&self, section: Section, text: &str) -> Option<String> {
        let mut all = self.all.iter().filter(|one| one.section == section);
        if let Some(one) = all.find(|one| one.key == text) {
            return Some(
                one.kept
                    .map_or_else(|| one.key.clone(), |kept| kept.key.clone()),
            );
        }
        let own = declared(section.id_kind(), text).to_string();
        let found = (self.inventory.by_key(section, text))
            .or_else(|| self.inventory.by_id(section, text))
            .or_else(|| self.inventory.by_id(section, &own));
        found.map(|kept| kept.key.clone())
    }
}

/// By what a monitor or a group of the file is known again, if not by its id.
fn described(one: &One<'_>) -> String {
    let written = one.value.get("description").and_then(Value::as_str);
    match (written, one.kept) {
        (Some(text), _) if !text.is_empty() => text.to_owned(),
        // Called by its id, because it has no description.
        (_, Some(kept)) if kept.id == one.key => String::new(),
        (_, None | Some(_)) => one.key.clone(),
    }
}

fn longest<'z>(zones: impl Iterator<Item = &'z str>, host: &str) -> Option<&'z str> {
    let holds = |zone: &&str| {
        let rest = host.strip_suffix(*zone);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    zones.filter(holds).max_by_key(|zone| zone.len())
}

/// Tells every value below `field` that differs.
fn compare(field: &str, before: &Value, after: &Value, differences: &mut Vec<Difference>) {
    let mut differ = |before: &Value, after: &Value| {
        differences.push(Difference {
            field: field.to_owned(),
            before: before.clone(),
            after: after.clone(),
        });
    };
    match (before, after) {
        (Value::Object(was), Value::Object(is)) => {
            let below = |key: &str| match field.is_empty() {
                true => key.to_owned(),
                false => format!("{field}.{key}"),
            };
            let gone = was.keys().filter(|key| !is.contains_key(*key));
            for key in is.keys().chain(gone) {
                let [was, is] = [was, is].map(|map| map.get(key).unwrap_or(&Value::Null));
                compare(&below(key), was, is, differences);
            }
        }
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            for (index, (was, is)) in was.iter().zip(is).enumerate() {
                compare(&format!("{field}[{index}]"), was, is, differences);
            }
        }
        // 1 and 1.0 are the same weight.
        (Value::Number(was), Value::Number(is)) if was.as_f64() == is.as_f64() => {}
        (was, is) if was == is => {}
        (was, is) => differ(was, is),
    }
}

#[cfg(test)]
mod tests;
