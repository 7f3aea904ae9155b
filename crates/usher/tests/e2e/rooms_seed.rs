//! `usher run --upstream`: a waiting room before one site, from two numbers in the environment.

use serde_json::json;

use crate::support::api::{named, result};
use crate::support::config::TOKEN;
use crate::support::process::Folder;
use crate::support::{Endpoint, Usher, Visitor, eventually};

fn start(endpoint: &Endpoint, seats: &str, seconds: &str, page: Option<&str>) -> Usher {
    let folder = Folder::new();
    let upstream = format!("http://{}", endpoint.address());
    let mut args = vec![
        "run",
        "--upstream",
        &upstream,
        "--listen",
        "127.0.0.1:0",
        "--api",
        "127.0.0.1:0",
    ];
    if let Some(page) = page {
        folder.write("page.html", page);
        args.extend(["--page", "page.html"]);
    }
    let mut command = folder.command(&args);
    command
        .env("TOTAL_ACTIVE_USERS", seats)
        .env("SESSION_DURATION_SECONDS", seconds)
        .env("USHER_TOKEN", TOKEN);
    Usher::spawn(folder, command)
}

#[test]
fn the_second_waits_and_enters_when_the_first_has_fallen_idle() {
    let endpoint = Endpoint::named("a");
    let usher = start(&endpoint, "1", "1", None);
    let [mut first, mut second] = [(); 2].map(|()| Visitor::new());
    assert!(first.enters(&usher, "/", "a"));
    let page = second.get(&usher, "/any/path?x=1");
    assert_eq!(
        (page.status(), page.field("usher-waiting-room")),
        (200, Some("waiting; refresh=30"))
    );
    assert_eq!(Visitor::new().get(&usher, "/favicon.ico").text(), "a");
    // Every host of the site is behind the room.
    let mut wire = usher.connect();
    let other = wire.get("other.example.com", "/");
    assert!(other.field("usher-waiting-room").is_some(), "{other:?}");
    eventually("the first falls idle", || {
        second.enters(&usher, "/", "a").then_some(())
    });
    assert!(
        !first.enters(&usher, "/", "a"),
        "it is new, and the seat is taken"
    );
    // Nothing was written anywhere.
    assert_eq!(std::fs::read_dir(usher.folder().path()).unwrap().count(), 0);
}

#[test]
fn the_api_shows_it_and_changes_nothing() {
    let endpoint = Endpoint::named("a");
    let usher = start(
        &endpoint,
        "0",
        "30",
        Some("<title>wait</title>{{refreshIntervalSeconds}}"),
    );
    let page = Visitor::new().get(&usher, "/");
    assert_eq!(page.text(), "<title>wait</title>30");
    assert_eq!(page.field("refresh"), Some("30"));
    let shown = eventually("somebody waits", || {
        let room = named(&usher.state()["rooms"], "seed").clone();
        (room["waiting"] == 1).then_some(room)
    });
    assert_eq!(
        (&shown["status"], &shown["seats"]),
        (&json!("queueing"), &json!(0))
    );
    let told = usher.explain("http://any.example.com/");
    assert_eq!(
        (&told["outcome"], &told["room"]["name"]),
        (&json!("wait"), &json!("seed"))
    );
    let told = usher.explain("http://any.example.com/favicon.ico");
    assert_eq!(
        (&told["outcome"], &told["endpoint"]["name"]),
        (&json!("bypass"), &json!("upstream"))
    );
    let accounts = result(&usher.api_get("/client/v4/accounts"));
    let rooms = format!(
        "/client/v4/accounts/{}/waiting_rooms",
        accounts[0]["id"].as_str().unwrap()
    );
    let listed = result(&usher.api_get(&rooms));
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let room = named(&listed, "seed");
    let shown = |key: &str| room[key].clone();
    assert_eq!(
        (shown("host"), shown("total_active_users")),
        (json!("*"), json!(0))
    );
    assert_eq!(room["usher"]["session_duration_seconds"], 30);
}

#[test]
fn what_is_missing_is_asked_for() {
    let folder = Folder::new();
    let run = |args: &[&str], environment: &[(&str, &str)]| -> (i32, String) {
        let mut command = folder.command(args);
        command
            .env_remove("TOTAL_ACTIVE_USERS")
            .env_remove("SESSION_DURATION_SECONDS")
            .env_remove("REDIS_URL")
            .envs(environment.iter().copied());
        let output = command.output().unwrap();
        let code = output.status.code().expect("ended by itself");
        (code, String::from_utf8(output.stderr).unwrap())
    };
    let upstream = ["run", "--upstream", "http://127.0.0.1:1"];
    let (code, told) = run(&upstream, &[]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("TOTAL_ACTIVE_USERS is not set"), "{told}");
    let numbers = [
        ("TOTAL_ACTIVE_USERS", "1"),
        ("SESSION_DURATION_SECONDS", "30"),
    ];
    let shared = [
        numbers[0],
        numbers[1],
        ("REDIS_URL", "redis://:secret@127.0.0.1"),
    ];
    let (code, told) = run(&upstream, &shared);
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains("not built yet") && !told.contains("secret"),
        "{told}"
    );
    folder.write("page.html", "<p>\n{{#open}}");
    let (code, told) = run(
        &[&upstream[..], &["--page", "page.html"]].concat(),
        &numbers,
    );
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("page.html: "), "{told}");
    folder.write("page.html", "x".repeat(1_048_577));
    let (code, told) = run(
        &[&upstream[..], &["--page", "page.html"]].concat(),
        &numbers,
    );
    assert_eq!(code, 1, "{told}");
    let large = "--page page.html has 1048577 bytes, more than 1048576";
    assert!(told.contains(large), "{told}");
    assert_eq!(run(&["run", "--upstream", "shop"], &numbers).0, 2);
    assert_eq!(run(&["run"], &numbers).0, 2);
    assert_eq!(
        run(
            &["run", "--config", "usher.yaml", "--listen", "127.0.0.1:0"],
            &numbers
        )
        .0,
        2
    );
}
