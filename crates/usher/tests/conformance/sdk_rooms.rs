//! The official clients, unmodified, through every method of waiting rooms.

use std::process::Command;

use serde_json::{Value, json};

use crate::programs::root;
use crate::support::config::TOKEN;
use crate::support::{Config, Usher};

#[test]
fn the_python_client_does_everything_it_can_with_rooms() {
    let python = root().join(".tools/venv/bin/python");
    drive(Command::new(python), "sdk_rooms.py");
}

#[test]
fn the_typescript_client_does_everything_it_can_with_rooms() {
    let mut node = Command::new("node");
    node.env("NODE_PATH", root().join(".tools/node/node_modules"));
    drive(node, "sdk_rooms.cjs");
}

fn drive(mut client: Command, script: &str) {
    let config = Config::new().set(&["store"], json!({"url": "sqlite:var/usher.db"}));
    let usher = Usher::start(&config);
    let base = format!("http://{}/client/v4", usher.address("api"));
    let script = root().join("crates/usher/tests/conformance").join(script);
    let output = client.arg(script).args([&base, TOKEN]).output();
    let output = output.unwrap_or_else(|e| panic!("{e} (scripts/setup test makes it)"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}\n{}", usher.stderr());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told, json!({"rooms": 7}));
}
