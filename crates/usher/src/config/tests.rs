//! The loader as a whole: what loads, and the exact line for each kind of fault.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use usher_api::wire::reader::{Shape, Status};
use usher_core::id::{Id, Kind};
use usher_core::region::Region;
use usher_edge::tls::KeyPair;
use usher_node::settings::LogTarget;

use super::*;

const EXAMPLE: &str = include_str!("../../../../docs/reference/usher.example.yaml");
const REFERENCE: &str = include_str!("../../../../docs/reference/configuration.md");

fn load_in(folder: &Path, text: &str) -> Result<Loaded, Vec<String>> {
    let variable = |name: &str| match name {
        "USHER_TOKEN" => Some("open-sesame".to_owned()),
        "PORT" => Some("9001".to_owned()),
        _ => None,
    };
    let source = Source {
        name: "usher.yaml",
        folder,
        variable: &variable,
    };
    load_text(text, &source).map_err(|findings| findings.lines().collect())
}

fn load_here(text: &str) -> Result<Loaded, Vec<String>> {
    load_in(Path::new("/nonexistent"), text)
}

/// Loads `text` and expects exactly `lines`, each without `usher.yaml:`.
fn refused(text: &str, lines: &[&str]) {
    let found = load_here(text).expect_err(text);
    let expected: Vec<_> = lines
        .iter()
        .map(|line| format!("usher.yaml:{line}"))
        .collect();
    assert_eq!(found, expected, "{text}");
}

/// A file with one pool and one load balancer, and `more`.
fn with(more: &str) -> String {
    format!(
        "{more}\npools: {{eu: {{origins: [{{name: a, address: 192.0.2.1}}]}}}}\n\
         load_balancers: {{shop.example.com: {{proxied: true, default_pools: [eu], fallback_pool: eu}}}}\n"
    )
}

#[test]
fn the_example_loads_without_a_warning() {
    let loaded = load_here(EXAMPLE).expect("valid");
    assert_eq!(loaded.warnings, [""; 0]);
    let draft = loaded.catalog.draft();
    assert_eq!(draft.node.code, "AMS");
    assert_eq!(draft.node.coordinates, Some((52.31, 4.76)));
    assert_eq!(draft.interval_min, Duration::from_secs(1));
    assert_eq!(draft.pools[0].id, Id::derive("default", Kind::Pool, "eu"));
    assert_eq!(draft.balancers[0].zone, "example.com");
    let process = loaded.process;
    assert_eq!(process.listen.http[0].to_string(), "0.0.0.0:8080");
    assert_eq!(process.front.trusted_proxies[0].to_string(), "10.0.0.0/8");
    let api = process.api.expect("an api");
    assert_eq!(api.tokens[0].secret.expose(), "open-sesame");
    assert_eq!(api.tokens[1].secret.expose(), "look-but-do-not-touch");
}

#[test]
fn line_ends_of_other_systems_change_nothing() {
    let text = format!("\u{feff}{}", EXAMPLE.replace('\n', "\r\n"));
    assert!(load_here(&text).is_ok());
    refused(
        "node:\r\n  nam: x\r\n",
        &["2:3: node: unknown key \"nam\"; the nearest known key is \"name\""],
    );
}

