//! `explain` and the running node decide by the same code, and so say the same.

use serde_json::{Value, json};

use crate::support::config::HOST;
use crate::support::process::Folder;
use crate::support::{Config, Endpoint, Usher};

const URL: &str = "http://shop.example.com/";

/// What the command prints for this configuration.
fn explained(config: &Config, args: &[&str]) -> Value {
    let folder = Folder::with(&config.text());
    let all = [&["explain", "--config", "usher.yaml", "--json"], args].concat();
    let ended = folder.run(&all);
    assert_eq!(ended.code, 0, "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout))
}

fn two_pools() -> ([Endpoint; 3], Config) {
    let endpoints = ["a", "b", "c"].map(Endpoint::named);
    let [a, b, c] = &endpoints;
    let mut half = b.origin("b");
    half["weight"] = json!(0.5);
    let config = Config::new()
        .pool("eu", [a.origin("a"), half])
        .pool("us", [c.origin("c")])
        .balancer(HOST, &["eu", "us"])
        .monitored("eu")
        .monitored("us");
    (endpoints, config)
}

#[test]
fn the_fixed_keys_are_there() {
    let (_endpoints, config) = two_pools();
    let told = explained(&config, &[URL]);
    assert_eq!(told["outcome"], "forward");
    assert_eq!(
        (&told["status"], &told["fallback"]),
        (&json!(null), &json!(false))
    );
    assert_eq!(
        (&told["load_balancer"], &told["pool"]),
        (&json!(HOST), &json!("eu"))
    );
    for key in ["session", "room"] {
        assert!(told.get(key).is_some(), "{key}: {told}");
    }
    let endpoint = &told["endpoint"];
    assert!(
        endpoint["name"].is_string()
            && endpoint["address"] == "127.0.0.1"
            && endpoint["port"].is_number()
    );
    for list in ["pools", "endpoints"] {
        for object in told[list].as_array().unwrap() {
            for key in ["name", "usable", "state", "reason", "weight", "probability"] {
                assert!(object.get(key).is_some(), "{list}: {key}: {object}");
            }
        }
    }
    for step in told["steps"].as_array().unwrap() {
        assert!(
            step["step"].is_string() && step["text"].is_string(),
            "{step}"
        );
    }
    assert!(!told["steps"].as_array().unwrap().is_empty());
}

#[test]
fn probabilities_are_exact() {
    let (_endpoints, config) = two_pools();
    let config = config
        .set(
            &["load_balancers", HOST, "steering_policy"],
            json!("random"),
        )
        .set(
            &["load_balancers", HOST, "random_steering"],
            json!({"pool_weights": {"eu": 0.8, "us": 0.5}}),
        );
    let told = explained(&config, &["--assume", "pool us=healthy", URL]);
    let probability = |list: &str, name: &str| {
        told[list]
            .as_array()
            .unwrap()
            .iter()
            .find(|object| object["name"] == name)
            .unwrap()["probability"]
            .as_f64()
            .unwrap()
    };
    assert!((probability("pools", "eu") - 0.8 / 1.3).abs() < 1e-4);
    assert!((probability("pools", "us") - 0.5 / 1.3).abs() < 1e-4);
    if told["pool"] == "eu" {
        assert!((probability("endpoints", "a") - 2.0 / 3.0).abs() < 1e-4);
    }
}

#[test]
fn assumptions_change_the_decision() {
    let (_endpoints, config) = two_pools();
    let told = explained(&config, &["--assume", "pool eu=critical", URL]);
    assert_eq!(
        (&told["pool"], &told["endpoint"]["name"]),
        (&json!("us"), &json!("c"))
    );
    let told = explained(&config, &["--assume", "endpoint eu/a=down", URL]);
    assert_eq!(told["endpoint"]["name"], "b");
    let told = explained(&config, &["--assume", "weight eu/a=0", URL]);
    assert_eq!(told["endpoint"]["name"], "b");
    let nothing = [
        "--assume",
        "pool eu=disabled",
        "--assume",
        "pool us=disabled",
        URL,
    ];
    let told = explained(&config, &nothing);
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("refuse"), &json!(530))
    );
}

#[test]
fn a_seed_fixes_the_draw() {
    let (_endpoints, config) = two_pools();
    let draw = |seed: &str| explained(&config, &["--seed", seed, URL])["endpoint"]["name"].clone();
    for seed in ["1", "2", "3"] {
        assert_eq!(draw(seed), draw(seed));
    }
    let drawn: std::collections::BTreeSet<String> = (0..12)
        .map(|seed| draw(&seed.to_string()).to_string())
        .collect();
    assert_eq!(drawn.len(), 2, "both endpoints are drawn by some seed");
}

#[test]
fn a_host_of_no_load_balancer_is_said() {
    let (_endpoints, config) = two_pools();
    let told = explained(&config, &["http://unknown.example.net/"]);
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("refuse"), &json!(404))
    );
    assert_eq!(told["load_balancer"], json!(null));
}

