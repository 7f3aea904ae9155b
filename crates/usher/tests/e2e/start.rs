//! A start that cannot succeed: one line that says what to change, and the exit code that fits.

use std::net::TcpListener;

use serde_json::json;

use crate::support::process::{Ended, Folder};
use crate::support::{Config, Endpoint, Usher};

fn run(config: &Config) -> Ended {
    Folder::with(&config.text()).run(&["run", "--config", "usher.yaml"])
}

/// One line of stderr holds all words, and nothing looks like a crash.
fn says(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{ended:?}");
    let lines = ended.stderr.lines();
    let found = lines
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count();
    assert_eq!(found, 1, "{words:?} on one line: {}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("ready"), "{}", ended.stdout);
}

#[test]
fn a_port_that_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]);
    let http = config.clone().set(&["listen", "http"], json!([address]));
    says(&run(&http), 3, &[&address]);
    let api = config.set(&["api", "listen"], json!(address));
    says(&run(&api), 3, &[&address]);
}

#[test]
fn a_key_that_cannot_be_read_or_used() {
    let base = Config::new().set(&["listen", "https"], json!(["127.0.0.1:0"]));
    let with = |cert: &str, key: &str| {
        base.clone()
            .set(&["certificates"], json!([{"cert": cert, "key": key}]))
            .text()
    };
    let pair = crate::support::tls::Authority::new().pair(&["shop.example.com"]);
    let folder = Folder::new();
    folder.write("good.pem", &pair.certificate);
    folder.write("good.key", &pair.key);
    folder.write("bad.key", "not a key");
    let run = |cert, key| {
        folder.write("usher.yaml", with(cert, key));
        folder.run(&["run", "--config", "usher.yaml"])
    };
    says(&run("good.pem", "missing.key"), 1, &["missing.key"]);
    says(&run("good.pem", "bad.key"), 1, &["bad.key"]);
    says(&run("missing.pem", "good.key"), 1, &["missing.pem"]);
    says(&run("bad.key", "good.key"), 1, &["bad.key"]);
}

#[test]
fn a_pool_that_nobody_knows() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]).balancer("x.example.com", &["mian"]);
    let ended = run(&config);
    assert_eq!(ended.code, 1);
    assert!(
        ended.stderr.contains("mian") && ended.stderr.contains("usher.yaml:"),
        "{ended:?}"
    );
}

#[test]
fn a_file_that_is_not_there() {
    let ended = Folder::new().run(&["run", "--config", "missing.yaml"]);
    says(&ended, 1, &["missing.yaml"]);
}

#[test]
fn a_wrong_command_line_is_wrong_usage() {
    let folder = Folder::new();
    for args in [&["rnu"][..], &["run", "--no-such-flag"], &["check"], &[]] {
        let ended = folder.run(args);
        assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
    }
}

#[test]
fn help_shows_an_example_of_each_command() {
    let folder = Folder::new();
    for command in ["run", "check", "explain", "demo", "status"] {
        let ended = folder.run(&[command, "--help"]);
        assert_eq!(ended.code, 0);
        assert!(
            ended.stdout.contains(&format!("usher {command}")),
            "{}",
            ended.stdout
        );
    }
    assert_eq!(folder.run(&["--version"]).code, 0);
}

#[test]
fn the_environment_of_a_deep_folder_does_not_matter() {
    // Relative paths are relative to the file, wherever the process was started.
    let endpoint = Endpoint::named("a");
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("etc")).unwrap();
    let config = Config::serving([endpoint.origin("a")]);
    folder.write("etc/usher.yaml", config.text());
    let usher = Usher::start_file(folder, "etc/usher.yaml");
    assert_eq!(usher.get("/").text(), "a");
    crate::support::eventually("the log beside the file", || {
        std::fs::metadata(usher.path("etc/access.log"))
            .ok()
            .filter(|file| file.len() > 0)
    });
}
