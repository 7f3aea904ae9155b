//! `usher check`: every fault at once, each with its place.

use crate::support::process::Folder;

const GOOD: &str = "\
listen: {http: [\"127.0.0.1:0\"]}
zones: {example.com: {}}
pools:
  eu:
    origins:
      - {name: a, address: 127.0.0.1, port: 9001}
load_balancers:
  shop.example.com:
    proxied: true
    default_pools: [eu]
    fallback_pool: eu
";

#[test]
fn a_good_file_is_ok() {
    let ended = Folder::with(GOOD).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("ok"), "{ended:?}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn what_a_file_holds_is_counted() {
    let text =
        format!("{GOOD}browsers: {{pools: {{WEU: {{max: 1}}}}}}\naccounts: {{other: {{}}}}\n");
    let ended = Folder::with(&text).run(&["check", "--config", "usher.yaml"]);
    let counted =
        "1 pool, 1 endpoint, 1 load balancer, 0 waiting rooms, 1 browser pool, 2 accounts\n";
    assert!(ended.stdout.ends_with(counted), "{ended:?}");
}

#[test]
fn every_fault_is_told_with_line_and_column() {
    let text = "\
listen: {http: [\"127.0.0.1:0\"]}
zones: {example.com: {}}
pools:
  eu:
    origins:
      - name: a
        address: 127.0.0.1
        weight: 1.4
      - {name: b, adress: 127.0.0.2}
load_balancers:
  shop.example.com:
    proxied: true
    default_pools: [eu, uk]
    fallback_pool: eu
timeouts: {connect: soon}
api: {listen: \"${USHER_TEST_NO_SUCH_VARIABLE}\"}
monitors:
  slow: {type: http, interval: 7200}
";
    let ended = Folder::with(text).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    for (place, words) in [
        (
            "usher.yaml:8:17: ",
            &["pool eu", "endpoint a", "weight 1.4"][..],
        ),
        ("usher.yaml:9:19: ", &["adress", "address"]),
        ("usher.yaml:13:25: ", &["shop.example.com", "uk"]),
        ("usher.yaml:15:21: ", &["soon"]),
        ("usher.yaml:16:15: ", &["USHER_TEST_NO_SUCH_VARIABLE"]),
        ("usher.yaml:18:32: ", &["slow", "7200", "3600"]),
    ] {
        let line = ended.stderr.lines().find(|line| line.starts_with(place));
        let line = line.unwrap_or_else(|| panic!("nothing at {place}\n{}", ended.stderr));
        for word in words {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}

#[test]
fn a_file_that_is_no_yaml_has_its_place() {
    let ended = Folder::with("pools:\n  eu: [\n").run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.starts_with("usher.yaml:"), "{ended:?}");
}

#[test]
fn the_path_stands_as_it_was_given() {
    let folder = Folder::with("nonsense: 1\n");
    let path = folder.path().join("usher.yaml");
    let path = path.to_str().unwrap();
    let ended = folder.run(&["check", "--config", path]);
    assert!(
        ended.stderr.starts_with(&format!("{path}:1:1: ")),
        "{ended:?}"
    );
}

#[test]
fn a_doubled_key_is_a_fault() {
    let text = format!("{GOOD}zones: {{}}\n");
    let ended = Folder::with(&text).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.stderr.contains("usher.yaml:12:1: ") && ended.stderr.contains("zones"),
        "{ended:?}"
    );
}

/// [`GOOD`] with the port from a variable. In a flow mapping the braces would be YAML's own.
fn with_port(variable: &str) -> String {
    let origin = "{name: a, address: 127.0.0.1, port: 9001}";
    assert!(GOOD.contains(origin));
    let block = format!("name: a\n        address: 127.0.0.1\n        port: {variable}");
    GOOD.replace(origin, &block)
}

#[test]
fn variables_have_defaults() {
    let text = with_port("${USHER_TEST_UNSET:-9001}");
    let ended = Folder::with(&text).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn variables_come_from_the_environment() {
    let folder = Folder::with(&with_port("${USHER_TEST_PORT}"));
    let run = |port: &str| {
        let mut command = folder.command(&["check", "--config", "usher.yaml"]);
        command
            .env("USHER_TEST_PORT", port)
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(run("9001"), Some(0));
    assert_eq!(run("99999"), Some(1));
}

#[test]
fn parts_that_are_not_built_are_refused_by_name() {
    let text = GOOD.replace("listen: {", "listen: {dns: [\"127.0.0.1:0\"], ");
    let ended = Folder::with(&text).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("listen.dns"), "{ended:?}");
}

#[test]
fn json_is_a_configuration_as_well() {
    let text = r#"{"listen": {"http": ["127.0.0.1:0"]}, "zones": {"example.com": {}},
        "pools": {"eu": {"origins": [{"name": "a", "address": "127.0.0.1"}]}},
        "load_balancers": {"shop.example.com": {"proxied": true, "default_pools": ["eu"], "fallback_pool": "eu"}}}"#;
    let ended = Folder::with(text).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_bomb_of_aliases_does_not_explode() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = n - 1;
        text += &format!(
            "a{n}: &a{n} [{}]\n",
            vec![format!("*a{before}"); 10].join(", ")
        );
    }
    let ended = Folder::with(&text).run(&["check", "--config", "usher.yaml"]);
    assert_eq!(ended.code, 1);
}
