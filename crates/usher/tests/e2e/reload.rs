//! A changed file: taken object by object, without a cut connection, or not at all.

use serde_json::json;

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::{Config, Endpoint, Usher, eventually};

const OTHER: &str = "other.example.com";

#[test]
fn a_change_is_taken_and_open_connections_live_on() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let config = Config::serving([a.origin("a")])
        .pool("second", [a.origin("a")])
        .balancer(OTHER, &["second"]);
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").text(), "a");
    usher.reload(&config.clone().pool("main", [b.origin("b")]));
    assert_eq!(wire.get(HOST, "/").text(), "b", "on the same connection");
    assert_eq!(
        wire.get(OTHER, "/").text(),
        "a",
        "the other load balancer is as it was"
    );
}

#[test]
fn a_request_in_flight_ends_where_it_began() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfirst");
        // The second half when another request says that the reload is done.
        visit.request();
    });
    let gate = std::sync::Arc::new(std::sync::Barrier::new(2));
    let at_endpoint = std::sync::Arc::clone(&gate);
    let slow = Endpoint::scripted(move |visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfirst");
        at_endpoint.wait();
        visit.send("second");
        visit.request();
    });
    let config = Config::serving([slow.origin("a")]);
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    slow.next();
    usher.reload(&Config::serving([endpoint.origin("b")]));
    gate.wait();
    assert_eq!(wire.response().text(), "firstsecond");
}

#[test]
fn a_load_balancer_may_come_and_go() {
    let a = Endpoint::named("a");
    let config = Config::serving([a.origin("a")]);
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    assert_eq!(wire.get(OTHER, "/").status(), 404);
    usher.reload(&config.clone().balancer(OTHER, &["main"]));
    assert_eq!(wire.get(OTHER, "/").status(), 200);
    usher.reload(&config);
    assert_eq!(wire.get(OTHER, "/").status(), 404);
}

#[test]
fn a_wrong_file_never_replaces_a_good_one() {
    let a = Endpoint::named("a");
    let config = Config::serving([a.origin("a")]);
    let usher = Usher::start(&config);
    for wrong in [
        "pools: [",
        "",
        "nonsense: true\n",
        &config
            .clone()
            .set(&["pools", "main", "origins", "0", "weight"], json!(1.4))
            .text(),
        &config.clone().balancer(OTHER, &["no-such-pool"]).text(),
    ] {
        usher.reload_text(wrong, "rejected");
        assert_eq!(usher.get("/").text(), "a");
    }
    usher.expect_stderr("no-such-pool");
    usher.reload(&config.balancer(OTHER, &["main"]));
    assert_eq!(
        usher.connect().get(OTHER, "/").status(),
        200,
        "the next good file is taken"
    );
}

#[test]
fn a_changed_file_is_seen_without_a_signal() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let usher = Usher::start(&Config::serving([a.origin("a")]));
    assert_eq!(usher.get("/").text(), "a");
    usher
        .folder()
        .write("usher.yaml", Config::serving([b.origin("b")]).text());
    eventually("the change to be seen", || {
        (usher.get("/").text() == "b").then_some(())
    });
}

#[test]
fn a_file_that_was_replaced_by_rename_is_seen() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let usher = Usher::start(&Config::serving([a.origin("a")]));
    let folder = usher.folder();
    let new = folder.write("new.yaml", Config::serving([b.origin("b")]).text());
    std::fs::rename(new, folder.path().join("usher.yaml")).unwrap();
    eventually("the change to be seen", || {
        (usher.get("/").text() == "b").then_some(())
    });
}

#[test]
fn the_revision_moves_with_a_change_only() {
    let a = Endpoint::named("a");
    let config = Config::serving([a.origin("a")]);
    let usher = Usher::start(&config);
    let before = usher.state()["revision"].clone();
    usher.reload(&config.clone().balancer(OTHER, &["main"]));
    assert_ne!(usher.state()["revision"], before);
    let before = usher.state()["revision"].clone();
    usher.reload_text("pools: [", "rejected");
    assert_eq!(usher.state()["revision"], before);
}

#[test]
fn reloads_under_load_lose_nothing() {
    let endpoint = Endpoint::scripted(|visit| {
        while let Some(request) = visit.request() {
            visit.send(ok(request.target()));
        }
    });
    let config = Config::serving([endpoint.origin("a")]);
    let usher = Usher::start(&config);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut wire = usher.connect();
                    for n in 0..500 {
                        let path = format!("/{n}");
                        assert_eq!(wire.get(HOST, &path).text(), path);
                    }
                })
            })
            .collect();
        let mut round = 0;
        while !clients
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
            && round < 20
        {
            round += 1;
            let host = format!("round{round}.example.com");
            usher.reload(&config.clone().balancer(&host, &["main"]));
        }
    });
}
