//! A WebSocket client and server of others: Python's `websockets`, through usher.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::programs::{root, run};
use crate::support::config::HOST;
use crate::support::endpoint::origin_at;
use crate::support::{Config, Usher};

struct Echo(Child);

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn python_talks_to_python() {
    let python = root().join(".tools/venv/bin/python");
    let script = root().join("crates/usher/tests/conformance/websocket_echo.py");
    let script = script.to_str().unwrap();
    let mut child = Command::new(&python)
        .args([script, "serve"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e} (scripts/setup test makes it)", python.display()));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let _echo = Echo(child);
    let server = line
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("no address: {line:?}"));
    let usher = Usher::start(&Config::serving([origin_at("echo", server)]));
    let through = usher.address("http").to_string();
    let direct = run(&python, &[script, "talk", line.trim(), HOST]);
    let report = run(&python, &[script, "talk", &through, HOST]);
    assert_eq!(report, direct);
    println!("websockets: {}", report.trim());
}
