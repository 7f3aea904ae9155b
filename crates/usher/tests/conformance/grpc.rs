//! A gRPC client and server of others: Python's `grpcio`, through usher, over HTTP/2 on both sides.

use serde_json::json;

use crate::programs::{Server, python, root, run};
use crate::support::config::HOST;
use crate::support::endpoint::origin_at;
use crate::support::{Config, Usher};

#[test]
fn every_kind_of_call_ends_as_it_does_without_usher() {
    let script = root().join("crates/usher/tests/conformance/grpc_calls.py");
    let script = script.to_str().unwrap();
    let server = Server::start(&python(), &[script, "serve"]);
    let config = Config::serving([origin_at("calls", server.address)])
        .set(&["pools", "main", "usher", "http2"], json!(true));
    let usher = Usher::start(&config);
    let through = usher.address("http").to_string();
    let direct = server.address.to_string();
    let direct = run(python(), &[script, "talk", &direct, HOST]);
    let report = run(python(), &[script, "talk", &through, HOST]);
    assert_eq!(report, direct);
    assert!(report.contains("both streams 50"), "{report}");
    println!("grpcio:\n{report}");
    // None of its errors is one of ours: a deadline is the client's own.
    for line in usher.access_log(300) {
        assert!(
            line["error"].is_null() || line["error"] == "client-gone",
            "{line}"
        );
    }
}
