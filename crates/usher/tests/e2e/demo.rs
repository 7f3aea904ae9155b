//! `usher demo` does what it tells people to try.

use std::time::Instant;

use serde_json::Value;

use crate::support::browsers::PATIENCE_OF_BROWSERS;
use crate::support::process::Folder;
use crate::support::{Usher, Visitor, Wire, eventually};

fn demonstration() -> Usher {
    let args = ["--listen", "--api", "--binding"].map(|it| [it, "127.0.0.1:0"]);
    let args = [&["demo"], args.as_flattened()].concat();
    Usher::start_command(Folder::new(), &args)
}

#[test]
fn the_demonstration_shares_fails_over_and_takes_back() {
    let usher = demonstration();
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

#[test]
fn the_demonstration_draws_its_own_page() {
    let usher = demonstration();
    if usher.listeners("binding").is_empty() {
        println!("SKIPPED: this machine can run no browsers");
        return;
    }
    let authorization = "Authorization: Bearer demo\r\nContent-Type: application/json\r\n";
    let get = |path: &str| {
        let answer = usher.api(&format!("GET {path} HTTP/1.1\r\n{authorization}"), "");
        crate::support::api::result(&answer)
    };
    let accounts = get("/client/v4/accounts");
    let account = accounts[0]["id"].as_str().unwrap();
    let state = get("/client/v4/usher/state");
    let blue = crate::support::api::named(&state["pools"][0]["endpoints"], "blue");
    let wish = serde_json::json!({"url": format!("http://127.0.0.1:{}/", blue["port"])});
    let path = format!("/client/v4/accounts/{account}/browser-rendering/screenshot");
    let head = format!("POST {path} HTTP/1.1\r\n{authorization}");
    let deadline = Instant::now() + PATIENCE_OF_BROWSERS;
    let picture = loop {
        let answer = usher.api(&head, &wish.to_string());
        // The first browser may still be on its way.
        if answer.status() != 503 {
            break answer;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
    };
    assert_eq!(picture.status(), 200, "{picture:?}");
    assert!(picture.body.starts_with(b"\x89PNG\r\n"), "{picture:?}");
    // Stopped, it takes its folder along.
    assert_eq!(usher.stop().code(), Some(0));
}
