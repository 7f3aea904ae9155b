//! Where visitors are: a database that the operator brings, swapped and damaged while it is in use.

use serde_json::json;

use crate::support::api::result;
use crate::support::config::HOST;
use crate::support::message::Message;
use crate::support::process::Folder;
use crate::support::{Config, Endpoint, Usher, eventually};

#[path = "../../../usher-edge/src/geo/tests/mmdb.rs"]
#[allow(dead_code, reason = "the tests of the reader need more of it")]
mod mmdb;

use mmdb::Value::{Map, Text};

const FILE: &str = "country.mmdb";

/// A database that knows where two networks are.
fn database(first: &'static str, second: &'static str) -> Vec<u8> {
    let form = mmdb::Form {
        kind: "Test-Country",
        ip_version: 6,
        record_bits: 24,
    };
    let country = |code| Map(vec![("country", Map(vec![("iso_code", Text(code))]))]);
    let records = [
        ("192.0.2.0/25", country(first)),
        ("198.51.100.0/24", country(second)),
    ];
    mmdb::write(form, &records)
}

/// Pools by country: the endpoint of each answers with its name.
fn by_country() -> ([Endpoint; 3], Config) {
    let endpoints = ["asia", "america", "elsewhere"].map(Endpoint::named);
    let [asia, america, elsewhere] = &endpoints;
    let config = Config::new()
        .pool("asia", [asia.origin("a")])
        .pool("america", [america.origin("b")])
        .pool("elsewhere", [elsewhere.origin("c")])
        .balancer(HOST, &["elsewhere"])
        .set(
            &["load_balancers", HOST, "country_pools"],
            json!({"KR": ["asia"], "US": ["america"]}),
        )
        .set(&["trusted_proxies"], json!(["127.0.0.0/8"]))
        .set(&["geo"], json!({"database": FILE}));
    (endpoints, config)
}

fn folder(config: &Config, database: impl AsRef<[u8]>) -> Folder {
    let folder = Folder::with(&config.text());
    folder.write(FILE, database);
    folder
}

/// What a visitor from `client` gets.
fn from(usher: &Usher, client: &str) -> Message {
    usher.exchange(format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {client}\r\n\r\n"
    ))
}

#[test]
fn the_country_of_a_visitor_is_that_of_its_address() {
    let (_endpoints, config) = by_country();
    let usher = Usher::start_in(folder(&config, database("KR", "US")));
    for (client, pool, whence) in [
        ("192.0.2.1", "asia", "KR, by the geo database"),
        ("::ffff:192.0.2.1", "asia", "KR, by the geo database"),
        ("198.51.100.7", "america", "US, by the geo database"),
        (
            "192.0.2.200",
            "elsewhere",
            "NL, that of the node: the geo database does not know the address",
        ),
        (
            "2001:db8::1",
            "elsewhere",
            "NL, that of the node: the geo database does not know the address",
        ),
    ] {
        assert_eq!(from(&usher, client).text(), pool, "{client}");
        let question = json!({"url": format!("http://{HOST}/"), "from": client});
        let told = result(&usher.api_post("/client/v4/usher/explain", &question));
        let file = usher.folder().run(&[
            "explain",
            "--config",
            "usher.yaml",
            "--json",
            "--from",
            client,
            &format!("http://{HOST}/"),
        ]);
        assert_eq!(file.code, 0, "{file:?}");
        let file: serde_json::Value = serde_json::from_str(&file.stdout).unwrap();
        for told in [&told, &file] {
            assert_eq!(told["pool"], pool, "{client}: {told:#}");
            let steps = told["steps"].as_array().unwrap();
            let step = steps
                .iter()
                .find(|step| step["step"] == "location")
                .unwrap();
            assert!(step["text"].as_str().unwrap().contains(whence), "{step}");
        }
    }
}

#[test]
fn an_assumed_country_stands_above_the_database() {
    let (_endpoints, config) = by_country();
    let folder = folder(&config, database("KR", "US"));
    let url = format!("http://{HOST}/");
    let told = folder.run(&[
        "explain",
        "--config",
        "usher.yaml",
        "--from",
        "192.0.2.1",
        "--assume",
        "country=US",
        &url,
    ]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.starts_with("forward to america/b"), "{told:?}");
    assert!(told.stdout.contains("US, by assumption"), "{told:?}");
}

#[test]
fn another_database_is_taken_when_the_file_changes() {
    let (_endpoints, config) = by_country();
    let usher = Usher::start_in(folder(&config, database("KR", "US")));
    let mut wire = usher.connect();
    let ask = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
    assert_eq!(wire.exchange(&ask).text(), "asia");
    let new = usher.folder().write("new.mmdb", database("US", "KR"));
    std::fs::rename(new, usher.path(FILE)).unwrap();
    eventually("the other database", || {
        (wire.exchange(&ask).text() == "america").then_some(())
    });
    // And back, by a signal: without waiting for anybody to look.
    usher.folder().write(FILE, database("KR", "US"));
    usher.reload(&config);
    assert_eq!(wire.exchange(&ask).text(), "asia", "on the same connection");
    usher.reload(&config.set(&["geo"], json!(null)));
    assert_eq!(wire.exchange(&ask).text(), "elsewhere", "without one");
}

#[test]
fn a_database_that_is_damaged_or_gone_changes_nothing() {
    let (_endpoints, config) = by_country();
    let whole = database("KR", "US");
    let usher = Usher::start_in(folder(&config, &whole));
    for (damage, what) in [
        (
            whole[..whole.len() / 2].to_vec(),
            "is no complete MMDB database",
        ),
        (Vec::new(), "is no complete MMDB database"),
        (
            b"not a database at all".to_vec(),
            "is no complete MMDB database",
        ),
    ] {
        usher.folder().write(FILE, damage);
        usher.reload_text(&config.text(), "rejected");
        usher.expect_stderr(what);
        assert_eq!(from(&usher, "192.0.2.1").text(), "asia", "the old one");
    }
    std::fs::remove_file(usher.path(FILE)).unwrap();
    usher.reload_text(&config.text(), "rejected");
    assert_eq!(from(&usher, "192.0.2.1").text(), "asia", "the old one");
    usher.folder().write(FILE, database("US", "KR"));
    usher.reload(&config);
    assert_eq!(from(&usher, "192.0.2.1").text(), "america", "mended");
}

#[test]
fn nothing_starts_with_a_database_that_cannot_be_used() {
    let (_endpoints, config) = by_country();
    let start = |folder: &Folder| {
        let [run, check] =
            ["run", "check"].map(|command| folder.run(&[command, "--config", "usher.yaml"]));
        assert_eq!((run.code, check.code), (1, 1), "{run:?} {check:?}");
        assert_eq!(run.stderr, check.stderr);
        run.stderr
    };
    let told = start(&folder(&config, "nothing of the kind"));
    assert!(told.contains("geo.database"), "{told}");
    assert!(told.contains("is no complete MMDB database"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let missing = start(&Folder::with(&config.text()));
    assert!(missing.contains("no such file"), "{missing}");
    // Whole, and of no use: it knows no countries.
    let form = mmdb::Form {
        kind: "Test-City",
        ip_version: 4,
        record_bits: 28,
    };
    let names = mmdb::write(
        form,
        &[("192.0.2.0/24", Map(vec![("city", Text("Seoul"))]))],
    );
    let told = start(&folder(&config, names));
    assert!(told.contains("holds no countries"), "{told}");
}
