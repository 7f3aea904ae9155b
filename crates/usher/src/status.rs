//! `usher status`: what a running node thinks of its pools, endpoints, waiting rooms and browsers.
//!
//! With `--watch` it asks each second, which is as often as the node's own page is told, and costs
//! the node one answer. A node that is restarted, or that hands over, is asked until it is back.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Ending;
use crate::remote::{Api, Node};
use crate::terminal::{Table, Tone, colourful, paint, said, say_all, shown};

/// Between two questions of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Clears a terminal, and goes to its beginning.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Example: `usher status --api http://127.0.0.1:8788`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  USHER_TOKEN=... usher status --api http://127.0.0.1:8788
  USHER_TOKEN=... usher status --watch | tee states.log")]
pub(crate) struct Arguments {
    #[command(flatten)]
    api: Api,
    /// Print the state as JSON; with --watch, a line each second
    #[arg(long)]
    json: bool,
    /// Go on: on a terminal the table stays true, elsewhere each change of a state is a line
    #[arg(long)]
    watch: bool,
}

/// Asks and prints.
pub(crate) fn status(arguments: &Arguments) -> Ending {
    let asked = Node::at(&arguments.api.api, arguments.api.token.as_deref()).and_then(|node| {
        let state = node.get(PATH)?;
        Ok((node, state))
    });
    let (node, state) = match asked {
        Ok(asked) => asked,
        Err(ending) => return ending,
    };
    if arguments.watch {
        watch(&node, state, arguments.json).unwrap_or_else(|ending| ending)
    } else if arguments.json {
        say_all([format_args!("{state:#}")])
    } else {
        say_all(lines(&state, colourful()))
    }
}

/// Where the state is.
const PATH: &str = "/usher/state";

/// Shows the state for as long as somebody reads.
fn watch(node: &Node, first: Value, json: bool) -> Result<Ending, Ending> {
    let terminal = io::stdout().is_terminal();
    let mut known = BTreeMap::new();
    let mut away = false;
    let mut asked = Ok(first);
    loop {
        let text = match asked {
            Ok(state) => {
                let back = std::mem::take(&mut away);
                if json {
                    format!("{state}\n")
                } else if terminal {
                    CLEAR.to_owned() + &lines(&state, colourful()).join("\n") + "\n"
                } else {
                    let changed = changes(&mut known, &state, back);
                    changed.iter().map(|line| format!("{line}\n")).collect()
                }
            }
            // Whoever restarts a node wants to see it come back.
            Err(Ending::Environment(error)) => {
                let told = std::mem::replace(&mut away, true) || json;
                match told {
                    true => String::new(),
                    false => format!("{}; asking on\n", shown(&format!("{error:#}"))),
                }
            }
            Err(ending) => return Err(ending),
        };
        if !text.is_empty() && !said(text)? {
            return Ok(Ending::Done);
        }
        thread::sleep(WATCH_INTERVAL);
        asked = node.get(PATH);
    }
}

/// A line for each state that is not what it was; all of them at first. `back`: the node did not
/// answer before.
fn changes(known: &mut BTreeMap<String, String>, state: &Value, back: bool) -> Vec<String> {
    let mut now = BTreeMap::new();
    for balancer in array(&state["load_balancers"]) {
        let name = format!("load balancer {}", text(&balancer["name"]));
        now.insert(name, (text(&balancer["state"]), String::new()));
    }
    for pool in array(&state["pools"]) {
        let name = text(&pool["name"]);
        let own = (text(&pool["state"]), text(&pool["reason"]));
        for endpoint in array(&pool["endpoints"]) {
            let name = format!("endpoint {name}/{}", text(&endpoint["name"]));
            now.insert(name, (text(&endpoint["state"]), reason(endpoint)));
        }
        now.insert(format!("pool {name}"), own);
    }
    for room in array(&state["rooms"]) {
        let name = format!("waiting room {}", text(&room["name"]));
        now.insert(name, (text(&room["status"]), text(&room["trouble"])));
    }
    for pool in array(&state["browsers"]) {
        let name = format!("browsers {}", text(&pool["region"]));
        now.insert(name, (host(pool).to_owned(), text(&pool["trouble"])));
    }
    let mut lines: Vec<String> = back
        .then(|| "the node answers again".to_owned())
        .into_iter()
        .collect();
    let gone = known.keys().filter(|name| !now.contains_key(*name));
    lines.extend(gone.map(|name| format!("{name}: gone")));
    for (name, (state, reason)) in &now {
        let before = known.get(name);
        if before == Some(state) {
            continue;
        }
        let from = before.map_or(String::new(), |before| format!("{before} -> "));
        let why = match reason.is_empty() {
            true => String::new(),
            false => format!(" ({reason})"),
        };
        lines.push(format!("{name}: {from}{state}{why}"));
    }
    *known = now
        .into_iter()
        .map(|(name, (state, _))| (name, state))
        .collect();
    lines
}

