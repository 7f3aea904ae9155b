//! `usher explain`: where one request would go, and why.

use serde_json::{Map, Value, json};
use usher_api::wire::explain::{Question, RoomSays, Surroundings};
use usher_api::wire::reader::Fault;
use usher_core::affinity::Pins;
use usher_core::catalog::EndpointIx;
use usher_core::id::Id;
use usher_core::region::Place;
use usher_core::request::{Headers, Request};
use usher_core::snapshot::{Counts, NoCounts, Snapshot};
use usher_core::time::Mono;
use usher_edge::geo::Places;
use usher_edge::http::rooms::Rooms;
use usher_edge::seal::Keys;
use usher_node::pins::{Presented, known_keys};
use usher_node::rooms;
use usher_rooms::route::Ambiguous;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;

use crate::status::{array, place, text};
use crate::terminal::{Table, Tone, colourful, paint, say_all};
use crate::{Ending, config, remote};

/// Example: `usher explain --config usher.yaml https://shop.example.com/`
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("decider").args(["config", "api"]).required(true)))]
#[command(after_help = "Examples:
  usher explain --config usher.yaml https://shop.example.com/ --assume 'pool eu=critical'
  USHER_TOKEN=... usher explain --api http://127.0.0.1:8788 https://shop.example.com/cart

What --assume takes, any number of times:
  pool eu=critical            or healthy, disabled
  endpoint eu/a=down          or up, disabled, draining, pending
  weight eu/a=0.2             0..1 in steps of 0.01
  open eu/a=3                 requests under way; 'connections eu/a=3' the same of connections
  session eu/a                the visitor has a session with it
  rtt eu=45ms                 round trip of the probes of a pool
  shed eu=20                  percent of requests that a pool sheds
  country=KR                  where the visitor is
  region=NEAS, node=SJC       where the node is, and its code
  time=2026-12-01T10:00:00Z   the time of day")]
pub(crate) struct Arguments {
    /// The request's URL
    #[arg(value_name = "URL")]
    url: String,
    /// Decide with this file, without a running node
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask the node whose API is here, with its live health
    #[arg(long, value_name = "URL")]
    api: Option<String>,
    /// Token for the API
    #[arg(long, env = "USHER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Address of the visitor [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    from: Option<String>,
    /// Request method
    #[arg(long, default_value = "GET")]
    method: String,
    /// A request header; any number of times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Take something for granted: 'pool eu=critical', 'endpoint eu/a=down', 'weight eu/a=0.2'
    #[arg(long, value_name = "WHAT")]
    assume: Vec<String>,
    /// Fix the random draw, to get the same answer again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the decision as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The question as the API takes it.
    fn body(&self) -> Result<Value, Ending> {
        let mut headers = Map::new();
        for header in &self.headers {
            let (name, value) = header.split_once(':').ok_or_else(|| {
                Ending::Usage(anyhow!("-H {header:?} is not of the form 'Name: value'"))
            })?;
            headers.insert(name.trim().to_owned(), json!(value.trim()));
        }
        Ok(json!({
            "url": self.url,
            "method": self.method,
            "headers": headers,
            "from": self.from,
            "assume": self.assume,
            "seed": self.seed,
        }))
    }

    fn answer(&self) -> Result<Value, Ending> {
        let body = self.body()?;
        // What cannot be a question is wrong usage, whoever would be asked.
        let question = Question::read(&body).map_err(|faults| Ending::Usage(told(&faults)))?;
        if let Some(api) = &self.api {
            return remote::post(api, self.token.as_deref(), "/usher/explain", &body);
        }
        let path = self
            .config
            .as_deref()
            .unwrap_or_else(|| unreachable!("clap requires one"));
        let loaded = config::load(path).map_err(config::Faults::ending)?;
        let around = Around {
            places: loaded.places.map(|(_, places)| places),
            keys: known_keys(&loaded.process.seal),
            rooms: rooms::presumed(&loaded.catalog, known_keys(&loaded.process.seal)),
        };
        let has_rooms = !around.rooms.is_empty();
        let snapshot = Snapshot::presumed(loaded.catalog);
        let draw = usher_node::draw();
        let mut answer = question
            .answer(&snapshot, &around, Mono::ZERO, draw)
            .map_err(|faults| Ending::Change(told(&faults)))?;
        if let Some(steps) = answer["steps"].as_array_mut() {
            let text = match has_rooms {
                true => {
                    "no running node was asked: monitored endpoints count as healthy, waiting rooms as empty"
                }
                false => "no running node was asked: monitored endpoints count as healthy",
            };
            steps.insert(0, json!({"step": "presumed", "text": text}));
        }
        Ok(answer)
    }
}

