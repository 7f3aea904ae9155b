//! Two fronts with the same sockets: what one does not take, the other does.

use usher_core::request::Scheme;

use crate::block_on;
use crate::kit::{Origin, PATIENCE, Peer, Setup, Usher, get, status};

fn with_workers(origin: &Origin, workers: usize) -> Usher {
    let mut setup = Setup::to(&[origin.address]);
    setup.workers = workers;
    setup.start()
}

/// Lets `after` have the sockets of `before`, without accepting from them.
fn held(before: &Usher, after: &Usher) {
    after.front.hold();
    let listening = before.front.listening()[0];
    let sockets = before.front.sockets(listening.id).expect("duplicates");
    let adopted = after.front.adopt(sockets, before.address, Scheme::Http);
    assert_eq!(adopted.expect("adopted").address, before.address);
}

fn asking(usher: &Usher) -> Vec<Peer> {
    let ask = |_| {
        let mut client = usher.client();
        client.send(get("/"));
        client
    };
    (0..32).map(ask).collect()
}

#[test]
fn connections_that_wait_are_served_by_whoever_follows_however_many_workers_it_has() {
    for (workers_before, workers_after) in [(1, 1), (4, 1), (1, 4), (3, 2)] {
        let origin = Origin::echo();
        let before = with_workers(&origin, workers_before);
        let after = with_workers(&origin, workers_after);
        held(&before, &after);
        for mut client in asking(&before) {
            assert_eq!(status(&client.message().0), 200, "the first serves alone");
        }
        let taken = [before.front.listening()[0].id];
        block_on(async { before.front.drain_beside(&taken, PATIENCE).await.await });
        let waiting = asking(&before);
        after.front.open();
        for mut client in waiting {
            assert_eq!(status(&client.message().0), 200);
        }
        let counted = [&before, &after].map(|usher| usher.plane.ledger().connections());
        assert_eq!(
            counted[0], 0,
            "{workers_before} workers, then {workers_after}"
        );
    }
}

#[test]
fn a_follower_that_gives_up_has_taken_nothing() {
    let origin = Origin::echo();
    let before = with_workers(&origin, 2);
    let after = with_workers(&origin, 2);
    held(&before, &after);
    let clients = asking(&before);
    after.front.stop();
    for mut client in clients.into_iter().chain(asking(&before)) {
        assert_eq!(status(&client.message().0), 200);
    }
}
