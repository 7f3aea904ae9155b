//! Previews: settings are tried on real endpoints, shown, and not kept.

use serde_json::{Value, json};

use crate::support::api::result;
use crate::support::endpoint::{PROBE_PATH, origin_at, refusing};
use crate::support::{Config, Endpoint, Message, Usher, eventually};

/// Two pools with one monitor that is never asked for a preview by itself.
fn two_pools(left: &Endpoint, right: &Value) -> Usher {
    let config = Config::serving([left.origin("a")])
        .pool("other", [right.clone()])
        .monitored("main")
        .monitored("other");
    Usher::start(&config)
}

impl Usher {
    fn base_of_previews(&self) -> String {
        let accounts = result(&self.api_get("/client/v4/accounts"));
        let account = accounts[0]["id"].as_str().unwrap();
        format!("/client/v4/accounts/{account}/load_balancers")
    }

    fn only(&self, path: &str) -> String {
        let found = result(&self.api_get(path));
        format!("{path}/{}", found[0]["id"].as_str().unwrap())
    }

    /// What a preview has seen once it has seen `count` endpoints.
    fn seen(&self, base: &str, begun: &Value, count: usize) -> Value {
        let id = begun["preview_id"].as_str().unwrap();
        eventually("a preview to be complete", || {
            let shown = result(&self.api_get(&format!("{base}/preview/{id}")));
            let pools = shown.as_object().unwrap().values();
            let origins = pools.map(|pool| pool["origins"].as_array().unwrap().len());
            (origins.sum::<usize>() == count).then_some(shown)
        })
    }
}

fn errors(answer: &Message) -> (u16, Vec<(u64, String)>) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let list = body["errors"].as_array().unwrap().iter();
    let list = list.map(|error| {
        let pointer = error["source"]["pointer"].as_str().unwrap_or("-");
        (error["code"].as_u64().unwrap(), pointer.to_owned())
    });
    (answer.status(), list.collect())
}

#[test]
fn settings_are_tried_on_every_pool_of_the_monitor_and_not_kept() {
    let left = Endpoint::named("a");
    let usher = two_pools(&left, &origin_at("b", refusing()));
    let base = usher.base_of_previews();
    let monitor = usher.only(&format!("{base}/monitors"));
    let before = result(&usher.api_get(&monitor));
    let fields =
        json!({"type": "http", "path": PROBE_PATH, "expected_codes": "200", "interval": 60});
    let begun = result(&usher.api_post(&format!("{monitor}/preview"), &fields));
    let pools = begun["pools"].as_object().unwrap();
    let names: Vec<&str> = pools.values().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{begun}");
    assert!(
        names.contains(&"main") && names.contains(&"other"),
        "{begun}"
    );
    let seen = usher.seen(&base, &begun, 2);
    for (id, name) in pools {
        let (_, origin) = seen[id]["origins"][0]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        if name == "main" {
            assert_eq!(seen[id]["healthy"], true, "{seen}");
            assert_eq!(origin["failure_reason"], "No failures");
            assert_eq!(origin["response_code"], 200);
            assert!(origin["rtt"].as_str().unwrap().ends_with("ms"), "{seen}");
        } else {
            assert_eq!(seen[id]["healthy"], false, "{seen}");
            assert_eq!(origin["failure_reason"], "TCP connection failed");
            assert_eq!(
                (&origin["response_code"], &origin["rtt"]),
                (&json!(0), &json!(null))
            );
        }
    }
    assert_eq!(result(&usher.api_get(&monitor)), before, "nothing is kept");
}

#[test]
fn one_pool_is_tried_with_settings_that_no_monitor_has() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]);
    let usher = Usher::start(&config);
    let base = usher.base_of_previews();
    let pool = usher.only(&format!("{base}/pools"));
    for (fields, healthy, reason, code) in [
        (json!({"path": PROBE_PATH}), true, "No failures", 200),
        (
            json!({"path": PROBE_PATH, "expected_codes": "204"}),
            false,
            "Response code mismatch error",
            200,
        ),
        (
            json!({"path": PROBE_PATH, "expected_body": "nothing like it"}),
            false,
            "Response body mismatch error",
            200,
        ),
        (
            json!({"type": "tcp", "port": endpoint.address().port()}),
            true,
            "No failures",
            0,
        ),
    ] {
        let begun = result(&usher.api_post(&format!("{pool}/preview"), &fields));
        let seen = usher.seen(&base, &begun, 1);
        let (_, seen) = seen.as_object().unwrap().iter().next().unwrap();
        let origin = &seen["origins"][0]["127.0.0.1"];
        assert_eq!(seen["healthy"], healthy, "{fields}: {seen}");
        assert_eq!(origin["failure_reason"], reason, "{fields}");
        assert_eq!(origin["response_code"], code, "{fields}");
    }
    // The older path is the same account's.
    let id = pool.rsplit('/').next().unwrap();
    let path = format!("/client/v4/user/load_balancers/pools/{id}/preview");
    let begun = result(&usher.api_post(&path, &json!({"path": PROBE_PATH})));
    usher.seen("/client/v4/user/load_balancers", &begun, 1);
}

#[test]
fn tls_is_tried_where_nothing_else_of_the_node_needs_it() {
    // Whatever is said to it, it answers in the clear, and goes when its client does.
    let plain = Endpoint::scripted(|visit| {
        visit.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = std::io::copy(&mut visit.take_socket(), &mut std::io::sink()); // ends with a reset, too
    });
    let usher = Usher::start(&Config::serving([plain.origin("a")]));
    let base = usher.base_of_previews();
    let pool = usher.only(&format!("{base}/pools"));
    let fields = json!({"type": "https", "allow_insecure": true});
    let begun = result(&usher.api_post(&format!("{pool}/preview"), &fields));
    let seen = usher.seen(&base, &begun, 1);
    let (_, seen) = seen.as_object().unwrap().iter().next().unwrap();
    let origin = &seen["origins"][0]["127.0.0.1"];
    assert_eq!(origin["failure_reason"], "TLS protocol error", "{seen}");
}

#[test]
fn a_preview_that_cannot_be_is_refused() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]).monitored("main"));
    let base = usher.base_of_previews();
    let pool = format!("{}/preview", usher.only(&format!("{base}/pools")));
    let bad = json!({"path": "x", "interval": 3601, "expected_codes": "20x", "type": "gopher"});
    let (status, mut found) = errors(&usher.api_post(&pool, &bad));
    found.sort();
    let wanted = ["/expected_codes", "/interval", "/path", "/type"];
    let wanted = wanted.map(|pointer| (1002, pointer.to_owned()));
    assert_eq!((status, found), (400, wanted.to_vec()));
    let port = errors(&usher.api_post(&pool, &json!({"type": "tcp"})));
    assert_eq!(port.0, 400, "a port is needed: {port:?}");
    let unknown = "0".repeat(32);
    for path in [
        format!("{base}/pools/{unknown}/preview"),
        format!("{base}/monitors/{unknown}/preview"),
    ] {
        let answer = usher.api_post(&path, &json!({}));
        assert_eq!(
            errors(&answer),
            (404, vec![(1001, "-".to_owned())]),
            "{path}"
        );
    }
    let answer = usher.api_get(&format!("{base}/preview/{unknown}"));
    assert_eq!(errors(&answer), (404, vec![(1001, "-".to_owned())]));
    assert_eq!(usher.api_post(&pool, &json!([])).status(), 400);
}
