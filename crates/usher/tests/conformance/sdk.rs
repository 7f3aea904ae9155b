//! The official clients of the API that we are compatible with, unmodified: each builds a load
//! balancer from nothing, tries every method on the way, and takes it all down again.

use std::process::Command;

use serde_json::{Value, json};

use crate::programs::root;
use crate::support::config::TOKEN;
use crate::support::{Config, Endpoint, Usher};

#[test]
fn the_python_client_does_everything_it_can() {
    let python = root().join(".tools/venv/bin/python");
    drive(Command::new(python), "sdk.py");
}

#[test]
fn the_typescript_client_does_everything_it_can() {
    let mut node = Command::new("node");
    node.env("NODE_PATH", root().join(".tools/node/node_modules"));
    drive(node, "sdk.cjs");
}

fn drive(mut client: Command, script: &str) {
    let endpoints = ["one", "two"].map(Endpoint::named);
    let config = Config::new()
        .set(&["store"], json!({"url": "sqlite:var/usher.db"}))
        .set(&["notifications"], json!({"allow_private": true}));
    let usher = Usher::start(&config);
    let base = format!("http://{}/client/v4", usher.address("api"));
    client
        .arg(root().join("crates/usher/tests/conformance").join(script))
        .args([&base, TOKEN, &usher.address("http").to_string()])
        .args(
            endpoints
                .each_ref()
                .map(|it| it.address().port().to_string()),
        );
    let output = client.output();
    let output = output.unwrap_or_else(|e| panic!("{script}: {e} (scripts/setup test makes it)"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{script}\n{out}\n{err}\n{}",
        usher.stderr()
    );
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["bodies"].as_array().map(Vec::len), Some(2), "{told}");
    println!("{script}: {told}");
}