fn lines(state: &Value, colourful: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {} · up {} · revision {}",
        paint(&text(&state["node"]), Tone::Bold, colourful),
        text(&state["version"]),
        duration(state["uptime_seconds"].as_u64().unwrap_or(0)),
        text(&state["revision"]),
    )];
    let mut balancers = Table::new(&["load balancer", "state", "pools"]);
    for balancer in array(&state["load_balancers"]) {
        let state = text(&balancer["state"]);
        let pools: Vec<String> = array(&balancer["pools"]).iter().map(text).collect();
        let tone = Tone::of_state(&state);
        balancers.row([
            (text(&balancer["name"]), Tone::Plain),
            (state, tone),
            (pools.join(", "), Tone::Plain),
        ]);
    }
    lines.push(String::new());
    lines.extend(balancers.lines(0, colourful));

    let mut pools = Table::new(&[
        "pool / endpoint",
        "state",
        "address",
        "weight",
        "open",
        "sessions",
        "reason",
    ]);
    for pool in array(&state["pools"]) {
        let state = text(&pool["state"]);
        let tone = Tone::of_state(&state);
        pools.row([
            (text(&pool["name"]), Tone::Bold),
            (state, tone),
            (String::new(), Tone::Plain),
            (String::new(), Tone::Plain),
            (String::new(), Tone::Plain),
            (String::new(), Tone::Plain),
            (text(&pool["reason"]), Tone::Dim),
        ]);
        for endpoint in array(&pool["endpoints"]) {
            let state = text(&endpoint["state"]);
            let tone = Tone::of_state(&state);
            pools.row([
                (format!("  {}", text(&endpoint["name"])), Tone::Plain),
                (state, tone),
                (place(endpoint), Tone::Plain),
                (text(&endpoint["weight"]), Tone::Plain),
                (text(&endpoint["open_requests"]), Tone::Plain),
                (text(&endpoint["sessions"]), Tone::Plain),
                (reason(endpoint), Tone::Dim),
            ]);
        }
    }
    lines.push(String::new());
    lines.extend(pools.lines(0, colourful));

    let rooms_there = array(&state["rooms"]);
    if !rooms_there.is_empty() {
        let mut rooms = Table::new(&[
            "waiting room",
            "status",
            "seats",
            "waiting",
            "last minute",
            "trouble",
        ]);
        for room in rooms_there {
            let trouble = text(&room["trouble"]);
            let tone = match (trouble.is_empty(), room["status"] == "queueing") {
                (false, _) => Tone::Bad,
                (true, true) => Tone::Warn,
                (true, false) => Tone::Plain,
            };
            rooms.row([
                (text(&room["name"]), Tone::Bold),
                (text(&room["status"]), tone),
                (text(&room["seats"]), Tone::Plain),
                (text(&room["waiting"]), Tone::Plain),
                (text(&room["admitted_last_minute"]), Tone::Plain),
                (trouble, Tone::Bad),
            ]);
        }
        lines.push(String::new());
        lines.extend(rooms.lines(0, colourful));
    }

    let browsers = array(&state["browsers"]);
    if !browsers.is_empty() {
        lines.push(String::new());
        lines.extend(browser_lines(browsers, colourful));
    }
    lines
}

