//! How many connections there may be.

use crate::kit::{Origin, Setup, get, status};

#[test]
fn at_the_limit_new_connections_wait_for_room() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.limits.connections = 2;
    setup.workers = 2;
    let usher = setup.start();
    let mut clients = [usher.client(), usher.client()];
    for client in &mut clients {
        client.send(get("/"));
        client.message();
    }
    let mut third = usher.client();
    third.send(get("/"));
    assert_eq!(usher.plane.ledger().connections(), 2);
    let [first, mut second] = clients;
    drop(first);
    assert_eq!(status(&third.message().0), 200);
    second.send(get("/"));
    assert_eq!(status(&second.message().0), 200);
}

#[test]
fn one_client_has_so_many_unless_it_is_a_trusted_proxy() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.limits.connections_per_client = 1;
    let mut settings = setup.settings.clone();
    let usher = setup.start();
    let mut first = usher.client();
    first.send(get("/"));
    first.message();
    usher.client().ended();
    settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("net")];
    usher.plane.configure(settings);
    let mut second = usher.client();
    second.send(get("/"));
    assert_eq!(status(&second.message().0), 200);
}

#[test]
fn a_raised_limit_lets_in_who_waits() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.limits.connections = 1;
    let mut settings = setup.settings.clone();
    let usher = setup.start();
    let mut first = usher.client();
    first.send(get("/"));
    first.message();
    let mut second = usher.client();
    second.send(get("/"));
    settings.limits.connections = 2;
    usher.plane.configure(settings);
    assert_eq!(status(&second.message().0), 200);
}

#[test]
fn connections_are_spread_over_the_workers() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.workers = 4;
    let usher = setup.start();
    let mut clients: Vec<_> = (0..32).map(|_| usher.client()).collect();
    for client in &mut clients {
        client.send(get("/"));
        client.message();
    }
    // Each worker keeps connections to endpoints of its own, and needed one at a time.
    let said: Vec<_> = (0..4).map(|_| origin.said()).collect();
    assert_eq!(
        said,
        [
            "connection 0",
            "connection 1",
            "connection 2",
            "connection 3"
        ]
    );
    assert!(origin.is_silent());
}