#[test]
fn everything_of_the_process_is_read() {
    let text = r#"{
        "listen": {"http": ["127.0.0.1:0", "[::1]:0"]},
        "trusted_proxies": ["192.0.2.1", "2001:db8::1/32"],
        "api": {"listen": "127.0.0.1:8788",
                "tokens": [{"name": "t", "token": "x", "permissions": ["zones:edit"], "accounts": ["default"]}]},
        "limits": {"header_bytes": "1KiB", "headers": 1, "uri_bytes": 64, "connections": 7,
                   "connections_per_client": 8, "monitor_interval_min": "2s"},
        "timeouts": {"client_header": "1ms", "client_body_idle": "2s", "keep_alive": "3s",
                     "tls_handshake": "4s", "connect": "5s", "response_header": "1m",
                     "body_idle": "1h", "upstream_keep_alive": "1d"},
        "health": {"ready_timeout": "250ms"},
        "shutdown": {"grace": "0s", "handover_grace": "1h"}, "pid_file": "run/usher.pid",
        "access_log": {"path": "log/access.json", "query_strings": true}
    }"#;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for made in ["run", "log"] {
        std::fs::create_dir(folder.join(made)).expect("a folder");
    }
    let Loaded { process, .. } = load_in(folder, text).expect("JSON is YAML");
    assert_eq!(process.listen.http.len(), 2);
    let nets: Vec<_> = process
        .front
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(nets, ["192.0.2.1/32", "2001:db8::/32"]);
    let api = process.api.expect("an api");
    assert_eq!(api.tokens[0].accounts, ["default"]);
    let limits = &process.front.limits;
    assert_eq!(
        (limits.header_bytes, limits.headers, limits.uri_bytes),
        (1024, 1, 64)
    );
    assert_eq!((limits.connections, limits.connections_per_client), (7, 8));
    let timeouts = &process.front.timeouts;
    assert_eq!(timeouts.client_header, Duration::from_millis(1));
    let rest = [
        timeouts.client_body_idle,
        timeouts.keep_alive,
        timeouts.tls_handshake,
        timeouts.connect,
        timeouts.response_header,
        timeouts.body_idle,
        timeouts.upstream_keep_alive,
    ];
    assert_eq!(
        rest.map(|duration| duration.as_secs()),
        [2, 3, 4, 5, 60, 3600, 86400]
    );
    assert_eq!(process.ready_timeout, Duration::from_millis(250));
    assert_eq!(process.shutdown.grace, Duration::ZERO);
    assert_eq!(process.shutdown.handover_grace, Duration::from_secs(3600));
    assert_eq!(process.pid_file, Some(folder.join("run/usher.pid")));
    let log = process.access_log.expect("a log");
    assert_eq!(log.target, LogTarget::File(folder.join("log/access.json")));
    assert!(log.query_strings);
}

#[test]
fn browsers_and_accounts_are_read_whole() {
    let text = r#"{
        "listen": {"http": ["127.0.0.1:0"]},
        "state_folder": "state",
        "browsers": {"listen": "127.0.0.1:8790", "insecure_single_tenant": true, "chromium": "bin/chromium",
                     "pools": {"WEU": {"backend": "process", "min_ready": 1, "max_ready": 1, "max": 1},
                               "ENAM": {"socket": "/run/host/socket"}, "OC": {"max": 1}}},
        "accounts": {"one": {"kind": "free", "binding_secret": "sixteen-letters!", "weight": 3,
                             "allow_private": ["10.0.0.1/8", "127.0.0.1"],
                             "limits": {"concurrent_browsers": 7, "browsers_per_second": 2, "browsers_burst": 4,
                                        "quick_actions_per_second": 0.5, "browser_seconds_per_day": 60}}}
    }"#;
    let loaded = load_here(text).expect("valid");
    let warnings = loaded.warnings.join("\n");
    for told in [
        "browsers.chromium /nonexistent/bin/chromium is no program on this machine: without it no browser starts",
        "account one: allow_private[0] 10.0.0.1/8 is read as 10.0.0.0/8",
    ] {
        assert!(warnings.contains(told), "{warnings}");
    }
    assert_eq!(loaded.warnings.len(), 2, "{warnings}");
    let browsers = loaded.process.browsers.expect("browsers");
    assert_eq!(browsers.folder, Path::new("/nonexistent/state/browsers"));
    assert_eq!(
        browsers.chromium.as_deref(),
        Some(Path::new("/nonexistent/bin/chromium"))
    );
    let pool = |region| &browsers.pools[&region];
    let (weu, enam) = (pool(Region::Weu), pool(Region::Enam));
    assert_eq!(
        (weu.min_ready, weu.max_ready, weu.max),
        (1, Some(1), Some(1))
    );
    assert_eq!((enam.min_ready, enam.max_ready, enam.max), (2, None, None));
    assert_eq!(enam.socket.as_deref(), Some(Path::new("/run/host/socket")));
    assert_eq!(pool(Region::Oc).min_ready, 1, "no more than there may be");
    let names: Vec<&str> = loaded
        .process
        .accounts
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["default", "one"]);
    let one = &loaded.process.accounts[1];
    let networks: Vec<String> = one.allow_private.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "127.0.0.1/32"]);
    let limits = one.limits;
    assert_eq!((one.weight, limits.concurrent), (3, 7));
    assert_eq!(
        (limits.browsers.micro_per_ms, limits.browsers.burst),
        (2_000, 4)
    );
    assert_eq!(
        (
            limits.quick_actions.micro_per_ms,
            limits.quick_actions.burst
        ),
        (500, 1)
    );
    assert_eq!(limits.a_day, Some(Duration::from_secs(60)));
    // Beside the store, where there is one; and what is odd is told.
    let text = text.replace(
        "\"state_folder\": \"state\"",
        "\"store\": {\"url\": \"sqlite:kept/usher.db\"}",
    );
    let text = text
        .replace("sixteen-letters!", "${USHER_TOKEN}-is-longer")
        .replace("\"max\": 1}}}", "\"max\": 1000}}}");
    let loaded = load_here(&text).expect("valid");
    let browsers = loaded.process.browsers.expect("browsers");
    assert_eq!(browsers.folder, Path::new("/nonexistent/kept/browsers"));
    let warnings = loaded.warnings.join("\n");
    assert!(
        warnings.contains("browsers.pools.OC.max 1000 is above the "),
        "{warnings}"
    );
}

