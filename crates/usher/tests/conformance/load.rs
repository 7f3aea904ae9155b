//! Under load: nothing is lost by a reload, a dead endpoint, or many streams at once.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::programs::{Nginx, h2load, run};
use crate::soak;
use crate::support::config::HOST;
use crate::support::process::Folder;
use crate::support::tls::Authority;
use crate::support::{Config, Usher, eventually};

#[test]
fn h2load_loses_nothing() {
    let nginx = Nginx::start();
    let authority = Authority::new();
    let pair = authority.pair(&[HOST]);
    let folder = Folder::new();
    folder.write("shop.pem", &pair.certificate);
    folder.write("shop.key", &pair.key);
    let config = Config::serving([nginx.origin("a")])
        .set(&["listen", "https"], json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            json!([{"cert": "shop.pem", "key": "shop.key"}]),
        );
    folder.write("usher.yaml", config.text());
    let usher = Usher::start_in(folder);
    let count = if soak() { 100_000 } else { 4_000 };
    for (kind, more) in [
        ("https", &["--max-concurrent-streams", "16"][..]),
        ("https", &["--h1"]),
        ("http", &["--max-concurrent-streams", "16"]),
        ("http", &["--h1"]),
    ] {
        let line = h2load(&usher, kind, count, "10", more);
        println!("h2load {kind} {more:?}: {line}");
    }
}

#[test]
fn connections_over_http2_that_end_lose_nothing() {
    let nginx = Nginx::over_http2(37);
    let config = Config::serving([nginx.origin("a")])
        .set(&["pools", "main", "usher"], json!({"http2": true}));
    let usher = Usher::start(&config);
    let count = if soak() { 100_000 } else { 4_000 };
    let streams = &["--max-concurrent-streams", "10"];
    let line = h2load(&usher, "http", count, "10", streams);
    println!("nginx ends a connection after 37 requests: {line}");
}

#[test]
fn reloads_under_wrk_lose_nothing() {
    let (requests_min, reloads_min) = if soak() { (100_000, 50) } else { (3_000, 10) };
    let nginx = [Nginx::start(), Nginx::start()];
    let config = Config::serving([nginx[0].origin("a"), nginx[1].origin("b")]).monitored("main");
    let usher = Usher::start(&config);
    let (mut requests, mut reloads) = (0, 0);
    while requests < requests_min || reloads < reloads_min {
        let mut wrk = Wrk::start(usher.address("http"), 3);
        while !wrk.is_finished() {
            reloads += 1;
            // Another load balancer comes and goes, the weights of the one under load change.
            let weight = json!(f64::from(reloads % 10 + 1) / 10.0);
            let changed = config
                .clone()
                .set(&["pools", "main", "origins", "0", "weight"], weight)
                .balancer(&format!("round{reloads}.example.com"), &["main"]);
            usher.reload(&changed);
        }
        requests += wrk.finish();
    }
    println!("wrk: {requests} requests over {reloads} reloads: 0 failed, 0 resets");
}

#[test]
fn an_endpoint_that_is_killed_costs_nothing_after_its_detection() {
    let [a, b] = [Nginx::start(), Nginx::start()];
    let addresses = [a.address(), b.address()];
    let config = Config::serving([a.origin("a"), b.origin("b")]).monitored("main");
    let usher = Usher::start(&config);
    let mut wrk = Wrk::start(usher.address("http"), 2);
    b.kill();
    eventually("b to be down", || {
        (usher.state_of("main/b") == "critical").then_some(())
    });
    wrk.wait(); // what was on its way to b when it died may have failed

    let explained = usher.explain(&format!("http://{HOST}/small"));
    assert_eq!(explained["endpoint"]["name"], "a", "{explained}");
    let after = Wrk::start(usher.address("http"), if soak() { 20 } else { 2 }).finish();
    let name = |address: SocketAddr| format!("{address}\n");
    assert_eq!(usher.get("/small").text(), name(addresses[0]));

    let _b = Nginx::start_on(addresses[1]);
    eventually("traffic to come back to b", || {
        (usher.get("/small").text() == name(addresses[1])).then_some(())
    });
    println!(
        "killed b: {after} requests after its detection, 0 failed; started b: traffic is back"
    );
}

#[test]
fn many_curls_are_shared_out_by_weight() {
    let [a, b] = [Nginx::start(), Nginx::start()];
    let mut half = b.origin("b");
    half["weight"] = json!(0.5);
    let usher = Usher::start(&Config::serving([a.origin("a"), half]));
    let count = if soak() { 6000 } else { 900 };
    let http = usher.address("http");
    let url = format!("http://{http}/small?[1-{count}]");
    let answers = run(
        "curl",
        &[
            "--silent",
            "--fail",
            "--header",
            &format!("Host: {HOST}"),
            &url,
        ],
    );
    let of_a = answers
        .lines()
        .filter(|line| *line == a.address().to_string())
        .count();
    assert_eq!(answers.lines().count(), count);
    let share = of_a as f64 / count as f64;
    println!("curl: {count} requests, {of_a} of them to a (weight 1 beside 0.5): {share:.4}");
    // Five standard deviations around two thirds.
    let deviation = (2.0 / 9.0 / count as f64).sqrt();
    assert!((share - 2.0 / 3.0).abs() < 5.0 * deviation, "{share}");
}

/// wrk over some seconds, with its report.
pub struct Wrk(Child);

impl Wrk {
    pub fn start(address: SocketAddr, seconds: u32) -> Self {
        let child = Command::new("wrk")
            .args(["--threads", "1", "--connections", "16", "--timeout", "10s"])
            .args([
                "--header",
                &format!("Host: {HOST}"),
                "--duration",
                &format!("{seconds}s"),
            ])
            .arg(format!("http://{address}/small"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("wrk (scripts/setup test installs it)");
        Self(child)
    }

    pub fn is_finished(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn wait(&mut self) {
        self.0.wait().unwrap();
    }

    /// The number of requests, of which none may have failed.
    pub fn finish(self) -> u64 {
        let output = self.0.wait_with_output().unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{report}");
        for bad in ["Socket errors", "Non-2xx"] {
            assert!(!report.contains(bad), "{report}");
        }
        let line = report
            .lines()
            .find(|line| line.contains("requests in"))
            .expect(&report);
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}