/// What is known beside the file without a running node.
struct Around {
    places: Option<Arc<Places>>,
    keys: Option<Keys>,
    rooms: Rooms,
}

impl Counts for Around {
    fn open_requests(&self, endpoint: EndpointIx) -> u32 {
        NoCounts.open_requests(endpoint)
    }
}

impl Surroundings for Around {
    fn place(&self, client: IpAddr) -> Option<Place> {
        self.places.as_ref()?.place(client)
    }

    fn locates(&self) -> bool {
        self.places.is_some()
    }

    fn sessions(&self) -> Arc<HashMap<Id, u64>> {
        Arc::default()
    }

    fn pins<'a>(&'a self, headers: &'a dyn Headers) -> Box<dyn Pins + 'a> {
        let keys = self.keys.as_ref();
        Box::new(Presented {
            headers,
            keys,
            table: None,
        })
    }

    fn room(&self, request: &Request<'_>) -> Result<Option<RoomSays>, Ambiguous> {
        rooms::ask(&self.rooms, request)
    }
}

fn told(faults: &[Fault]) -> anyhow::Error {
    let messages: Vec<&str> = faults.iter().map(|fault| &*fault.message).collect();
    anyhow!("{}", messages.join("; "))
}

/// Asks and prints.
pub(crate) fn explain(arguments: &Arguments) -> Ending {
    let answer = match arguments.answer() {
        Ok(answer) => answer,
        Err(ending) => return ending,
    };
    if arguments.json {
        say_all([format_args!("{answer:#}")])
    } else {
        say_all(lines(&answer, colourful()))
    }
}

fn lines(answer: &Value, colourful: bool) -> Vec<String> {
    let mut lines = vec![headline(answer, colourful), String::new()];
    let mut steps = Table::default();
    for step in array(&answer["steps"]) {
        steps.row([
            (text(&step["step"]), Tone::Dim),
            (text(&step["text"]), Tone::Plain),
        ]);
    }
    lines.extend(steps.lines(2, colourful));
    let chosen = [text(&answer["pool"]), text(&answer["endpoint"]["name"])];
    for (kind, key, chosen) in [
        ("pool", "pools", &chosen[0]),
        ("endpoint", "endpoints", &chosen[1]),
    ] {
        if array(&answer[key]).is_empty() {
            continue;
        }
        let mut table = Table::new(&["", kind, "usable", "state", "weight", "chance", "reason"]);
        for candidate in array(&answer[key]) {
            let (name, state) = (text(&candidate["name"]), text(&candidate["state"]));
            let mark = if name == *chosen { "→" } else { "" };
            let usable = if candidate["usable"] == true {
                "yes"
            } else {
                "no"
            };
            let chance = candidate["probability"].as_f64().unwrap_or(0.0) * 100.0;
            let tone = Tone::of_state(&state);
            table.row([
                (mark.to_owned(), Tone::Bold),
                (name, Tone::Plain),
                (usable.to_owned(), Tone::Plain),
                (state, tone),
                (text(&candidate["weight"]), Tone::Plain),
                (format!("{chance:.2} %"), Tone::Plain),
                (text(&candidate["reason"]), Tone::Dim),
            ]);
        }
        lines.push(String::new());
        lines.extend(table.lines(2, colourful));
    }
    lines
}

fn headline(answer: &Value, colourful: bool) -> String {
    let outcome = paint(&text(&answer["outcome"]), Tone::Bold, colourful);
    let pool = text(&answer["pool"]);
    let endpoint = &answer["endpoint"];
    if endpoint.is_null() {
        return format!("{outcome} with status {}", text(&answer["status"]));
    }
    let fallback = if answer["fallback"] == true {
        ", the fallback pool"
    } else {
        ""
    };
    format!(
        "{outcome} to {pool}/{} at {}{fallback}",
        text(&endpoint["name"]),
        place(endpoint)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_as_text() {
        let answer = json!({
            "outcome": "forward", "status": null, "pool": "eu", "fallback": false,
            "endpoint": {"name": "a", "address": "127.0.0.1", "port": 9001},
            "pools": [{"name": "eu", "usable": true, "state": "healthy", "reason": "all is well",
                       "weight": 0.7, "probability": 1}],
            "endpoints": [],
            "steps": [{"step": "host", "text": "shop.example.com is a load balancer"}],
        });
        assert_eq!(
            lines(&answer, false).join("\n"),
            "\
forward to eu/a at 127.0.0.1:9001

  host  shop.example.com is a load balancer

     pool  usable  state    weight  chance    reason
  →  eu    yes     healthy  0.7     100.00 %  all is well"
        );
    }
}
