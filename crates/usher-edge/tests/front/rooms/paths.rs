//! Paths that would be ways around a room, if it read them otherwise than an endpoint does.

use std::sync::Arc;

use usher_core::id::Id;
use usher_core::rules::Condition;
use usher_edge::http::rooms::Rooms;
use usher_rooms::route::PrefixMatch;

use super::house::{House, PATH, Plan, SECRET, jar_of, room};
use crate::block_on;
use crate::h2_traffic::{connect, read, request};
use crate::kit::HOST;

/// What some server takes for a path at or below `/sale`, and others do not.
const AROUND: [&str; 11] = [
    "/sale%2Fa",
    "/%2Fsale/a",
    "/x/..%2fsale/a",
    "/x%2f..%2fsale/a",
    "/sale;x=1",
    "/x/..;/sale",
    "/sale%5Ca",
    "/x%5c..%5Csale",
    "/q%2f..%2fsale/;x%2f..%2fa",
    "/sale;%2f..%2f../a",
    "/sale%2F..%2Fsale",
];

fn ruled(seats: u64) -> House {
    let plan = Plan::of(seats).room(|room| {
        let rule = r#"starts_with(http.request.uri.path, "/sale/open")"#;
        room.door.bypass = vec![Condition::parse(rule).expect("a rule")];
    });
    plan.open()
}

/// What a rule for `/sale/open` lets pass as received, and an endpoint takes for something else.
const THROUGH: [&str; 7] = [
    "/sale/open/../x",
    "/sale/open/%2e%2e/x",
    "/sale/open%2f..%2fx",
    "/sale/open/..%2Fx",
    "/sale/openX/../x",
    "/sale/open/..;/x",
    "/sale/open/..%5Cx",
];

fn kept_out_over_http_2(house: &House, paths: &[&str]) {
    block_on(async {
        let mut client = connect(&house.usher).await;
        for path in paths {
            client = client.ready().await.expect("ready");
            let (answer, _) = client
                .send_request(request("GET", path), true)
                .expect("send");
            let answer = answer.await.expect("answer");
            assert!(
                answer.headers().contains_key("usher-waiting-room"),
                "{path}"
            );
            read(answer).await;
        }
    });
}

#[test]
fn a_room_owns_what_an_endpoint_may_take_for_its_path() {
    let house = Plan::of(0).open();
    let raw = ["/sale\\a", "/x\\..\\sale"];
    for path in AROUND.into_iter().chain(raw) {
        let told = house.ask("GET", path, &[]);
        assert_eq!(told.status(), 200, "{path}");
        assert!(!told.is_inside(), "{path}");
        assert!(told.field("usher-waiting-room").is_some(), "{path}");
    }
    for path in ["/x%2Fsale", "/x;/sale", "/sale%20a", "/sale%252Fa"] {
        let told = house.ask("GET", path, &[]);
        assert!(told.is_inside(), "{path}");
        // The endpoint gets what was sent.
        let line = format!("GET {path} HTTP/1.1\r\n");
        assert!(told.body.starts_with(&line), "{path}");
    }
    kept_out_over_http_2(&house, &AROUND);
}

#[test]
fn a_rule_lets_pass_what_it_holds_for_however_the_path_is_read() {
    let house = ruled(0);
    for path in ["/sale/open", "/sale/open/a?b=/../x", "/sale/open/a/../b"] {
        assert!(house.ask("GET", path, &[]).is_inside(), "{path}");
    }
    for path in THROUGH.into_iter().chain(["/sale/open\\..\\x"]) {
        let told = house.ask("GET", path, &[]);
        assert!(!told.is_inside(), "{path}");
        assert!(told.field("usher-waiting-room").is_some(), "{path}");
    }
    kept_out_over_http_2(&house, &THROUGH);
}

#[test]
fn a_path_of_two_rooms_is_refused() {
    let house = Plan::of(0).open();
    let mut rooms = Rooms::new();
    let sale = room(house.owner.post.clone(), house.clock);
    rooms.add(Arc::new(sale), [(HOST, PATH)], PrefixMatch::Segments);
    let mut other = room(house.owner.post.clone(), house.clock);
    other.door.room = Id::from_bytes([8; 16]);
    other.door.jar = jar_of(other.door.room, SECRET);
    rooms.add(Arc::new(other), [(HOST, "/other")], PrefixMatch::Segments);
    house.usher.plane.open_rooms(rooms);
    let paths = ["/sale/..%2fother", "/other/..;/sale", "/sale/..%5Cother/a"];
    for path in paths {
        let told = house.ask("GET", path, &[]);
        assert_eq!(told.status(), 400, "{path}");
        assert!(told.body.contains("ambiguous-path"), "{}", told.body);
        assert_eq!(told.field("set-cookie"), None);
    }
    for path in ["/sale%2Fa", "/other/%2e%2e%2fx"] {
        assert_eq!(house.ask("GET", path, &[]).status(), 200, "{path}");
    }
    block_on(async {
        let mut client = connect(&house.usher).await;
        let (answer, _) = client
            .send_request(request("GET", paths[0]), true)
            .expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.status(), 400);
        read(answer).await;
    });
}
