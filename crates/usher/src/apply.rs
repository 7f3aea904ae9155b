//! `usher apply`: makes what the API manages what a file says.
//!
//! The plan is made of what the node tells and what the file says, and each call of it is tried as
//! a dry run first where all that it names is there already: what would be refused is told before
//! anything is changed. Then the calls are made one by one, what is built on before what builds on
//! it. One that fails ends it: what was done is told, stays done, and the next run goes on from there.

use std::collections::HashMap;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::{Value, json};
use usher_api::inventory::{Action, Inventory, Section, Step};

use crate::Ending;
use crate::config::{Faults, Resources};
use crate::export::{Whole, text};
use crate::remote::{Api, Node, result};
use crate::terminal::{Tone, ask, colourful, complain, paint, say, shown};

/// Example: `usher apply -f shop.yaml`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  USHER_TOKEN=... usher apply -f shop.yaml
  usher export | sed 's/weight: 0.5/weight: 1/' | usher apply -f - --yes

The file holds 'zones', 'monitors', 'monitor_groups', 'pools', 'load_balancers' and 'waiting_rooms'
in the words of the configuration file, as 'usher export' writes them. Rules of a waiting room stay
as they are unless the file has 'rules'. Without --yes it asks on a terminal, and
changes nothing elsewhere. Exit code 0: the node is as the file says; 1: it is not.")]
pub(crate) struct Arguments {
    /// The file; '-' is the standard input
    #[arg(short, long = "file", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    api: Api,
    /// Delete what the API manages and the file does not have
    #[arg(long)]
    prune: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Plans, asks, and applies.
pub(crate) fn apply(arguments: &Arguments) -> Ending {
    carried_out(arguments).err().unwrap_or(Ending::Done)
}

fn carried_out(arguments: &Arguments) -> Result<(), Ending> {
    let file = Resources::load(&arguments.file).map_err(Faults::ending)?;
    if arguments.prune && file.is_blank() {
        return Err(Ending::Change(anyhow!(
            "{}: is empty, and --prune would delete everything that the API manages: write {{}} where that is meant",
            arguments.file.display()
        )));
    }
    let node = Node::at(&arguments.api.api, arguments.api.token.as_deref())?;
    let whole = Whole::ask(&node)?;
    let plan = whole.inventory.plan(&file.value, arguments.prune);
    let steps = plan.map_err(|faults| file.faults(&faults).ending())?;
    let mut run = Run {
        node: &node,
        whole: &whole,
        created: HashMap::new(),
    };
    let mut moves = Vec::new();
    let mut refused = false;
    for step in &steps {
        match run.tried(step) {
            Ok(told) => moves.push(told),
            Err(Ending::Change(error)) => {
                complain(&format!("{}: {error:#}", named(step)));
                refused = true;
            }
            Err(other) => return Err(other),
        }
    }
    if refused {
        return Err(Ending::Refused);
    }
    if arguments.json {
        let list: Vec<Value> = steps.iter().zip(&moves).map(told).collect();
        say(format_args!("{:#}", json!({"plan": list})))?;
    } else {
        show(&steps, &moves)?;
    }
    if steps.is_empty() {
        return Ok(());
    }
    if !arguments.yes && !consent(steps.len())? {
        return Err(Ending::Change(anyhow!("nothing was changed")));
    }
    for (done, step) in steps.iter().enumerate() {
        run.make(step).map_err(|ending| {
            let context = format!(
                "{}: {done} of {} steps are done, and the next 'usher apply' goes on from here",
                named(step),
                steps.len()
            );
            ending.context(context)
        })?;
        if !arguments.json {
            say(format_args!("{} {}", past(&step.action), named(step)))?;
        }
    }
    Ok(())
}

/// Whether the person at the terminal wants it.
fn consent(count: usize) -> Result<bool, Ending> {
    if !io::stdin().is_terminal() {
        return Err(Ending::Change(anyhow!(
            "nothing was changed: --yes applies the plan without a question"
        )));
    }
    let steps = if count == 1 { "step" } else { "steps" };
    ask(&format!("Apply {count} {steps}? [y/N] "));
    let mut answer = String::new();
    // No answer is no.
    let _ended = io::stdin().lock().read_line(&mut answer);
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Calls of one plan, and the ids that they brought.
struct Run<'a> {
    node: &'a Node,
    whole: &'a Whole,
    created: HashMap<(Section, String), String>,
}

impl Run<'_> {
    fn id(&self, section: Section, key: &str) -> Option<String> {
        let kept: &Inventory = &self.whole.inventory;
        let kept = kept.id(section, key).map(str::to_owned);
        kept.or_else(|| self.created.get(&(section, key.to_owned())).cloned())
    }

