//! `usher demo` does what it tells people to try.

use serde_json::Value;

use crate::support::process::Folder;
use crate::support::{Usher, Visitor, Wire, eventually};

#[test]
fn the_demonstration_shares_fails_over_and_takes_back() {
    let args = ["demo", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"];
    let usher = Usher::start_command(Folder::new(), &args);
    let mut wire = usher.connect();
    let mut turn = || {
        let text = wire.get("localhost", "/").text();
        let [blue, green] = ["blue", "green"].map(|name| text.contains(name));
        assert!(blue != green, "one endpoint's name: {text}");
        if blue { "blue" } else { "green" }
    };
    let blue = (0..300).filter(|_| turn() == "blue").count();
    assert!(
        (150..250).contains(&blue),
        "two of three requests: {blue} of 300"
    );

    let sale = |visitor: &mut Visitor| {
        let mut wire = usher.connect();
        let answer = visitor.send_to("localhost", &mut wire, "GET", "/sale", "");
        answer.field("usher-waiting-room").map(str::to_owned)
    };
    let (mut first, mut second) = (Visitor::new(), Visitor::new());
    assert_eq!(sale(&mut first), None);
    assert_eq!(sale(&mut second).as_deref(), Some("waiting; refresh=3"));
    assert_eq!(sale(&mut first), None);

    let api = format!("http://{}", usher.address("api"));
    let status = || -> Value {
        let ended = usher
            .folder()
            .run(&["status", "--token", "demo", "--api", &api, "--json"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let endpoint =
        |name: &str| crate::support::api::named(&status()["pools"][0]["endpoints"], name).clone();
    let port = endpoint("blue")["port"].as_u64().unwrap();
    let order = |path: &str| {
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert!(Wire::connect(address).exchange(head).status() < 300);
    };
    order("/fail");
    eventually("blue to be down", || {
        (endpoint("blue")["state"] == "critical").then_some(())
    });
    assert!((0..50).all(|_| turn() == "green"));
    order("/recover");
    eventually("blue to be back", || (turn() == "blue").then_some(()));
    drop(wire); // or it would be kept to the end of the grace
    assert_eq!(usher.stop().code(), Some(0));
}

#[test]
fn the_file_behind_it_is_a_good_one() {
    let folder = Folder::new();
    let shown = folder.run(&["demo", "--print-config"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    folder.write("usher.yaml", &shown.stdout);
    let ended = folder.run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
}