#[test]
fn a_network_that_nothing_opens_is_told() {
    let text = "accounts: {default: {allow_private: [169.254.169.254, 10.0.0.0/8, \"fd00:ec2::254/128\"]}}";
    let loaded = load_here(text).expect("valid");
    // The first is that nothing listens.
    assert_eq!(
        loaded.warnings[1..],
        [
            "usher.yaml:1:38: account default: allow_private[0] 169.254.169.254 stays denied: clouds keep metadata there",
            "usher.yaml:1:67: account default: allow_private[2] fd00:ec2::254 stays denied: clouds keep metadata there",
        ]
    );
}

#[test]
fn a_folder_too_long_for_a_socket_is_a_fault() {
    let long = "d".repeat(100);
    let text = format!("state_folder: /{long}\nbrowsers: {{pools: {{WEU: {{}}}}}}");
    let lines = load_here(&text).expect_err("refused");
    let begins = "usher.yaml:2:20: browsers.pools.WEU has its socket at /ddd";
    assert!(
        lines.len() == 1 && lines[0].starts_with(begins),
        "{lines:?}"
    );
    refused("browsers: {}", &["1:1: browsers.pools is missing"]);
}

#[test]
fn what_cannot_be_written_is_known_before_a_start() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("a file");
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    let place = folder.path().display();
    for (text, fault) in [
        (
            "pid_file: no/usher.pid",
            format!("1:11: pid_file {place}/no/usher.pid is in a folder that does not exist"),
        ),
        (
            "access_log: {path: no/log}",
            format!("1:20: access_log.path {place}/no/log is in a folder that does not exist"),
        ),
        (
            "access_log: {path: folder}",
            format!("1:20: access_log.path {place}/folder is a folder"),
        ),
        (
            "state_folder: file/state",
            format!("1:15: state_folder {place}/file is not a folder"),
        ),
    ] {
        let told = load_in(folder.path(), text).expect_err("a fault");
        assert_eq!(told, [format!("usher.yaml:{fault}")]);
    }
    load_in(folder.path(), "state_folder: folder/that/will/be/made").expect("valid");
}