    fn body(&self, step: &Step) -> Option<Value> {
        step.body(&self.whole.inventory, |section, key| {
            self.created.get(&(section, key.to_owned())).cloned()
        })
    }

    /// Where resources of that kind are; `None` while their zone is not there.
    fn list(&self, step: &Step) -> Option<String> {
        let base = format!("/accounts/{}/load_balancers", self.whole.account);
        Some(match step.section {
            Section::Zones => "/zones".to_owned(),
            Section::Monitors => format!("{base}/monitors"),
            Section::MonitorGroups => format!("{base}/monitor_groups"),
            Section::Pools => format!("{base}/pools"),
            Section::Balancers | Section::Rooms => {
                let host = step.host();
                let created = self.created.keys();
                let created = created.filter(|(section, _)| *section == Section::Zones);
                let created = created.map(|(_, key)| key.as_str());
                let kept = self.whole.inventory.zone_of(host);
                let mut zones: Vec<&str> = created.chain(kept).collect();
                zones.retain(|zone| host == *zone || host.ends_with(&format!(".{zone}")));
                let zone = zones.into_iter().max_by_key(|zone| zone.len())?;
                let id = self.id(Section::Zones, zone)?;
                format!("/zones/{id}/{}", step.section.key())
            }
        })
    }

    /// What a dry run says would move; null where it cannot say yet.
    fn tried(&self, step: &Step) -> Result<Value, Ending> {
        let (Some(list), Some(body)) = (self.list(step), self.body(step)) else {
            return Ok(Value::Null);
        };
        if step.section == Section::Zones {
            return Ok(Value::Null);
        }
        let told = match &step.action {
            Action::Create => self
                .node
                .call("POST", &format!("{list}?dry_run=true"), Some(&body)),
            Action::Change { id, .. } => {
                self.node
                    .call("PUT", &format!("{list}/{id}?dry_run=true"), Some(&body))
            }
            // What names it still may be changed or deleted before.
            Action::Delete { .. } => return Ok(Value::Null),
        };
        let told = told?.remove("dry_run").unwrap_or(Value::Null);
        if let (Action::Change { id, .. }, Some(rules)) = (&step.action, step.rules()) {
            let path = format!("{list}/{id}/rules?dry_run=true");
            self.node.call("PUT", &path, Some(&rules))?;
        }
        Ok(told)
    }

    fn make(&mut self, step: &Step) -> Result<(), Ending> {
        let (Some(list), Some(body)) = (self.list(step), self.body(step)) else {
            unreachable!("what a step names is created by the steps before it");
        };
        match (&step.action, step.section) {
            (Action::Create, Section::Zones) => {
                let made = self
                    .node
                    .call("POST", &list, Some(&json!({"name": step.key})));
                let id = text(&made.map(result)?["id"]);
                self.settings(&id, &body)?;
                self.created.insert((step.section, step.key.clone()), id);
            }
            (Action::Change { id, .. }, Section::Zones) => self.settings(id, &body)?,
            (Action::Create, _) => {
                let made = self.node.call("POST", &list, Some(&body)).map(result)?;
                let id = text(&made["id"]);
                self.rules(step, &list, &id)?;
                self.created.insert((step.section, step.key.clone()), id);
            }
            (Action::Change { id, .. }, _) => {
                self.node
                    .call("PUT", &format!("{list}/{id}"), Some(&body))?;
                self.rules(step, &list, id)?;
            }
            (Action::Delete { id }, _) => {
                self.node.call("DELETE", &format!("{list}/{id}"), None)?;
            }
        }
        Ok(())
    }

