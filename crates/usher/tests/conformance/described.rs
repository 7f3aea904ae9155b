//! Nothing that the description of the API allows, and nothing near it, makes the node fail.

use std::process::Command;

use serde_json::json;

use crate::programs::{python, root};
use crate::soak;
use crate::support::config::TOKEN;
use crate::support::{Config, Usher};

#[test]
fn no_call_that_is_described_is_answered_with_a_fault_of_the_node() {
    let config = Config::new().set(&["store"], json!({"url": "sqlite:var/usher.db"}));
    let usher = Usher::start(&config);
    let base = format!("http://{}/client/v4", usher.address("api"));
    let (phases, examples) = match soak() {
        true => ("coverage,fuzzing", "40"),
        false => ("fuzzing", "2"),
    };
    let script = root().join("crates/usher/tests/conformance/described.py");
    let output = Command::new(python())
        .arg(script)
        .args([&base, TOKEN, phases, examples])
        .output();
    let output = output.unwrap_or_else(|e| panic!("python: {e} (scripts/setup test makes it)"));
    let told = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{told}\n{complaint}\n{}",
        usher.stderr()
    );
    let count = told.lines().find(|line| line.contains("generated, "));
    println!("schemathesis: {}", count.unwrap_or_default().trim());
    // It is whole, and says so itself.
    assert_eq!(usher.api("GET /readyz HTTP/1.1\r\n", "").status(), 200);
}
