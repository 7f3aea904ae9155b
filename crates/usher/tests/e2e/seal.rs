//! What the cookies of sessions are sealed with: made once and kept, or named, changed, damaged.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::config::HOST;
use crate::support::process::Folder;
use crate::support::{Config, Endpoint, Usher, Wire};

const OLD: &str = "an old secret of the tests, 1 of 2";
const NEW: &str = "a new secret of the tests, 2 of 2!";

/// Three endpoints behind a cookie: nobody comes to the same one ten times by chance.
fn pinned() -> ([Endpoint; 3], Config) {
    let endpoints = ["a", "b", "c"].map(Endpoint::named);
    let origins: Vec<Value> = endpoints
        .iter()
        .zip(["a", "b", "c"])
        .map(|(endpoint, name)| endpoint.origin(name))
        .collect();
    let config = Config::serving(origins).set(
        &["load_balancers", HOST, "session_affinity"],
        json!("cookie"),
    );
    (endpoints, config)
}

fn sealed(config: &Config, secrets: &[&str]) -> Config {
    config.clone().set(&["secrets"], json!({"seal": secrets}))
}

fn ask(wire: &mut Wire, cookie: Option<&str>) -> (String, Option<String>) {
    let cookie = cookie.map_or_else(String::new, |cookie| format!("Cookie: {cookie}\r\n"));
    let answer = wire.exchange(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{cookie}\r\n"));
    let set = answer.field("set-cookie");
    let set = set.map(|set| set.split(';').next().unwrap_or_default().to_owned());
    (answer.text(), set)
}

/// A new visitor: who served, and the cookie that was given.
fn arrive(usher: &Usher) -> (String, String) {
    let (served, cookie) = ask(&mut usher.connect(), None);
    (served, cookie.expect("a new visitor gets a cookie"))
}

/// The visitor comes to the same endpoint every time, and gets no new cookie.
fn stays(usher: &Usher, (served, cookie): &(String, String)) {
    let mut wire = usher.connect();
    for _ in 0..10 {
        assert_eq!(ask(&mut wire, Some(cookie)), (served.clone(), None));
    }
}

/// The visitor is new to the node.
fn is_forgotten(usher: &Usher, cookie: &str) {
    let (_, given) = ask(&mut usher.connect(), Some(cookie));
    assert!(given.is_some_and(|given| given != cookie));
}

#[test]
fn a_key_is_made_once_and_outlives_the_process() {
    let (_endpoints, config) = pinned();
    let folder = Folder::with(&config.text());
    let path = folder.path().to_owned();
    let mut usher = Usher::start_in(folder);
    let visitor = arrive(&usher);
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("var"), mode("var/seal.key")), (0o700, 0o600));
    let kept = Folder::with(&config.text());
    fs::create_dir(kept.path().join("var")).unwrap();
    fs::copy(path.join("var/seal.key"), kept.path().join("var/seal.key")).unwrap();
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    stays(&Usher::start_in(kept), &visitor);
}

#[test]
fn without_sessions_by_cookie_no_key_is_made() {
    let (_endpoints, config) = pinned();
    let without = config
        .clone()
        .set(&["load_balancers", HOST, "session_affinity"], json!("none"));
    let usher = Usher::start(&without);
    assert!(!usher.path("var").exists());
    let elsewhere = config.set(&["state_folder"], json!("kept/here"));
    usher.reload(&elsewhere);
    assert!(usher.path("kept/here/seal.key").exists());
    assert!(!usher.path("var").exists());
    stays(&usher, &arrive(&usher));
}

#[test]
fn the_first_secret_seals_and_all_of_them_open() {
    let (_endpoints, config) = pinned();
    let usher = Usher::start(&sealed(&config, &[OLD]));
    let before = arrive(&usher);
    usher.reload(&sealed(&config, &[NEW, OLD]));
    stays(&usher, &before);
    let after = arrive(&usher);
    assert!(!usher.path("var").exists(), "a secret needs no file");
    usher.reload(&sealed(&config, &[NEW]));
    is_forgotten(&usher, &before.1);
    stays(&usher, &after);
    // Another node that knows the secret knows the visitor.
    stays(&Usher::start(&sealed(&config, &[NEW])), &after);
    is_forgotten(&Usher::start(&config), &after.1);
}

#[test]
fn a_file_of_keys_that_cannot_be_used_is_never_replaced() {
    let (_endpoints, config) = pinned();
    let usher = Usher::start(&config);
    let visitor = arrive(&usher);
    let file = usher.path("var/seal.key");
    let whole = fs::read(&file).unwrap();
    for (text, mode, what) in [
        (&whole[..], 0o644, "chmod it to 600"),
        (&b"short\n"[..], 0o600, "fewer than 32"),
        (&b""[..], 0o600, "no key is given"),
        (&b"\xff\xfe"[..], 0o600, "is not text"),
    ] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        usher.reload_text(&config.text(), "rejected");
        usher.expect_stderr(what);
        stays(&usher, &visitor);
        let started = usher.folder().run(&["run", "--config", "usher.yaml"]);
        assert_eq!(started.code, 3, "{started:?}");
        assert!(started.stderr.contains(what), "{started:?}");
        assert_eq!(fs::read(&file).unwrap(), text, "left as it is");
    }
    fs::write(&file, whole).unwrap();
    usher.reload(&config);
    stays(&usher, &visitor);
}

#[test]
fn a_folder_that_the_key_cannot_be_made_in_is_named_with_what_to_do() {
    let (_endpoints, config) = pinned();
    // Nobody makes a folder there.
    let config = config.set(&["state_folder"], json!("/proc/usher"));
    let ended = Folder::with(&config.text()).run(&["run", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    for words in ["/proc/usher/seal.key", "set state_folder", "secrets.seal"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn a_secret_is_judged_and_never_shown() {
    let (_endpoints, config) = pinned();
    let check = |secrets: Value| {
        let config = config.clone().set(&["secrets"], json!({"seal": secrets}));
        let ended = Folder::with(&config.text()).run(&["check", "--config", "usher.yaml"]);
        assert_eq!(ended.code, 1, "{ended:?}");
        ended.stderr
    };
    let plain = "ababababababababababababababababab";
    for (secrets, what) in [
        (json!([]), "secrets.seal is empty"),
        (
            json!(["too short"]),
            "secrets.seal[0] has 9 characters, fewer than 32",
        ),
        (
            json!([NEW, plain]),
            "secrets.seal[1] has 2 different characters, fewer than 8",
        ),
        (
            json!([NEW, OLD, NEW]),
            "secrets.seal[2] is the same key as seal[0]",
        ),
        (
            json!(vec![NEW; 17]),
            "secrets.seal has 17 keys, more than 16",
        ),
    ] {
        let told = check(secrets);
        assert!(told.contains(what), "{what}: {told}");
        assert!(!told.contains(plain) && !told.contains(NEW), "{told}");
    }
}
