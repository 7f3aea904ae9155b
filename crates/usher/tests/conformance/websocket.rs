//! A WebSocket client and server of others: Python's `websockets`, through usher.

use crate::programs::{Server, python, root, run};
use crate::support::config::HOST;
use crate::support::endpoint::origin_at;
use crate::support::{Config, Usher};

#[test]
fn python_talks_to_python() {
    let script = root().join("crates/usher/tests/conformance/websocket_echo.py");
    let script = script.to_str().unwrap();
    let server = Server::start(&python(), &[script, "serve"]);
    let usher = Usher::start(&Config::serving([origin_at("echo", server.address)]));
    let through = usher.address("http").to_string();
    let direct = server.address.to_string();
    let direct = run(python(), &[script, "talk", &direct, HOST]);
    let report = run(python(), &[script, "talk", &through, HOST]);
    assert_eq!(report, direct);
    println!("websockets: {}", report.trim());
}