#[test]
fn listeners_that_take_from_each_other_are_a_fault() {
    for (first, second, fault) in [
        ("192.0.2.1:80", "192.0.2.1:80", Some("is listed twice")),
        (
            "0.0.0.0:80",
            "127.0.0.1:80",
            Some("is covered by 0.0.0.0:80, which is listed, too"),
        ),
        (
            "127.0.0.1:80",
            "0.0.0.0:80",
            Some("covers 127.0.0.1:80, which is listed, too"),
        ),
        (
            "[::]:80",
            "127.0.0.1:80",
            Some("is covered by [::]:80, which is listed, too"),
        ),
        (
            "0.0.0.0:80",
            "[::]:80",
            Some("covers 0.0.0.0:80, which is listed, too"),
        ),
        ("0.0.0.0:80", "[::1]:80", None),
        ("0.0.0.0:80", "127.0.0.1:81", None),
        ("0.0.0.0:0", "127.0.0.1:0", None),
    ] {
        let text = format!(
            "listen: {{http: [\"{first}\"]}}\napi: {{listen: \"{second}\", allow_plain: true}}"
        );
        let expected =
            fault.map(|fault| vec![format!("usher.yaml:2:15: api.listen {second} {fault}")]);
        assert_eq!(load_here(&text).err(), expected, "{text}");
    }
}

#[test]
fn the_access_log_can_be_turned_off() {
    for text in [
        "access_log: off",
        "access_log: false",
        "access_log: \"off\"",
    ] {
        let loaded = load_here(text).expect("valid");
        assert_eq!(loaded.process.access_log, None, "{text}");
    }
    assert!(load_here("").expect("valid").process.access_log.is_some());
    refused(
        "access_log: on",
        &["1:13: access_log must be an object, not text"],
    );
}

#[test]
fn a_file_that_asks_for_nothing_is_valid_and_odd() {
    for text in ["", "# nothing\n", "pools:\n", "{}"] {
        let loaded = load_here(text).expect(text);
        let warning = "usher.yaml:1:1: nothing listens: name an address in listen or api";
        assert_eq!(loaded.warnings, [warning], "{text:?}");
    }
}

#[test]
fn a_zone_that_nobody_declared_is_implied() {
    let loaded = load_here(&with("listen: {http: [\"127.0.0.1:0\"]}")).expect("valid");
    assert_eq!(loaded.catalog.draft().zones[0].name, "example.com");
    assert_eq!(loaded.warnings, [""; 0]);
}

#[test]
fn warnings_have_a_place_too() {
    let text = "listen: {http: [\"127.0.0.1:0\"]}\nmonitors:\n  m:\n    type: tcp\n    port: 1\n    path: /\n\
                pools:\n  eu:\n    monitor: m\n    minimum_origins: 2\n    origins: [{name: a, address: 192.0.2.1}]\n";
    let loaded = load_here(text).expect("valid");
    assert_eq!(
        loaded.warnings,
        [
            "usher.yaml:6:11: monitor m: path has no effect on a tcp monitor",
            "usher.yaml:10:22: pool \"eu\" has 1 endpoints and needs 2, so it is always critical",
        ]
    );
}

#[test]
fn a_root_that_is_no_object_is_refused() {
    for text in ["[a]", "5", "text"] {
        let found = load_here(text).expect_err(text);
        assert!(
            found[0].starts_with("usher.yaml:1:1: must be an object, not "),
            "{found:?}"
        );
    }
}

#[test]
fn every_part_that_is_not_built_is_refused_by_name() {
    for key in process::ROOT.keys {
        if let Status::Unbuilt(_) = key.status {
            let line = format!("1:1: {} is not built yet", key.name);
            refused(&format!("{}: {{some: {{thing: 1}}}}", key.name), &[&line]);
        }
    }
    refused(
        "listen: {dns: [\"127.0.0.1:0\"]}",
        &["1:10: listen.dns is not built yet"],
    );
    assert!(load_here("live_state: {url: \"memory:\"}\nwaiting_rooms: {}\nstore: null").is_ok());
}