    /// Replaces the rules of a waiting room, where they differ.
    fn rules(&self, step: &Step, list: &str, id: &str) -> Result<(), Ending> {
        if let Some(rules) = step.rules() {
            let path = format!("{list}/{id}/rules");
            self.node.call("PUT", &path, Some(&rules))?;
        }
        Ok(())
    }

    fn settings(&self, zone: &str, body: &Value) -> Result<(), Ending> {
        let https = match body["always_use_https"] == true {
            true => "on",
            false => "off",
        };
        let ssl = body["ssl"].as_str().unwrap_or("flexible");
        for (name, value) in [("ssl", ssl), ("always_use_https", https)] {
            let path = format!("/zones/{zone}/settings/{name}");
            if self.node.get(&path)?["value"] != value {
                self.node
                    .call("PATCH", &path, Some(&json!({"value": value})))?;
            }
        }
        Ok(())
    }
}

fn named(step: &Step) -> String {
    format!("{} {}", step.section.noun(), shown(&step.key))
}

const fn past(action: &Action) -> &'static str {
    match action {
        Action::Create => "created",
        Action::Change { .. } => "changed",
        Action::Delete { .. } => "deleted",
    }
}

fn show(steps: &[Step], moves: &[Value]) -> Result<(), Ending> {
    if steps.is_empty() {
        return say("nothing to change");
    }
    for (step, moves) in steps.iter().zip(moves) {
        let (sign, tone) = match step.action {
            Action::Create => ("+", Tone::Good),
            Action::Change { .. } => ("~", Tone::Warn),
            Action::Delete { .. } => ("-", Tone::Bad),
        };
        let line = format!("{sign} {}", named(step));
        say(paint(&line, tone, colourful()))?;
        if let Action::Change { differences, .. } = &step.action {
            for it in differences {
                let values =
                    [&it.before, &it.after].map(|value| shown(&value.to_string()).into_owned());
                say(format_args!(
                    "    {}: {} -> {}",
                    shown(&it.field),
                    values[0],
                    values[1]
                ))?;
            }
        }
        for line in moved(moves) {
            say(paint(&format!("    {line}"), Tone::Dim, colourful()))?;
        }
    }
    let count = |of: fn(&Action) -> bool| steps.iter().filter(|step| of(&step.action)).count();
    say(format_args!(
        "{} to create, {} to change, {} to delete",
        count(|it| matches!(it, Action::Create)),
        count(|it| matches!(it, Action::Change { .. })),
        count(|it| matches!(it, Action::Delete { .. })),
    ))
}

/// What a dry run said, for people.
fn moved(moves: &Value) -> Vec<String> {
    let traffic = moves["traffic"].as_array().into_iter().flatten();
    let mut lines: Vec<String> = traffic
        .filter_map(|it| {
            let share = it["share_moved"].as_f64().filter(|share| *share > 0.0)?;
            let name = text(&it["load_balancer"]);
            Some(format!(
                "moves {:.2} % of the traffic of {}",
                share * 100.0,
                shown(&name)
            ))
        })
        .collect();
    if let Some(sessions) = moves["sessions_cut"].as_u64().filter(|count| *count > 0) {
        lines.push(format!("cuts {sessions} sessions of this node"));
    }
    lines
}

fn told((step, moves): (&Step, &Value)) -> Value {
    let (action, differences) = match &step.action {
        Action::Create => ("create", &[][..]),
        Action::Change { differences, .. } => ("change", differences.as_slice()),
        Action::Delete { .. } => ("delete", &[][..]),
    };
    let changes = differences.iter();
    let changes =
        changes.map(|it| json!({"field": it.field, "before": it.before, "after": it.after}));
    json!({
        "action": action,
        "kind": step.section.noun().replace(' ', "_"),
        "name": step.key,
        "changes": changes.collect::<Vec<_>>(),
        "moves": moves,
    })
}