#[test]
fn the_running_node_says_what_it_does() {
    let (endpoints, config) = two_pools();
    endpoints[0].set_healthy(false);
    let usher = Usher::start(&config);
    let told = usher.explain(URL);
    assert_eq!(
        (&told["pool"], &told["endpoint"]["name"]),
        (&json!("eu"), &json!("b"))
    );
    assert_eq!(usher.get("/").text(), "b");
    let a = crate::support::api::named(&told["endpoints"], "a");
    assert_eq!(
        (&a["usable"], &a["state"]),
        (&json!(false), &json!("critical"))
    );
    let reason = a["reason"].as_str().unwrap();
    assert!(
        reason.contains("Response code mismatch error"),
        "why it is down: {reason}"
    );
}

#[test]
fn the_command_asks_the_running_node() {
    let (endpoints, config) = two_pools();
    endpoints[0].set_healthy(false);
    endpoints[1].set_healthy(false);
    let usher = Usher::start(&config);
    let api = format!("http://{}", usher.address("api"));
    let mut command = usher
        .folder()
        .command(&["explain", "--api", &api, "--json", URL]);
    let output = command
        .env("USHER_TOKEN", crate::support::config::TOKEN)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["pool"], &told["endpoint"]["name"]),
        (&json!("us"), &json!("c"))
    );
    assert_eq!(told["pools"], usher.explain(URL)["pools"]);
    assert_eq!(usher.get("/").text(), "c");
}

#[test]
fn status_shows_pools_and_endpoints() {
    let (_endpoints, config) = two_pools();
    let usher = Usher::start(&config);
    let api = format!("http://{}", usher.address("api"));
    let run = |args: &[&str]| {
        let output = usher
            .folder()
            .command(args)
            .env("USHER_TOKEN", crate::support::config::TOKEN)
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let table = run(&["status", "--api", &api]);
    for word in ["eu", "us", "healthy", HOST] {
        assert!(table.contains(word), "{word}: {table}");
    }
    assert!(!table.contains('\u{1b}'), "no colours: {table}");
    let json: Value = serde_json::from_str(&run(&["status", "--api", &api, "--json"])).unwrap();
    assert_eq!(json["node"], "test1");
}

#[test]
fn people_get_sentences() {
    let (_endpoints, config) = two_pools();
    let folder = Folder::with(&config.text());
    let ended = folder.run(&["explain", "--config", "usher.yaml", URL]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for word in ["eu", HOST, "healthy"] {
        assert!(ended.stdout.contains(word), "{word}: {}", ended.stdout);
    }
    assert!(serde_json::from_str::<Value>(&ended.stdout).is_err());
}

#[test]
fn a_wrong_assumption_is_refused_by_name() {
    let (_endpoints, config) = two_pools();
    let folder = Folder::with(&config.text());
    for wrong in [
        "weight eu/a=0.205",
        "pool uk=critical",
        "endpoint eu/z=down",
        "pool eu=sleepy",
        "nonsense",
    ] {
        let ended = folder.run(&["explain", "--config", "usher.yaml", "--assume", wrong, URL]);
        let exists = !["uk", "eu/z"].iter().any(|name| wrong.contains(name));
        assert_eq!(ended.code, if exists { 2 } else { 1 }, "{wrong}: {ended:?}");
        let word = wrong
            .split([' ', '=', '/'])
            .find(|word| ["uk", "z", "sleepy", "nonsense", "0.205"].contains(word));
        assert!(ended.stderr.contains(word.unwrap()), "{wrong}: {ended:?}");
    }
}

#[test]
fn fields_that_nobody_reads_are_named_beside_the_answer() {
    let (_endpoints, config) = two_pools();
    let usher = Usher::start(&config);
    let body = json!({"url": URL, "asume": ["pool eu=critical"]});
    let answer = usher.api_post("/client/v4/usher/explain", &body);
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer["success"], true, "{answer}");
    let messages = answer["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{answer}");
    assert_eq!(messages[0]["source"]["pointer"], "/asume");
    assert!(
        messages[0]["message"]
            .as_str()
            .unwrap()
            .contains("\"assume\"")
    );
}

#[test]
fn what_is_no_question_is_wrong_usage() {
    let (_endpoints, config) = two_pools();
    let folder = Folder::with(&config.text());
    for (args, word) in [
        (&["-H", "no colon"][..], "no colon"),
        (&["-H", "two words: x"], "two words"),
        (&["--from", "me"], "me"),
        (&["--method", "a b"], "A B"),
        (&["--api", "http://127.0.0.1:1"], "--api"),
    ] {
        let all = [&["explain", "--config", "usher.yaml", URL], args].concat();
        let ended = folder.run(&all);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
    let ended = folder.run(&["explain", URL]);
    assert_eq!(ended.code, 2, "{ended:?}");
    for word in ["--config", "--api"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let (_endpoints, config) = two_pools();
    let folder = Folder::with(&config.text());
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ended = folder
        .command(&["explain", "--config", "usher.yaml", URL])
        .stdout(full.unwrap())
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
}