#[test]
fn the_kinds_of_faults() {
    refused(
        "lisen: {}",
        &["1:1: unknown key \"lisen\"; the nearest known key is \"listen\""],
    );
    refused(
        &with("shutdown:\n  grace: 30"),
        &["2:10: shutdown.grace 30 is not a duration such as 250ms, 30s, 5m or 1h"],
    );
    refused(
        "a: 1\na: 2",
        &[
            "1:1: unknown key \"a\"",
            "2:1: key \"a\" stands twice; the first is on line 1",
        ],
    );
    refused(
        "monitors: {m: {interval: 9}}",
        &["1:26: monitor m: interval 9 is outside 10..3600"],
    );
    refused(
        "monitors: {m: {interval: 10, timeout: 3s}}",
        &["1:39: monitor m: timeout must be a whole number, not text"],
    );
    refused(
        "pools: {eu: {monitor: wep, origins: [{name: a, address: 192.0.2.1}]}}\nmonitors: {web: {}}",
        &["1:23: pool eu: monitor \"wep\" does not exist; the nearest name is \"web\""],
    );
    refused(
        "load_balancers: {not a host: {proxied: true, default_pools: [x], fallback_pool: x}}",
        &[
            "1:18: load balancer not a host: load balancer \"not a host\" is not a hostname, with or without \"*.\" before it",
            "1:62: load balancer not a host: pool \"x\" does not exist",
            "1:81: load balancer not a host: pool \"x\" does not exist",
        ],
    );
    refused(
        "listen:\n  https: [\"127.0.0.1:0\"]",
        &["2:3: listen.https has no certificate to show: list one in certificates"],
    );
    refused(
        "api: {listen: \"192.0.2.1:8788\"}",
        &[
            "1:15: api.listen 192.0.2.1:8788 can be reached from other machines, and tokens would cross the network in the clear: set tls: true, or allow_plain: true where something else encrypts",
        ],
    );
    refused(
        "api: {listen: \"192.0.2.1:8788\", tls: true}",
        &["1:33: api.tls has no certificate to show: list one in certificates"],
    );
    refused("a:\n\t- b", &["2:1: a tab cannot indent: use spaces"]);
}

#[test]
fn an_origin_is_scheme_host_and_port() {
    let text = |origin: &str| {
        format!("api: {{listen: \"127.0.0.1:0\", allow_plain: true, public_origin: \"{origin}\"}}")
    };
    for origin in ["https://usher.example.com", "http://[2001:db8::1]:8788"] {
        for written in [origin.to_owned(), format!("{origin}/")] {
            let loaded = load_here(&text(&written)).expect("valid");
            let api = loaded.process.api.expect("an api");
            assert_eq!(api.public_origin.as_deref(), Some(origin));
        }
    }
    for origin in [
        "usher.example.com",
        "ftp://a.example",
        "http://",
        "http://u@a.example",
        "http://a.example/b",
        "http://a.example?b",
    ] {
        assert!(load_here(&text(origin)).is_err(), "{origin}");
    }
}

#[test]
fn variables() {
    let origin = |port: &str| {
        format!(
            "pools:\n  eu:\n    origins:\n      - name: a\n        address: 192.0.2.1\n        port: {port}\n"
        )
    };
    for port in [
        "${PORT}",
        "\"${PORT}\"",
        "${NONE:-9001}",
        "${NONE:-}${PORT}",
    ] {
        let loaded = load_here(&origin(port)).expect(port);
        assert_eq!(
            loaded.catalog.draft().pools[0].endpoints[0].port,
            Some(9001)
        );
    }
    refused(
        &origin("${NONE}"),
        &["6:15: environment variable NONE is not set"],
    );
    // A name that could not be made out is the only fault, wherever it is used.
    refused(
        "pools: {eu: {monitor: \"${NONE}\", origins: [{name: \"${NONE}\", address: \"${NONE}\"}]}}",
        &[
            "1:23: environment variable NONE is not set",
            "1:51: environment variable NONE is not set",
            "1:71: environment variable NONE is not set",
        ],
    );
}

