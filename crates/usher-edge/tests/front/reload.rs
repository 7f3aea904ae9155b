//! What changes under open connections and requests, and what stays.

use std::thread;
use std::time::Instant;

use usher_core::snapshot::Counts as _;
use usher_edge::http::Plane;

use crate::kit::{Origin, PATIENCE, Setup, get, status};
use crate::seen::scrape;

/// Requests open at the endpoint with this name.
fn open(plane: &Plane, name: &str) -> u32 {
    let (snapshot, book) = plane.counted();
    let place = snapshot
        .endpoints()
        .iter()
        .position(|endpoint| endpoint.name == name)
        .expect("an endpoint");
    book.open_requests(usher_core::catalog::EndpointIx(place as u32))
}

#[test]
fn no_connection_is_cut_and_no_request_lost_by_any_change() {
    let (origin, other) = (Origin::echo(), Origin::echo());
    let mut setup = Setup::to(&[origin.address]);
    setup.workers = 2;
    let snapshots = [
        setup.snapshot(),
        Setup::to(&[other.address, origin.address]).snapshot(),
    ];
    let usher = setup.start();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let mut client = usher.client();
                scope.spawn(move || {
                    for _ in 0..200 {
                        client.send(get("/"));
                        assert_eq!(status(&client.message().0), 200);
                    }
                    // Closed only after the last request is over on the other side, too.
                    client.shut();
                    client.ended();
                })
            })
            .collect();
        let mut changes = 0;
        while changes < 50 || clients.iter().any(|client| !client.is_finished()) {
            usher.plane.publish(snapshots[changes % 2].clone());
            usher.plane.configure((*usher.plane.settings()).clone());
            changes += 1;
            thread::yield_now();
        }
    });
    assert_eq!(usher.plane.ledger().in_flight(), 0);
}

#[test]
fn counts_stay_with_their_endpoint_when_its_place_changes() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        peer.exactly(2);
        peer.answer("200 OK", "");
    });
    let setup = Setup::to(&[origin.address]);
    let moved = Setup::to(&[Origin::closed(), origin.address]).snapshot();
    let usher = setup.start();
    let mut client = usher.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(origin.said(), "asked");
    assert_eq!(open(&usher.plane, "e0"), 1);
    usher.plane.publish(moved);
    assert_eq!((open(&usher.plane, "e0"), open(&usher.plane, "e1")), (0, 1));
    client.send("go");
    client.message();
    client.shut();
    client.ended();
    assert_eq!(open(&usher.plane, "e1"), 0);
}

#[test]
fn series_of_what_is_gone_do_not_pile_up() {
    let origin = Origin::echo();
    let setup = Setup::to(&[Origin::closed(), origin.address]);
    let fewer = Setup::to(&[origin.address]).snapshot();
    let usher = setup.start();
    usher.ask(&get("/"));
    let seen = || scrape(&usher.plane);
    // The worker hands over what it counted a few times a second.
    let until = Instant::now() + PATIENCE;
    while !seen().contains(r#"endpoint="e1",code="200"} 1"#) {
        assert!(Instant::now() < until, "never counted");
        thread::yield_now();
    }
    usher.plane.publish(fewer);
    let after = seen();
    assert!(!after.contains(r#"endpoint="e1""#), "{after}");
    assert!(
        after.contains(r#"usher_http_request_seconds_count{load_balancer="shop.example.com"} 1"#),
        "{after}"
    );
}
