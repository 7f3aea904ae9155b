//! Resources kept as text: exported, planned, applied, and watched.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::support::api::result;
use crate::support::config::{HOST, TOKEN};
use crate::support::process::{Ended, Folder};
use crate::support::{Config, Endpoint, PATIENCE, Usher, eventually};

fn with_store(config: Config) -> Config {
    config.set(&["store"], json!({"url": "sqlite:var/usher.db"}))
}

/// The command with the node's address and token.
fn command(usher: &Usher, folder: &Folder, args: &[&str]) -> Command {
    let mut command = folder.command(args);
    let api = format!("http://{}", usher.address("api"));
    command.args(["--api", &api]).env("USHER_TOKEN", TOKEN);
    command
}

fn run(usher: &Usher, args: &[&str]) -> Ended {
    let output = command(usher, usher.folder(), args).output().unwrap();
    Ended {
        code: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn good(usher: &Usher, args: &[&str]) -> String {
    let ended = run(usher, args);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (0, ""),
        "{args:?}: {ended:?}"
    );
    ended.stdout
}

fn file(port: u16, weight: f64) -> String {
    format!(
        "\
monitors:
  web: {{type: tcp, port: {port}, interval: 60, timeout: 2, retries: 0}}
pools:
  eu:
    origins:
      - {{name: a, address: 127.0.0.1, port: {port}, weight: {weight}}}
load_balancers:
  {HOST}:
    proxied: true
    default_pools: [eu]
    fallback_pool: eu
"
    )
}

#[test]
fn a_file_is_applied_exported_and_applied_again_without_a_change() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&with_store(Config::new()));
    let port = endpoint.address().port();
    usher.folder().write("shop.yaml", file(port, 1.0));
    let unasked = run(&usher, &["apply", "-f", "shop.yaml"]);
    assert_eq!(unasked.code, 1, "{unasked:?}");
    let plan = format!(
        "+ monitor web\n+ pool eu\n+ load balancer {HOST}\n3 to create, 0 to change, 0 to delete\n"
    );
    assert_eq!(unasked.stdout, plan);
    assert_eq!(good(&usher, &["export"]), "{}\n", "nothing was changed");

    let done =
        format!("{plan}created monitor web\ncreated pool eu\ncreated load balancer {HOST}\n");
    assert_eq!(good(&usher, &["apply", "-f", "shop.yaml", "--yes"]), done);
    eventually("traffic", || (usher.get("/").status() == 200).then_some(()));
    for args in [
        &["apply", "-f", "shop.yaml"][..],
        &["apply", "-f", "shop.yaml", "--prune"],
    ] {
        assert_eq!(good(&usher, args), "nothing to change\n");
    }
    let exported = good(&usher, &["export"]);
    let wanted = format!(
        "\
monitors:
  web:
    type: tcp
    port: {port}
    timeout: 2
    retries: 0
pools:
  eu:
    origins:
      - name: a
        address: \"127.0.0.1\"
        port: {port}
load_balancers:
  {HOST}:
    proxied: true
    default_pools: [eu]
    fallback_pool: eu
"
    );
    assert_eq!(exported, wanted);
    usher.folder().write("exported.yaml", &exported);
    let again = good(&usher, &["apply", "-f", "exported.yaml", "--prune"]);
    assert_eq!(again, "nothing to change\n");

    // The same text makes the same of another node, whatever its ids are.
    let other = Usher::start(&with_store(Config::new()));
    other.folder().write("exported.yaml", &exported);
    good(&other, &["apply", "-f", "exported.yaml", "--yes"]);
    assert_eq!(good(&other, &["export"]), exported);
}