#[test]
fn a_secret_is_in_no_message() {
    let tokens = "api:\n  listen: \"127.0.0.1:0\"\n  tokens:\n";
    let text = format!(
        "{tokens}    - {{name: a, token: \"hush hush\", permissions: [admin]}}\n    - {{name: b, token: 4711, permissions: [admin]}}\n\
         \x20   - {{name: c, token: \"${{USHER_TOKEN}}\", permissions: [x]}}\n    - {{name: d, token: hush, permissions: [admin]}}\n\
         \x20   - {{name: e, token: hush, permissions: [admin]}}\n"
    );
    let lines = load_here(&text).expect_err("refused");
    assert_eq!(lines.len(), 4, "{lines:?}");
    for secret in ["hush", "4711", "sesame"] {
        assert!(!lines.join("\n").contains(secret), "{lines:?}");
    }
    let valid =
        format!("{tokens}    - {{name: c, token: \"${{USHER_TOKEN}}\", permissions: [admin]}}\n");
    let loaded = load_here(&valid).expect("valid");
    assert!(!format!("{loaded:?}").contains("sesame"));
}

#[test]
fn certificates_are_read_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one.example.com", "two.example.com"].map(|name| {
        let pair = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("made");
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        std::fs::write(folder.path().join(&cert), pair.cert.pem()).expect("written");
        let secret = pair.signing_key.serialize_pem();
        std::fs::write(folder.path().join(&key), secret).expect("written");
        (cert, key)
    });
    std::fs::write(folder.path().join("empty.pem"), "").expect("written");
    let valid = format!(
        "listen: {{https: [\"127.0.0.1:0\"]}}\ncertificates:\n  - {{cert: {}, key: {}}}\n\
         zones: {{example.com: {{upstream: {{ca: {}, client_cert: {}, client_key: {}}}}}}}\n",
        one.0, one.1, two.0, one.0, one.1
    );
    let loaded = load_in(folder.path(), &valid).expect("valid");
    let absolute = |name: &str| folder.path().join(name);
    let pair = KeyPair {
        cert: absolute(&one.0),
        key: absolute(&one.1),
    };
    assert_eq!(loaded.process.certificates, [pair]);
    let files = [&one.1, &one.0, &two.0].map(|name| absolute(name));
    assert_eq!(loaded.files(), files);

    let text = format!(
        "certificates:\n  - {{cert: {}, key: {}}}\n  - {{cert: none.pem, key: {}}}\n  - {{cert: empty.pem, key: none.key}}\n\
         zones: {{example.com: {{upstream: {{ca: none.pem}}}}}}\n\
         pools:\n  eu: {{origins: [{{name: a, address: 192.0.2.1}}], usher: {{client_cert: {}, client_key: {}}}}}\n  \
         us: {{origins: [{{name: a, address: 192.0.2.1}}], usher: {{client_cert: {}}}}}\n",
        one.0, two.1, one.1, one.0, two.1, one.0
    );
    let lines = load_in(folder.path(), &text).expect_err("refused");
    let root = format!("{}/", folder.path().display());
    let lines: Vec<_> = lines.iter().map(|line| line.replace(&root, "")).collect();
    let expected = [
        "2:38: certificates[0].key two.example.com.key: ",
        "3:12: certificates[1].cert none.pem: no such file",
        "4:12: certificates[2].cert empty.pem: holds no certificate",
        "4:28: certificates[2].key none.key: no such file",
        "5:38: zone example.com: ca none.pem: no such file",
        "7:104: pool eu: client_key two.example.com.key: ",
        "8:71: pool us: client_cert is set without client_key",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        let expected = format!("usher.yaml:{expected}");
        assert!(line.starts_with(&expected), "{line} is not {expected}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("usher.yaml");
    let line = |path: &Path| {
        let lines = load(path).expect_err("refused").lines();
        assert_eq!(lines.len(), 1);
        lines[0].replace(&folder.path().display().to_string(), "")
    };
    assert_eq!(line(&path), "/usher.yaml: no such file or directory");
    assert_eq!(line(folder.path()), ": is a directory");
    std::fs::write(&path, b"a: b\nc: \xff\n").expect("written");
    assert_eq!(line(&path), "/usher.yaml:2:4: not UTF-8 from here on");
    let file = std::fs::File::create(&path).expect("made");
    file.set_len(FILE_BYTES_MAX + 1).expect("grown");
    assert_eq!(line(&path), "/usher.yaml: larger than 16 MiB");
}

/// The whole story on one page: a file with nearly every fault there is.
#[test]
fn a_broken_file_gets_every_fault_at_once() {
    let found = load_here(include_str!("testdata/broken.yaml")).expect_err("broken");
    let expected: Vec<_> = include_str!("testdata/broken.txt").lines().collect();
    assert!(found == expected, "found:\n{}\n", found.join("\n"));
}

#[test]
fn every_known_key_is_in_the_reference() {
    let shapes = process::SHAPES.iter().chain(&usher_api::wire::SHAPES);
    let mut described: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut section = "";
    for line in REFERENCE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        } else if let Some(key) = line
            .strip_prefix("| `")
            .and_then(|row| row.split('`').next())
        {
            described.entry(section).or_default().push(key);
        }
    }
    for shape in shapes {
        let listed = described.remove(shape.name).unwrap_or_default();
        let read = |shape: &Shape| {
            let keys = shape.keys.iter();
            let keys = keys.filter(|key| key.status != Status::ReadOnly);
            keys.map(|key| key.name).collect::<Vec<_>>()
        };
        let missing: Vec<_> = read(shape)
            .into_iter()
            .filter(|key| !listed.contains(key))
            .collect();
        assert!(
            missing.is_empty(),
            "{}: not described: {missing:?}",
            shape.name
        );
        let stale: Vec<_> = listed
            .into_iter()
            .filter(|key| !read(shape).contains(key))
            .collect();
        assert!(
            stale.is_empty(),
            "{}: described and unknown: {stale:?}",
            shape.name
        );
    }
    assert!(described.is_empty(), "sections of no object: {described:?}");
}

