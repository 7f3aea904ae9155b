//! Waiting rooms in a real Chromium: twenty people and five seats, and all that the page may say.
//!
//! Each person is a browser context of one Chromium: cookies, cache and windows are its own, which is
//! what makes a visitor; twenty processes would tell no more.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::programs::root;
use crate::soak;
use crate::support::config::{HOST, TOKEN};
use crate::support::endpoint::Visit;
use crate::support::process::Folder;
use crate::support::tls::Authority;
use crate::support::{Config, Endpoint, Usher};

const CHROMIUM: &str = "/usr/bin/chromium";
/// A host whose zone always uses HTTPS.
const SECURE_HOST: &str = "shop.example.net";

#[test]
fn twenty_browsers_and_five_seats() {
    let endpoint = Endpoint::scripted(site);
    let usher = rooms(&endpoint);
    let elsewhere = Endpoint::scripted(elsewhere);
    let http = usher.address("http").port();
    let https = usher.address("https").port();
    let api = usher.address("api");
    let scene = json!({
        "base": format!("http://{HOST}:{http}"),
        "secure": format!("https://{SECURE_HOST}:{https}"),
        "elsewhere": format!("http://news.example.org:{}", elsewhere.address().port()),
        "api": format!("http://{api}"),
        "token": TOKEN,
        "rooms": ids(&usher),
    });
    play(
        &scene,
        &["order", "scriptless", "looks", "cookieless", "arrivals"],
    );
}

/// What people see who come from the room that this one follows: one seat, two browsers.
#[test]
fn the_second_enters_when_the_first_falls_idle() {
    let endpoint = Endpoint::scripted(site);
    let folder = Folder::new();
    let upstream = format!("http://{}", endpoint.address());
    let mut command = folder.command(&[
        "run",
        "--upstream",
        &upstream,
        "--listen",
        "127.0.0.1:0",
        "--api",
        "off",
    ]);
    command
        .env("TOTAL_ACTIVE_USERS", "1")
        .env("SESSION_DURATION_SECONDS", if soak() { "30" } else { "20" });
    let usher = Usher::spawn(folder, command);
    let http = usher.address("http").port();
    play(&json!({"base": format!("http://{HOST}:{http}")}), &["seed"]);
}

fn play(scene: &Value, stories: &[&str]) {
    let mut command = Command::new(root().join(".tools/venv/bin/python"));
    command
        .arg(root().join("crates/usher/tests/conformance/room.py"))
        .arg(CHROMIUM);
    // As scripts/setup test installs it.
    let axe = root().join("dashboard/node_modules/axe-core/axe.min.js");
    let shots = std::env::var_os("USHER_SHOTS");
    for (name, value) in [
        ("--axe", axe.exists().then(|| OsString::from(&axe))),
        ("--shots", shots),
    ] {
        if let Some(value) = value {
            command.arg(name).arg(value);
        }
    }
    let played = command
        .arg(scene.to_string())
        .args(stories)
        .stdin(Stdio::null())
        .status()
        .expect("python (scripts/setup test installs it)");
    assert!(played.success());
}

/// A page on every path.
fn site(visit: &mut Visit) {
    while visit.request().is_some() {
        visit.send(page(
            "<!doctype html><html lang=en><title>Inside</title><h1>Inside</h1>",
        ));
    }
}

/// A page of another site that links to wherever its query says.
fn elsewhere(visit: &mut Visit) {
    while let Some(request) = visit.request() {
        let to = request
            .target()
            .split_once("?to=")
            .map_or("/", |(_, to)| to);
        visit.send(page(&format!(
            "<!doctype html><html lang=en><title>News</title><a href=\"{to}\">There</a>"
        )));
    }
}

fn page(html: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n{html}",
        html.len()
    )
}

fn rooms(endpoint: &Endpoint) -> Usher {
    let folder = Folder::new();
    let authority = Authority::new();
    let pair = authority.pair(&[SECURE_HOST]);
    folder.write("net.pem", &pair.certificate);
    folder.write("net.key", &pair.key);
    let mut config = Config::serving([endpoint.origin("a")])
        .balancer(SECURE_HOST, &["main"])
        .set(&["zones", "example.net"], json!({"always_use_https": true}))
        .set(&["listen", "https"], json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            json!([{"cert": "net.pem", "key": "net.key"}]),
        )
        .set(&["store"], json!({"url": "sqlite:usher.db"}));
    // A page without a script comes back so often; the others are called when it is time.
    let quick = |mut room: Value| {
        room["usher"] = json!({"refresh_interval_seconds": 1});
        room
    };
    let same_site = |word: &str| quick(json!({"cookie_attributes": {"samesite": word}}));
    let here: [(&str, u64, Value); 12] = [
        ("sale", 5, json!({})),
        ("plain", 1, quick(json!({}))),
        ("one", 1, json!({})),
        ("shut", 0, json!({})),
        ("held", 5, json!({"queue_all": true})),
        ("closed", 5, json!({"queueing_method": "reject"})),
        ("tiny", 0, json!({"usher": {"max_queue_length": 1}})),
        ("ko", 0, json!({"default_template_language": "ko-KR"})),
        ("ar", 0, json!({"default_template_language": "ar-EG"})),
        ("strict", 1, same_site("strict")),
        ("lax", 1, same_site("lax")),
        ("auto", 1, quick(json!({}))),
    ];
    for (name, total, more) in here {
        config = config.set(
            &["waiting_rooms", name],
            room(name, HOST, "example.com", total, more),
        );
    }
    let none = json!({"cookie_attributes": {"samesite": "none", "secure": "always"}});
    for (name, more) in [("none", none), ("safe", json!({}))] {
        config = config.set(
            &["waiting_rooms", name],
            room(name, SECURE_HOST, "example.net", 1, quick(more)),
        );
    }
    folder.write("usher.yaml", config.text());
    Usher::start_in(folder)
}

fn room(name: &str, host: &str, zone: &str, total: u64, more: Value) -> Value {
    let mut room = json!({
        "zone": zone,
        "host": host,
        "path": format!("/{name}"),
        "total_active_users": total,
        "new_users_per_minute": 100_000,
        "session_duration": 30,
        "usher": {"refresh_interval_seconds": 10},
    });
    for (key, value) in more.as_object().expect("an object") {
        match value.as_object() {
            Some(inner) if key == "usher" => {
                for (key, value) in inner {
                    room["usher"][key] = value.clone();
                }
            }
            _ => room[key] = value.clone(),
        }
    }
    room
}

/// The ids of all rooms by their names.
fn ids(usher: &Usher) -> Value {
    use crate::support::api::result;
    let mut ids = json!({});
    let zones = result(&usher.api_get("/client/v4/zones?per_page=50"));
    for zone in zones.as_array().expect("a list") {
        let zone = zone["id"].as_str().expect("an id");
        let path = format!("/client/v4/zones/{zone}/waiting_rooms?per_page=100");
        for room in result(&usher.api_get(&path)).as_array().expect("a list") {
            ids[room["name"].as_str().expect("a name")] = room["id"].clone();
        }
    }
    ids
}
