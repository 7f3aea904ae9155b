//! `usher export`: what the API manages, as a file that `usher apply` takes.

use anyhow::anyhow;
use serde_json::Value;
use usher_api::inventory::{Inventory, Section};

use crate::remote::{Api, Node, result};
use crate::terminal::say_text;
use crate::{Ending, yaml};

/// Example: `usher export --api http://127.0.0.1:8788 > shop.yaml`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  USHER_TOKEN=... usher export > shop.yaml

Writes zones, monitors, monitor groups, pools, load balancers and waiting rooms that were made over
the API, in the words and the order of the configuration file; what the node's own file declares is not among them.
'usher apply -f shop.yaml' brings them back, here or on another node. Request headers of monitors
and endpoints are written as they are: look for secrets in them before you share the file.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    api: Api,
    /// Write JSON (which is YAML, too)
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub(crate) fn export(arguments: &Arguments) -> Ending {
    let api = &arguments.api;
    let node = Node::at(&api.api, api.token.as_deref());
    match node.and_then(|node| Whole::ask(&node)) {
        Ok(whole) => {
            let file = whole.inventory.file();
            say_text(&match arguments.json {
                true => format!("{file:#}\n"),
                false => yaml::write(&file),
            })
        }
        Err(ending) => ending,
    }
}

/// Everything that a node has, and where its account is.
pub(crate) struct Whole {
    pub(crate) account: String,
    pub(crate) inventory: Inventory,
}

impl Whole {
    /// Asks for all of it.
    pub(crate) fn ask(node: &Node) -> Result<Whole, Ending> {
        let accounts = node.get("/accounts")?;
        let account = text(&accounts[0]["id"]);
        let mut inventory = Inventory::default();
        let mut zones = paged(node, "/zones")?;
        let base = format!("/accounts/{account}/load_balancers");
        for (section, path) in [
            (Section::Monitors, "monitors"),
            (Section::MonitorGroups, "monitor_groups"),
            (Section::Pools, "pools"),
        ] {
            inventory.add(section, &list(node.get(&format!("{base}/{path}"))?));
        }
        for zone in &mut zones {
            let path = format!("/zones/{}", text(&zone["id"]));
            let balancers = node.get(&format!("{path}/load_balancers"))?;
            inventory.add(Section::Balancers, &list(balancers));
            inventory.add(Section::Rooms, &rooms(node, &path)?);
            let setting = |name: &str| node.get(&format!("{path}/settings/{name}"));
            zone["ssl"] = setting("ssl")?["value"].take();
            zone["always_use_https"] = (setting("always_use_https")?["value"] == "on").into();
        }
        inventory.add(Section::Zones, &zones);
        inventory.settle();
        if let [name, ..] = inventory.shared_names()[..] {
            return Err(Ending::Change(anyhow!(
                "two zones have a waiting room {name:?}, and a file has room for one: rename one of them"
            )));
        }
        Ok(Whole { account, inventory })
    }
}

/// The waiting rooms of the zone at `path`, each with its rules.
fn rooms(node: &Node, path: &str) -> Result<Vec<Value>, Ending> {
    let mut rooms = paged(node, &format!("{path}/waiting_rooms"))?;
    for room in &mut rooms {
        let id = text(&room["id"]);
        room["rules"] = node.get(&format!("{path}/waiting_rooms/{id}/rules"))?;
    }
    Ok(rooms)
}

/// All of a list that comes in pages.
fn paged(node: &Node, path: &str) -> Result<Vec<Value>, Ending> {
    let mut all = Vec::new();
    for page in 1.. {
        let path = format!("{path}?per_page=1000&page={page}");
        let part = list(node.call("GET", &path, None).map(result)?);
        if part.is_empty() {
            break;
        }
        all.extend(part);
    }
    Ok(all)
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