fn browser_lines(pools: &[Value], colourful: bool) -> Vec<String> {
    let mut table = Table::new(&[
        "browsers", "host", "kind", "ready", "in use", "starting", "max", "in line", "sessions",
    ]);
    let mut notes = Vec::new();
    for pool in pools {
        let (region, host) = (text(&pool["region"]), host(pool));
        let tone = match host {
            "running" => Tone::Good,
            "starting" => Tone::Dim,
            _ => Tone::Bad,
        };
        let line = match pool["queue"]["waiting"].as_u64() {
            None | Some(0) => (String::new(), Tone::Plain),
            Some(waiting) => {
                let oldest = text(&pool["queue"]["oldest_seconds"]);
                (format!("{waiting}, {oldest} s"), Tone::Warn)
            }
        };
        let sessions = pool["sessions"].as_object().into_iter().flatten();
        let sessions: Vec<String> = sessions
            .map(|(account, count)| format!("{} {}", shown(account), text(count)))
            .collect();
        table.row([
            (region.clone(), Tone::Bold),
            (host.to_owned(), tone),
            (text(&pool["backend"]), Tone::Plain),
            (text(&pool["ready"]), Tone::Plain),
            (text(&pool["in_use"]), Tone::Plain),
            (text(&pool["starting"]), Tone::Plain),
            (text(&pool["max"]), Tone::Plain),
            line,
            (sessions.join(", "), Tone::Plain),
        ]);
        let trouble = text(&pool["trouble"]);
        if !trouble.is_empty() {
            let note = format!("  {region}: {trouble}");
            let tone = match host {
                "starting" => Tone::Dim,
                _ => Tone::Bad,
            };
            notes.push(paint(&note, tone, colourful));
        }
        for warning in array(&pool["host"]["warnings"]) {
            let note = format!("  {region}: {}", text(warning));
            notes.push(paint(&note, Tone::Warn, colourful));
        }
    }
    let mut lines = table.lines(0, colourful);
    lines.extend(notes);
    if pools
        .iter()
        .any(|pool| pool["insecure_single_tenant"] == true)
    {
        let note = "  insecure_single_tenant is on: browsers may run without a sandbox";
        lines.push(paint(note, Tone::Warn, colourful));
    }
    lines
}

/// How a region's browsers fare, in a word.
fn host(pool: &Value) -> &'static str {
    match (pool["host"]["state"].as_str(), &pool["trouble"]) {
        (Some("missing"), _) => "missing",
        (Some("running"), Value::Null) => "running",
        (Some("running"), _) => "failing",
        _ => "starting",
    }
}

/// Why an endpoint is in its state, and for how long if that is known.
fn reason(endpoint: &Value) -> String {
    let reason = text(&endpoint["reason"]);
    match endpoint["drain_seconds_left"].as_u64() {
        Some(secs) => format!("{reason}, {} left", duration(secs)),
        None => reason,
    }
}

/// `address:port` of an endpoint of the state or of an explanation.
pub(crate) fn place(endpoint: &Value) -> String {
    let (address, port) = (text(&endpoint["address"]), text(&endpoint["port"]));
    match (address.contains(':'), port.is_empty()) {
        (_, true) => address,
        (true, false) => format!("[{address}]:{port}"),
        (false, false) => format!("{address}:{port}"),
    }
}