#[test]
fn a_change_is_told_field_by_field_and_only_prune_deletes() {
    let usher = Usher::start(&with_store(Config::new()));
    usher.folder().write("shop.yaml", file(9001, 1.0));
    good(&usher, &["apply", "-f", "shop.yaml", "--yes"]);
    // A dry run compares with what is in force.
    eventually("the first file is in force", || {
        let state = usher.state();
        (state["load_balancers"][0]["name"] == HOST).then_some(())
    });
    let text = file(9001, 0.5).replace("  web:", "  tcp:");
    usher.folder().write("shop.yaml", &text);
    let plan = good(&usher, &["apply", "-f", "shop.yaml", "--yes", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let steps = plan["plan"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{plan}");
    assert_eq!(
        (&steps[0]["action"], &steps[0]["name"]),
        (&json!("create"), &json!("tcp"))
    );
    let change = json!([{"field": "origins[0].weight", "before": 1, "after": 0.5}]);
    assert_eq!(
        (&steps[1]["name"], &steps[1]["changes"]),
        (&json!("eu"), &change)
    );
    assert_eq!(
        steps[1]["moves"]["traffic"][0]["load_balancer"], HOST,
        "what a dry run says: {plan}"
    );
    let pruned = good(&usher, &["apply", "-f", "shop.yaml", "--prune", "--yes"]);
    assert_eq!(
        pruned,
        "- monitor web\n0 to create, 0 to change, 1 to delete\ndeleted monitor web\n"
    );
    // What a failed export left behind is not taken for a wish.
    usher.folder().write("none.yaml", "# nothing\n");
    let refused = run(&usher, &["apply", "-f", "none.yaml", "--prune", "--yes"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("is empty"), "{refused:?}");
    assert_ne!(good(&usher, &["export"]), "{}\n");
    usher.folder().write("none.yaml", "{}");
    good(&usher, &["apply", "-f", "none.yaml", "--prune", "--yes"]);
    assert_eq!(good(&usher, &["export"]), "{}\n");
}

#[test]
fn rooms_go_out_and_in_with_their_rules() {
    let usher = Usher::start(&with_store(Config::new()));
    let text = format!(
        "\
waiting_rooms:
  sale:
    host: {HOST}
    path: /sale
    total_active_users: 300
    new_users_per_minute: 200
    rules:
      - expression: \"starts_with(http.request.uri.path, \\\"/sale/static/\\\")\"
      - expression: ssl
        enabled: false
"
    );
    usher.folder().write("rooms.yaml", &text);
    let done = good(&usher, &["apply", "-f", "rooms.yaml", "--yes"]);
    assert!(done.ends_with("created waiting room sale\n"), "{done}");
    let zone = usher.zone();
    let rooms = result(&usher.call("GET", &format!("{zone}/waiting_rooms"), ""));
    let path = format!(
        "{zone}/waiting_rooms/{}/rules",
        rooms[0]["id"].as_str().unwrap()
    );
    let rules = result(&usher.call("GET", &path, ""));
    assert_eq!(
        (&rules[0]["enabled"], &rules[1]["enabled"]),
        (&json!(true), &json!(false))
    );
    let exported = good(&usher, &["export"]);
    assert!(exported.contains(&text), "{exported}");
    for args in [
        &["apply", "-f", "rooms.yaml"][..],
        &["apply", "-f", "rooms.yaml", "--prune"],
    ] {
        assert_eq!(good(&usher, args), "nothing to change\n");
    }
    usher.folder().write(
        "rooms.yaml",
        text.replace("expression: ssl", "expression: not ssl"),
    );
    good(&usher, &["apply", "-f", "rooms.yaml", "--yes"]);
    let rules = result(&usher.call("GET", &path, ""));
    assert_eq!(rules[1]["expression"], "not ssl");
    usher.folder().write("rooms.yaml", "{}");
    good(&usher, &["apply", "-f", "rooms.yaml", "--prune", "--yes"]);
    assert_eq!(
        result(&usher.call("GET", &format!("{zone}/waiting_rooms"), "")),
        json!([])
    );
}

#[test]
fn what_is_wrong_is_told_before_anything_is_changed() {
    let endpoint = Endpoint::named("a");
    let config = with_store(Config::new().pool("main", [endpoint.origin("a")]));
    let usher = Usher::start(&config);
    let text = "\
monitors:
  new: {interval: 1}
pools:
  main: {enabled: false, origins: [{name: a, address: 192.0.2.1}]}
  eu: {monitor: none, origins: [{name: a, address: 192.0.2.1}]}
";
    usher.folder().write("bad.yaml", text);
    let bad = run(&usher, &["apply", "-f", "bad.yaml", "--yes"]);
    assert_eq!((bad.code, bad.stdout.as_str()), (1, ""), "{bad:?}");
    let lines: Vec<&str> = bad.stderr.lines().collect();
    let wanted = [
        "bad.yaml:4:3: pool main is declared in the node's own file: change it there",
        "bad.yaml:5:3: pool eu: monitor \"none\" is neither in the file nor on the node",
    ];
    assert_eq!(lines, wanted, "{bad:?}");
    // What only the node can know is tried as a dry run.
    let text = "monitors:\n  new: {interval: 86400, timeout: 10}\n  other: {}\n";
    usher.folder().write("bad.yaml", text);
    let bad = run(&usher, &["apply", "-f", "bad.yaml", "--yes"]);
    assert_eq!(bad.code, 1, "{bad:?}");
    assert!(bad.stderr.contains("interval"), "{bad:?}");
    assert_eq!(good(&usher, &["export"]), "{}\n", "nothing was changed");
    // Whose fault it is decides how it ends.
    let folder = usher.folder();
    let api = format!("http://{}", usher.address("api"));
    let ended = |args: &[&str]| folder.run(args).code;
    assert_eq!(ended(&["export", "--api", &api, "--token", "wrong"]), 1);
    assert_eq!(ended(&["export", "--api", "ftp://127.0.0.1"]), 2);
    assert_eq!(
        ended(&["export", "--api", "http://127.0.0.1:1", "--token", TOKEN]),
        3
    );
    assert_eq!(ended(&["apply", "-f", "missing.yaml", "--token", TOKEN]), 1);
}

#[test]
fn a_watch_tells_changes_and_outlives_the_node() {
    // An address of its own, so that nothing takes the port between the two nodes.
    let process = std::process::id().to_be_bytes();
    let host = format!("127.{}.{}.77", process[2] | 1, process[3]);
    let config =
        with_store(Config::new().pool("main", [json!({"name": "a", "address": "192.0.2.1"})]));
    let at = |port: u16| {
        config
            .clone()
            .set(&["api", "listen"], json!(format!("{host}:{port}")))
    };
    let usher = Usher::start(&at(0));
    let port = usher.address("api").port();
    let folder = Folder::new();
    let mut child = command(&usher, &folder, &["status", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, lines) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let next = |wanted: &str| loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|_| panic!("no line with {wanted:?}"));
        if line.contains(wanted) {
            return line;
        }
    };
    next("pool main: ");
    let accounts = result(&usher.api_get("/client/v4/accounts"));
    let path = format!(
        "/client/v4/accounts/{}/load_balancers/pools",
        accounts[0]["id"].as_str().unwrap()
    );
    let body = json!({"name": "eu", "origins": [{"name": "b", "address": "192.0.2.1"}]});
    result(&usher.api_post(&path, &body));
    next("pool eu: ");
    drop(usher);
    next("asking on");
    let _usher = Usher::start(&at(port));
    next("the node answers again");
    next("pool eu: gone");
    child.kill().unwrap();
    child.wait().unwrap();
}
