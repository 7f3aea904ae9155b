//! `usher status`: what a running node thinks of its pools and endpoints.

use serde_json::Value;

use crate::Ending;
use crate::remote::{self, Api};
use crate::terminal::{Table, Tone, colourful, paint, say_all, shown};

/// Example: `usher status --api http://127.0.0.1:8788`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  USHER_TOKEN=... usher status --api http://127.0.0.1:8788")]
pub(crate) struct Arguments {
    #[command(flatten)]
    api: Api,
    /// Print the state as JSON
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub(crate) fn status(arguments: &Arguments) -> Ending {
    let token = arguments.api.token.as_deref();
    let state = match remote::get(&arguments.api.api, token, "/usher/state") {
        Ok(state) => state,
        Err(ending) => return ending,
    };
    if arguments.json {
        say_all([format_args!("{state:#}")])
    } else {
        say_all(lines(&state, colourful()))
    }
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
    lines
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
            "pools": [{"name": evil, "state": evil, "reason": evil, "endpoints": [
                {"name": evil, "address": evil, "port": evil, "state": evil, "reason": evil,
                 "weight": evil, "open_requests": evil}]}],
        });
        let shown = lines(&state, false).concat();
        assert!(!shown.contains(char::is_control), "{shown:?}");
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
  b              draining  192.0.2.1           0.5     0     7         draining, 1 min left"
        );
    }
}