/// A JSON scalar without quotes, fit for a terminal; `null` is empty.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => shown(text).into_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// The items of a JSON array; nothing else has any.
pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn duration(secs: u64) -> String {
    let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_name_acts_on_the_terminal() {
        let evil = "\u{1b}]0;x\u{7}";
        let state = json!({
            "node": evil, "version": evil, "revision": evil,
            "load_balancers": [{"name": evil, "state": evil, "pools": [evil]}],
            "rooms": [{"name": evil, "status": evil, "seats": evil, "waiting": evil,
                       "admitted_last_minute": evil, "trouble": evil}],
            "pools": [{"name": evil, "state": evil, "reason": evil, "endpoints": [
                {"name": evil, "address": evil, "port": evil, "state": evil, "reason": evil,
                 "weight": evil, "open_requests": evil}]}],
            "browsers": [{"region": evil, "backend": evil, "ready": evil, "max": evil,
                          "trouble": evil, "host": {"state": evil, "warnings": [evil]},
                          "queue": {"waiting": 1, "oldest_seconds": evil}, "sessions": {evil: evil}}],
        });
        let shown = lines(&state, false).concat();
        assert!(!shown.contains(char::is_control), "{shown:?}");
    }

    #[test]
    fn only_changes_are_lines() {
        let state = |of_pool: &str, endpoint: &str| {
            json!({"load_balancers": [{"name": "shop", "state": "healthy", "pools": ["eu"]}],
                   "pools": [{"name": "eu", "state": of_pool, "reason": "", "endpoints": [
                       {"name": endpoint, "state": "healthy", "reason": "No failures"}]}]})
        };
        let mut known = BTreeMap::new();
        let mut told = |state: &Value, back| changes(&mut known, state, back);
        assert_eq!(
            told(&state("healthy", "a"), false),
            [
                "endpoint eu/a: healthy (No failures)",
                "load balancer shop: healthy",
                "pool eu: healthy"
            ]
        );
        assert_eq!(told(&state("healthy", "a"), false), [""; 0]);
        assert_eq!(
            told(&state("critical", "b"), true),
            [
                "the node answers again",
                "endpoint eu/a: gone",
                "endpoint eu/b: healthy (No failures)",
                "pool eu: healthy -> critical"
            ]
        );
    }

    #[test]
    fn browsers_that_cannot_be_had_say_why() {
        let pool = |region: &str, state: &str, trouble: Value, warnings: Value| {
            json!({"region": region, "backend": "sandbox", "ready": 1, "in_use": 3, "starting": 0,
                   "max": 8, "host": {"state": state, "warnings": warnings}, "trouble": trouble,
                   "queue": {"waiting": 2, "oldest_seconds": 1.4},
                   "sessions": {"default": 1, "shop": 2}, "insecure_single_tenant": true})
        };
        let why = "this machine has no bwrap: apt-get install bubblewrap";
        let mut state = json!({"browsers": [
            pool("WEU", "running", Value::Null, json!(["no control group limits memory"])),
            pool("ENAM", "missing", json!(why), json!([])),
        ]});
        let pools = array(&state["browsers"]);
        assert_eq!(
            browser_lines(pools, false).join("\n"),
            "\
browsers  host     kind     ready  in use  starting  max  in line   sessions
WEU       running  sandbox  1      3       0         8    2, 1.4 s  default 1, shop 2
ENAM      missing  sandbox  1      3       0         8    2, 1.4 s  default 1, shop 2
  WEU: no control group limits memory
  ENAM: this machine has no bwrap: apt-get install bubblewrap
  insecure_single_tenant is on: browsers may run without a sandbox"
        );
        let mut known = BTreeMap::new();
        changes(&mut known, &state, false);
        state["browsers"][0]["trouble"] = json!("no page was drawn for 80 s");
        assert_eq!(
            changes(&mut known, &state, false),
            ["browsers WEU: running -> failing (no page was drawn for 80 s)"]
        );
    }

    #[test]
    fn the_state_as_a_table() {
        let state = json!({
            "node": "ams1", "version": "0.1.0", "uptime_seconds": 3_725, "revision": 4,
            "load_balancers": [{"name": "shop.example.com", "state": "degraded", "pools": ["eu", "us"]}],
            "pools": [{"id": "0", "name": "eu", "state": "degraded", "reason": "1 of 2 endpoints is healthy",
                "endpoints": [
                    {"name": "a", "address": "2001:db8::5", "port": 9001, "state": "healthy",
                     "reason": "No failures", "weight": 1, "open_requests": 3, "sessions": 12},
                    {"name": "b", "address": "192.0.2.1", "port": null, "state": "draining",
                     "reason": "draining", "weight": 0.5, "open_requests": 0, "sessions": 7,
                     "drain_seconds_left": 90}]}],
            "rooms": [{"id": "1", "name": "sale", "status": "queueing", "seats": 200, "waiting": 1234,
                       "admitted_last_minute": 57, "trouble": null}],
        });
        assert_eq!(
            lines(&state, false).join("\n"),
            "\
ams1 0.1.0 · up 1 h 2 min · revision 4

load balancer     state     pools
shop.example.com  degraded  eu, us

pool / endpoint  state     address             weight  open  sessions  reason
eu               degraded                                              1 of 2 endpoints is healthy
  a              healthy   [2001:db8::5]:9001  1       3     12        No failures
  b              draining  192.0.2.1           0.5     0     7         draining, 1 min left

waiting room  status    seats  waiting  last minute  trouble
sale          queueing  200    1234     57"
        );
    }
}
