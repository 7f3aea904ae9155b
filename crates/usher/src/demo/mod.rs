//! `usher demo`: two endpoints, a load balancer, a waiting room and, where the machine can run them,
//! browsers, to see it work in a minute.
//!
//! The load balancer is a real one, read from a real configuration text that is printed on demand;
//! only the endpoints are made up. They listen on free ports of loopback.

mod browsers;
mod endpoint;

use std::net::SocketAddr;

use anyhow::Context as _;
use usher_node::Listening;
use usher_node::Part;

use crate::terminal::{Tone, colourful, paint, say_all};
use crate::{Ending, config, run};
use endpoint::Endpoint;

/// Example: `usher demo`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  usher demo
  usher demo --listen 127.0.0.1:0 --api 127.0.0.1:0 --binding 127.0.0.1:0    # any free ports
  usher demo --print-config                            # a file like the one it runs")]
pub(crate) struct Arguments {
    /// Where the load balancer listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where the API listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8788")]
    api: SocketAddr,
    /// Where Workers reach browsers
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8790")]
    binding: SocketAddr,
    /// Print a configuration like the one it runs, and end
    #[arg(long)]
    print_config: bool,
}

/// The token of the demonstration's API; it is on loopback, and printed.
const TOKEN: &str = "demo";

/// Starts everything and stays until Ctrl-C.
pub(crate) fn demo(arguments: &Arguments) -> Ending {
    run::start_log();
    let endpoints = [
        Endpoint::start("blue", "#2563eb").context("start endpoint blue"),
        Endpoint::start("green", "#15803d").context("start endpoint green"),
    ];
    let [blue, green] = match endpoints {
        [Ok(blue), Ok(green)] => [blue.address(), green.address()],
        [Err(error), _] | [_, Err(error)] => return Ending::Environment(error),
    };
    let mut text = configuration(arguments, blue, green);
    let lacking = browsers::lacking();
    if lacking.is_none() {
        text.push_str(&browsers::configuration(arguments.binding));
    }
    if arguments.print_config {
        return say_all([text.trim_end()]);
    }
    let folder = match lacking {
        Some(_) => None,
        None => match browsers::Folder::make().context("make a folder for the browsers") {
            Ok(folder) => Some(folder),
            Err(error) => return Ending::Environment(error),
        },
    };
    if let Some(folder) = &folder {
        let path = serde_json::Value::from(folder.path().to_string_lossy());
        text.push_str(&format!("state_folder: {path}\n"));
    }
    let source = config::Source {
        name: "demo",
        folder: std::path::Path::new("."),
        variable: &|_| None,
    };
    match config::load_text(&text, &source) {
        Ok(loaded) => run::serve(
            || Ok((loaded, run::Role::default())),
            |listening| announce(listening, blue, green, lacking.as_deref()),
        ),
        Err(findings) => {
            let lines: Vec<String> = findings.lines().collect();
            Ending::Change(anyhow::anyhow!("{}", lines.join("\n")))
        }
    }
}

fn configuration(arguments: &Arguments, blue: SocketAddr, green: SocketAddr) -> String {
    let (listen, api) = (arguments.listen, arguments.api);
    let (blue, green) = (blue.port(), green.port());
    format!(
        r#"listen: {{http: ["{listen}"]}}
api:
  listen: "{api}"
  tokens: [{{name: demo, token: {TOKEN}, permissions: [admin]}}]
access_log: off
shutdown: {{grace: 2s}}
limits: {{monitor_interval_min: 1s, connections: 1000}}
zones: {{localhost: {{}}}}
monitors:
  web: {{type: http, path: /healthz, expected_codes: "200", interval: 2, timeout: 1, retries: 0}}
pools:
  colours:
    monitor: web
    origins:
      - {{name: blue, address: 127.0.0.1, port: {blue}, weight: 1}}
      - {{name: green, address: 127.0.0.1, port: {green}, weight: 0.5}}
load_balancers:
  localhost: {{proxied: true, default_pools: [colours], fallback_pool: colours}}
  "*.localhost": {{proxied: true, default_pools: [colours], fallback_pool: colours}}
waiting_rooms:
  sale:
    host: localhost
    path: /sale
    total_active_users: 1
    new_users_per_minute: 60
    usher: {{session_duration_seconds: 15, refresh_interval_seconds: 3}}
"#
    )
}

fn announce(listening: &[Listening], blue: SocketAddr, green: SocketAddr, lacking: Option<&str>) {
    let find = |part| listening.iter().find(|listening| listening.part == part);
    let (Some(http), Some(api)) = (find(Part::Http), find(Part::Api)) else {
        return;
    };
    let port = http.address.port();
    let bold = |text: &str| paint(text, Tone::Bold, colourful());
    let dim = |text: &str| paint(text, Tone::Dim, colourful());
    let api = api.address;
    // As it was called: it need not be where the shell looks.
    let usher = std::env::args()
        .next()
        .unwrap_or_else(|| "usher".to_owned());
    let mut lines = vec![
        String::new(),
        format!("  {}   http://localhost:{port}/", bold("load balancer")),
        format!(
            "  endpoint blue   http://{blue}/   {}",
            dim("two of three requests")
        ),
        format!(
            "  endpoint green  http://{green}/   {}",
            dim("one of three")
        ),
        format!(
            "  {}    http://localhost:{port}/sale   {}",
            bold("waiting room"),
            dim("one seat: open it in two browsers, and leave one alone for 15 s")
        ),
    ];
    let binding = find(Part::Binding).map(|binding| binding.address);
    match (binding, lacking) {
        (Some(binding), _) => lines.push(format!(
            "  {}        {}, binding at http://{binding}/v1   {}",
            bold("browsers"),
            "one ready, two at most",
            dim("for programs")
        )),
        (None, Some(lacking)) => {
            lines.push(format!("  {}        none: {lacking}", bold("browsers")));
        }
        (None, None) => {}
    }
    lines.extend([
        format!(
            "  {}       http://{api}/   {}",
            bold("dashboard"),
            dim(&format!("sign in with the token {TOKEN}"))
        ),
        String::new(),
        format!("  {}", bold("try")),
        format!(
            "  curl http://localhost:{port}/{}",
            dim("                      # whose turn is it?")
        ),
        format!(
            "  curl -X POST http://{blue}/fail{}",
            dim("            # within 2 s all goes to green")
        ),
        format!("  {usher} status --token {TOKEN} --api http://{api}"),
        format!("  {usher} explain --token {TOKEN} --api http://{api} http://localhost:{port}/"),
        format!("  curl -X POST http://{blue}/recover"),
        format!("  curl http://{api}/metrics"),
    ]);
    if let Some(binding) = binding {
        let tries = browsers::tries(api, binding, blue, TOKEN);
        lines.extend(tries.iter().flat_map(|(line, what)| {
            [
                format!("  {}", dim(&format!("# {what}"))),
                format!("  {line}"),
            ]
        }));
    }
    lines.extend([
        String::new(),
        format!(
            "  {}",
            dim("Ctrl-C ends it. `usher demo --print-config` shows a file like the one behind it.")
        ),
        String::new(),
    ]);
    // Who does not see them can still stop the demonstration.
    let _unseen = say_all(lines);
}
