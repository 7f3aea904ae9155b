//! The official clients, unmodified, through every method of browsers, with real browsers behind it.
//!
//! Where the machine refuses namespaces these say so and do nothing.

use std::process::Command;

use serde_json::{Value, json};

use crate::programs::{python, root};
use crate::support::config::TOKEN;
use crate::support::{Config, Usher};

const READING: &str = "reading-token-with-enough-letters";

#[test]
fn the_python_client_does_everything_it_can_with_browsers() {
    drive(Command::new(python()), "sdk_browsers.py");
}

#[test]
fn the_typescript_client_does_everything_it_can_with_browsers() {
    let mut node = Command::new("node");
    node.env("NODE_PATH", root().join(".tools/node/node_modules"));
    drive(node, "sdk_browsers.cjs");
}

fn drive(mut client: Command, script: &str) {
    let quick = json!({"browsers_per_second": 50, "browsers_burst": 50});
    let narrow = json!({"concurrent_browsers": 1, "browsers_per_second": 50, "browsers_burst": 50});
    let config = Config::new()
        .browsers()
        .set(&["browsers", "pools", "WEU", "max"], json!(3))
        .set(&["accounts", "default", "limits"], quick)
        .set(&["accounts", "narrow"], json!({"limits": narrow}))
        .set(
            &["api", "tokens"],
            json!([
                {"name": "admin", "token": TOKEN, "permissions": ["admin"]},
                {"name": "reading", "token": READING, "permissions": ["browsers:read"],
                 "accounts": ["default"]},
            ]),
        );
    let usher = Usher::start(&config);
    let Some(session) = usher.api_acquire() else {
        return;
    };
    let path = usher.browsers_path("browser-run");
    usher.api_call("DELETE", &format!("{path}/devtools/browser/{session}"));
    let base = format!("http://{}/client/v4", usher.address("api"));
    let script = root().join("crates/usher/tests/conformance").join(script);
    let output = client.arg(script).args([&base, TOKEN, READING]).output();
    let output = output.unwrap_or_else(|e| panic!("{e} (scripts/setup test makes it)"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}\n{}", usher.stderr());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told, json!({"closed": ["NormalClosure", "NormalClosure"]}));
}