/// Pieces that make a text look like a configuration.
fn piece() -> impl Strategy<Value = String> {
    let words = EXAMPLE
        .split_inclusive(|c: char| !c.is_alphanumeric())
        .map(str::to_owned);
    let words: Vec<_> = words.collect();
    prop_oneof![
        8 => proptest::sample::select(words),
        2 => proptest::sample::select(vec![
            "\n  ", "\n", ": ", "- ", "{", "}", "[", "]", ", ", "&a ", "*a", "!!str ", "? ", "|\n", ">-\n",
            "'", "\"", "#", "---\n", "...\n", "%YAML 1.2\n", "\t", "${X}", "${", "~", "<<", "\u{0}", "\r\n", "\u{feff}",
            "1e999", "-1", "99999999999999999999", ".nan", "null",
        ]).prop_map(str::to_owned),
        1 => ".{0,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_panics(pieces in proptest::collection::vec(piece(), 0..60)) {
        let text = pieces.concat();
        for line in load_here(&text).err().into_iter().flatten() {
            let number = line.split(':').nth(1).and_then(|number| number.parse::<usize>().ok());
            // One past the end is where what is missing would stand.
            let lines = text.split(['\n', '\r']).count() + 1;
            prop_assert!(number.is_some_and(|number| (1..=lines).contains(&number)), "{line}");
        }
    }

    #[test]
    fn no_change_of_a_valid_text_panics(at in 0..EXAMPLE.len(), drop in 0..40_usize, piece in piece()) {
        let boundary = |at: usize| (at..=EXAMPLE.len()).find(|&at| EXAMPLE.is_char_boundary(at));
        let from = boundary(at).unwrap_or(EXAMPLE.len());
        let to = boundary((from + drop).min(EXAMPLE.len())).unwrap_or(EXAMPLE.len());
        let text = format!("{}{piece}{}", &EXAMPLE[..from], &EXAMPLE[to..]);
        if let Err(lines) = load_here(&text) {
            prop_assert!(!lines.is_empty());
        }
    }
}
