//! What the control API promises about every resource: envelope, codes, pointers, echo, PATCH.

use serde_json::{Value, json};

use crate::support::api::result;
use crate::support::config::{HOST, TOKEN};
use crate::support::{Config, Endpoint, Message, Usher, eventually};

/// A node with a store and nothing declared but the zone.
pub(crate) fn empty() -> Usher {
    Usher::start(&with_store(Config::new()))
}

fn with_store(config: Config) -> Config {
    config.set(&["store"], json!({"url": "sqlite:var/usher.db"}))
}

/// Status and body of an answer, which has every key of the envelope.
fn told(answer: &Message) -> (u16, Value) {
    let kind = answer.field("content-type");
    assert_eq!(kind, Some("application/json"), "{answer:?}");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    for key in ["success", "errors", "messages", "result"] {
        assert!(body.get(key).is_some(), "{key}: {body}");
    }
    assert_eq!(body["success"], answer.status() < 400, "{body}");
    (answer.status(), body)
}

/// Code and pointer of every error.
pub(crate) fn errors(answer: &Message) -> (u16, Vec<(u64, String)>) {
    let (status, body) = told(answer);
    let list = body["errors"].as_array().unwrap().iter();
    let list = list.map(|error| {
        let pointer = error["source"]["pointer"].as_str().unwrap_or("-");
        (error["code"].as_u64().unwrap(), pointer.to_owned())
    });
    (status, list.collect())
}

fn one(status: u16, code: u64, pointer: &str) -> (u16, Vec<(u64, String)>) {
    (status, vec![(code, pointer.to_owned())])
}

impl Usher {
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> Message {
        self.api(
            &format!("{method} /client/v4{path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"),
            body,
        )
    }

    pub(crate) fn made(&self, path: &str, body: &Value) -> Value {
        result(&self.call("POST", path, &body.to_string()))
    }

    /// Where the resources of the only account are.
    pub(crate) fn base(&self) -> String {
        let accounts = result(&self.call("GET", "/accounts", ""));
        format!(
            "/accounts/{}/load_balancers",
            accounts[0]["id"].as_str().unwrap()
        )
    }

    pub(crate) fn zone(&self) -> String {
        let zones = result(&self.call("GET", "/zones?name=example.com", ""));
        format!("/zones/{}", zones[0]["id"].as_str().unwrap())
    }
}

pub(crate) fn id(resource: &Value) -> &str {
    resource["id"].as_str().unwrap()
}

pub(crate) fn pool(name: &str) -> Value {
    json!({"name": name, "origins": [{"name": "a", "address": "192.0.2.1"}]})
}

#[test]
fn what_is_created_carries_traffic_and_outlives_the_process() {
    let endpoint = Endpoint::named("a");
    let config = with_store(Config::new()).set(&["pid_file"], json!("usher.pid"));
    let mut usher = Usher::start(&config);
    let (base, zone) = (usher.base(), usher.zone());
    let body = json!({"name": "eu", "origins": [endpoint.origin("a")]});
    let pool = usher.made(&format!("{base}/pools"), &body);
    let body = json!({"name": HOST, "default_pools": [id(&pool)], "fallback_pool": id(&pool), "proxied": true});
    let balancer = usher.made(&format!("{zone}/load_balancers"), &body);
    assert_eq!(balancer["zone_name"], "example.com");
    eventually("traffic", || (usher.get("/").status() == 200).then_some(()));

    usher.hand_over();
    assert_eq!(usher.get("/").status(), 200, "the next process has it, too");
    let path = format!("{zone}/load_balancers/{}", id(&balancer));
    let off = usher.call("PATCH", &path, r#"{"enabled": false}"#);
    assert_eq!(off.status(), 200, "{off:?}");
    eventually("no traffic", || {
        (usher.get("/").status() == 404).then_some(())
    });
    assert_eq!(
        result(&usher.call("DELETE", &path, "")),
        json!({"id": id(&balancer)})
    );
    assert_eq!(errors(&usher.call("GET", &path, "")), one(404, 1001, "-"));
}

#[test]
fn an_answer_is_the_same_bytes_until_something_changes() {
    let usher = empty();
    let base = usher.base();
    let body = r#"{"origins":[{"weight":0.5,"address":"192.0.2.1","name":"b"},{"name":"a","address":"2001:DB8::1","port":0}],
                   "name":"eu","monitor":"","load_shedding":null,"description":"d"}"#;
    let text = |answer: &Message| {
        assert_eq!(answer.status(), 200, "{answer:?}");
        let text = answer.text();
        let from = text.find("\"result\":").unwrap();
        text[from..].to_owned()
    };
    let made = usher.call("POST", &format!("{base}/pools"), body);
    let path = format!("{base}/pools/{}", id(&result(&made)));
    assert_eq!(text(&usher.call("GET", &path, "")), text(&made));
    let nothing = usher.call("PATCH", &path, "{}");
    assert_eq!(
        text(&nothing),
        text(&made),
        "nothing changes, modified_on neither"
    );
    let again = result(&made).to_string();
    let put = usher.call("PUT", &path, &again);
    assert_eq!(
        told(&put).1["messages"],
        json!([]),
        "a GET may be written back"
    );
    assert_eq!(text(&usher.call("GET", &path, "")), text(&put));
    let shown = result(&put);
    assert_eq!(shown["origins"][0]["name"], "b", "lists keep their order");
    assert_eq!(
        shown["origins"][1]["address"], "2001:DB8::1",
        "as it was given"
    );
    assert_eq!(
        (&shown["monitor"], &shown["load_shedding"]),
        (&json!(""), &json!(null))
    );
    assert_eq!(shown["created_on"], result(&made)["created_on"]);
}

#[test]
fn a_patch_changes_what_it_names_and_null_is_the_default() {
    let usher = empty();
    let base = usher.base();
    let mut body = pool("eu");
    body["latitude"] = json!(1.5);
    body["longitude"] = json!(2);
    body["description"] = json!("d");
    let path = format!(
        "{base}/pools/{}",
        id(&usher.made(&format!("{base}/pools"), &body))
    );
    let patched = usher.call(
        "PATCH",
        &path,
        r#"{"latitude": null, "longitude": null, "minimum_origins": 2}"#,
    );
    let patched = result(&patched);
    assert_eq!(
        (&patched["latitude"], &patched["minimum_origins"]),
        (&json!(null), &json!(2))
    );
    assert_eq!(patched["description"], "d");
    // The whole is judged: half a place is none, and what must be there cannot be taken away.
    let half = usher.call("PATCH", &path, r#"{"latitude": 3}"#);
    assert_eq!(errors(&half).0, 400, "{half:?}");
    let none = usher.call("PATCH", &path, r#"{"name": null, "origins": null}"#);
    let missing = vec![(1002, "/name".to_owned()), (1002, "/origins".to_owned())];
    assert_eq!(errors(&none), (400, missing));
    let off = json!({"origins": [{"name": "a", "address": "192.0.2.1", "enabled": false}]});
    let off = result(&usher.call("PATCH", &path, &off.to_string()));
    let since = &off["origins"][0]["disabled_at"];
    assert!(since.is_string(), "{off}");
    let kept = json!({"origins": [{"name": "renamed", "address": "192.0.2.1", "enabled": false}]});
    let kept = result(&usher.call("PATCH", &path, &kept.to_string()));
    assert_eq!(&kept["origins"][0]["disabled_at"], since);
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_place() {
    let usher = empty();
    let path = format!("{}/pools", usher.base());
    let body = json!({
        "name": "a b", "minimum_origins": -1, "latitude": 91, "longitude": 0, "monitor": "x", "colour": "red",
        "origins": [{"name": "a", "address": "192.0.2.1", "weight": 1.4}, {"name": "a", "address": "", "port": "1"}],
    });
    let (status, mut found) = errors(&usher.call("POST", &path, &body.to_string()));
    found.sort();
    let wanted = [
        (1002, "/latitude"),
        (1002, "/minimum_origins"),
        (1002, "/monitor"),
        (1002, "/name"),
        (1002, "/origins/0/weight"),
        (1002, "/origins/1/address"),
        (1002, "/origins/1/port"),
        (1003, "/origins/1/name"),
    ];
    assert_eq!(status, 400);
    assert_eq!(
        found,
        wanted.map(|(code, pointer)| (code, pointer.to_owned()))
    );
    let listed = result(&usher.call("GET", &path, ""));
    assert_eq!(listed, json!([]), "nothing was kept");
    let mut body = pool("eu");
    body["colour"] = json!("red");
    let (_, told) = told(&usher.call("POST", &path, &body.to_string()));
    assert_eq!(
        told["messages"][0]["source"]["pointer"], "/colour",
        "{told}"
    );
    assert!(told["result"].get("colour").is_none());
    let same = usher.call("POST", &path, &pool("eu").to_string());
    assert_eq!(errors(&same), one(400, 1003, "/name"));
    let unknown = json!({"name": HOST, "proxied": true, "default_pools": ["0".repeat(32)], "fallback_pool": "0".repeat(32)});
    let unknown = usher.call(
        "POST",
        &format!("{}/load_balancers", usher.zone()),
        &unknown.to_string(),
    );
    let missing = vec![
        (1002, "/default_pools/0".to_owned()),
        (1002, "/fallback_pool".to_owned()),
    ];
    assert_eq!(errors(&unknown), (400, missing));
}

#[test]
fn bodies_paths_and_methods_that_cannot_be_are_refused() {
    let usher = empty();
    let base = usher.base();
    let pools = format!("{base}/pools");
    for body in ["", "{", "{\"name\": \"\u{fffd}", "nul", "{} {}"] {
        assert_eq!(
            errors(&usher.call("POST", &pools, body)),
            one(400, 6007, "-"),
            "{body:?}"
        );
    }
    for body in ["[]", "null", "1", "\"x\""] {
        assert_eq!(
            errors(&usher.call("POST", &pools, body)),
            one(400, 1002, ""),
            "{body}"
        );
    }
    let large = format!("{{\"description\": \"{}\"}}", "x".repeat(1024 * 1024));
    assert_eq!(
        errors(&usher.call("POST", &pools, &large)),
        one(413, 10413, "-")
    );
    let gone = vec![(7003, "-".to_owned()), (7000, "-".to_owned())];
    for path in [
        format!("{pools}/"),
        format!("{pools}/x"),
        format!("{pools}/.."),
        format!("{pools}/%2e%2e"),
        format!("{pools}/{}/", "0".repeat(32)),
        format!("/accounts/{}/load_balancers/pools", "0".repeat(32)),
        format!("/zones/{}/load_balancers", "0".repeat(32)),
        "/accounts//load_balancers/pools".to_owned(),
        "/nothing".to_owned(),
    ] {
        assert_eq!(
            errors(&usher.call("GET", &path, "")),
            (404, gone.clone()),
            "{path}"
        );
    }
    let unknown = format!("{pools}/{}", "0".repeat(32));
    assert_eq!(
        errors(&usher.call("GET", &unknown, "")),
        one(404, 1001, "-")
    );
    assert_eq!(
        errors(&usher.call("DELETE", &unknown, "")),
        one(404, 1001, "-")
    );
    let method = usher.call("DELETE", &pools, "");
    assert_eq!(errors(&method), one(405, 10405, "-"));
    let allowed = method.field("allow").unwrap();
    assert!(
        ["GET", "POST", "PATCH"]
            .iter()
            .all(|it| allowed.contains(it)),
        "{allowed}"
    );
    for page in [
        "page=0",
        "per_page=0",
        "per_page=1001",
        "page=x",
        "limit=0",
        "offset=-1",
    ] {
        assert_eq!(
            usher.call("GET", &format!("{pools}?{page}"), "").status(),
            400,
            "{page}"
        );
    }
}

#[test]
fn lists_are_whole_unless_a_page_is_asked_for() {
    let usher = empty();
    let path = format!("{}/pools", usher.base());
    for number in 0..30 {
        usher.made(&path, &pool(&format!("p{number}")));
    }
    let names = |query: &str| {
        let (_, body) = told(&usher.call("GET", &format!("{path}{query}"), ""));
        let list = body["result"].as_array().unwrap().iter();
        let names: Vec<String> = list
            .map(|pool| pool["name"].as_str().unwrap().to_owned())
            .collect();
        (names, body["result_info"].clone())
    };
    let (all, info) = names("");
    assert_eq!(
        all,
        (0..30)
            .map(|number| format!("p{number}"))
            .collect::<Vec<_>>()
    );
    assert_eq!(info["total_pages"], 1);
    let (second, info) = names("?page=2");
    assert_eq!((second.len(), second[0].as_str()), (5, "p25"));
    assert_eq!(
        info,
        json!({"page": 2, "per_page": 25, "count": 5, "total_count": 30, "total_pages": 2})
    );
    assert_eq!(names("?limit=2&offset=3").0, ["p3", "p4"]);
    assert_eq!(names("?page=9").0, [""; 0]);
}

#[test]
fn what_is_declared_is_shown_and_not_changed() {
    let endpoint = Endpoint::named("a");
    let config = with_store(Config::serving([endpoint.origin("a")]).monitored("main"));
    let usher = Usher::start(&config);
    let (base, zone) = (usher.base(), usher.zone());
    let pools = result(&usher.call("GET", &format!("{base}/pools"), ""));
    let pool = &pools[0];
    assert_eq!(
        (&pool["name"], &pool["origins"][0]["name"]),
        (&json!("main"), &json!("a"))
    );
    let monitors = result(&usher.call("GET", &format!("{base}/monitors"), ""));
    assert_eq!(pool["monitor"], monitors[0]["id"], "shown by id");
    let balancers = result(&usher.call("GET", &format!("{zone}/load_balancers"), ""));
    assert_eq!(balancers[0]["default_pools"], json!([pool["id"]]));
    let path = format!("{base}/pools/{}", id(pool));
    for (method, body) in [("PUT", "{}"), ("PATCH", "{\"x\":1}"), ("DELETE", "")] {
        let refused = usher.call(method, &path, body);
        assert_eq!(errors(&refused), one(400, 1109, "-"), "{method}");
        assert!(refused.text().contains("usher.yaml"), "{refused:?}");
    }
    let health = result(&usher.call("GET", &format!("{path}/health"), ""));
    assert_eq!(health["pop_health"]["NL"]["healthy"], true, "{health}");
    // What is created may refer to it, and its name is taken.
    let taken = usher.call(
        "POST",
        &format!("{base}/pools"),
        &self::pool("main").to_string(),
    );
    assert_eq!(errors(&taken), one(400, 1003, "/name"));
    let body = json!({"name": "b.example.com", "proxied": true, "default_pools": [id(pool)], "fallback_pool": id(pool)});
    usher.made(&format!("{zone}/load_balancers"), &body);
    let references = result(&usher.call("GET", &format!("{path}/references"), ""));
    assert_eq!(references.as_array().unwrap().len(), 3, "{references}");
}

#[test]
fn what_others_refer_to_stays() {
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let monitor = usher.made(
        &format!("{base}/monitors"),
        &json!({"type": "tcp", "port": 1}),
    );
    let mut body = pool("eu");
    body["monitor"] = monitor["id"].clone();
    let [eu, us] = ["eu", "us"].map(|name| {
        body["name"] = json!(name);
        usher.made(&format!("{base}/pools"), &body)
    });
    let body = json!({"name": HOST, "proxied": true, "default_pools": [id(&us)], "fallback_pool": id(&us),
                      "country_pools": {"NL": [id(&eu)]}});
    let balancer = usher.made(&format!("{zone}/load_balancers"), &body);
    for path in [
        format!("{base}/monitors/{}", id(&monitor)),
        format!("{base}/pools/{}", id(&eu)),
    ] {
        assert_eq!(
            errors(&usher.call("DELETE", &path, "")),
            one(412, 1005, "-"),
            "{path}"
        );
    }
    usher.call(
        "DELETE",
        &format!("{zone}/load_balancers/{}", id(&balancer)),
        "",
    );
    for (kind, resource) in [("pools", &eu), ("pools", &us), ("monitors", &monitor)] {
        let path = format!("{base}/{kind}/{}", id(resource));
        assert_eq!(usher.call("DELETE", &path, "").status(), 200, "{path}");
    }
}

#[test]
fn a_create_that_comes_twice_is_one() {
    let usher = empty();
    let path = format!("{}/pools", usher.base());
    let head = |count: u8| {
        format!(
            "POST /client/v4{path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nX-Stainless-Retry-Count: {count}\r\n"
        )
    };
    let body = pool("eu").to_string();
    let first = usher.api(&head(0), &body);
    let again = usher.api(&head(1), &body);
    assert_eq!(first.text(), again.text());
    assert_eq!(errors(&usher.api(&head(0), &body)), one(400, 1003, "/name"));
}

#[test]
fn a_token_is_shown_once_and_goes_as_far_as_it_may() {
    let usher = empty();
    let base = usher.base();
    let body = json!({"name": "reader", "permissions": ["load_balancing:read"]});
    let made = usher.made("/user/tokens", &body);
    let secret = made["value"].as_str().unwrap().to_owned();
    let path = format!("/user/tokens/{}", id(&made));
    let shown = result(&usher.call("GET", &path, ""));
    assert!(shown.get("value").is_none(), "{shown}");
    let with = |method: &str, path: &str, body: &str| {
        let head = format!(
            "{method} /client/v4{path} HTTP/1.1\r\nX-Auth-Key: {secret}\r\nX-Auth-Email: a@example.com\r\n"
        );
        usher.api(&head, body)
    };
    let verified = result(&with("GET", "/user/tokens/verify", ""));
    assert_eq!(
        (&verified["id"], &verified["status"]),
        (&made["id"], &json!("active"))
    );
    assert_eq!(with("GET", &format!("{base}/pools"), "").status(), 200);
    let denied = one(403, 10000, "-");
    assert_eq!(
        errors(&with("POST", &format!("{base}/pools"), "{}")),
        denied
    );
    assert_eq!(errors(&with("GET", "/user/tokens", "")), denied);
    let used = result(&usher.call("GET", &path, ""));
    assert!(used["last_used_on"].is_string(), "{used}");
    let database = std::fs::read(usher.path("var/usher.db")).unwrap();
    let log = std::fs::read(usher.path("var/usher.db-wal")).unwrap_or_default();
    for bytes in [database, log] {
        assert!(
            !bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        );
    }
    assert_eq!(usher.call("DELETE", &path, "").status(), 200);
    assert_eq!(errors(&with("GET", "/user/tokens/verify", "")), denied);
    assert_eq!(
        errors(&usher.api("GET /client/v4/zones HTTP/1.1\r\n", "")),
        one(400, 6003, "-")
    );
}

#[test]
fn without_a_store_nothing_is_created_and_that_is_said() {
    let usher = Usher::start(&Config::new());
    let path = format!("{}/pools", usher.base());
    let refused = usher.call("POST", &path, &pool("eu").to_string());
    assert_eq!(errors(&refused), one(501, 10501, "-"));
    assert_eq!(refused.field("x-should-retry"), Some("false"));
    let dry = usher.call(
        "POST",
        &format!("{path}?dry_run=true"),
        &pool("eu").to_string(),
    );
    assert_eq!(dry.status(), 200, "{dry:?}");
    assert_eq!(result(&usher.call("GET", &path, "")), json!([]));
}

#[test]
fn who_changed_what_is_kept() {
    let usher = empty();
    let base = usher.base();
    let account = base.strip_suffix("/load_balancers").unwrap();
    let pool = usher.made(&format!("{base}/pools"), &pool("eu"));
    usher.call(
        "PATCH",
        &format!("{base}/pools/{}", id(&pool)),
        r#"{"description": "new"}"#,
    );
    let log = result(&usher.call("GET", &format!("{account}/audit_logs"), ""));
    assert_eq!(
        (&log[0]["actor"], &log[0]["revision"]),
        (&json!("admin"), &json!(2))
    );
    let item = &log[0]["resources"][0];
    assert_eq!(
        (
            &item["before"]["description"],
            &item["after"]["description"]
        ),
        (&json!(""), &json!("new"))
    );
    assert_eq!(log[1]["resources"][0]["before"], json!(null));
}

#[test]
fn no_token_reaches_beyond_itself() {
    let usher = empty();
    let made = |body: Value| {
        usher.made("/user/tokens", &body)["value"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let admin = usher.made(
        "/user/tokens",
        &json!({"name": "admin", "permissions": ["admin"]}),
    );
    let clerk = made(json!({"name": "clerk", "permissions": ["tokens:edit"]}));
    let ends = "2099-01-01T00:00:00Z";
    let guest = made(json!({"name": "guest", "permissions": ["tokens:edit"], "expires_on": ends}));
    let with = |secret: &str, method: &str, path: &str, body: Value| {
        let head =
            format!("{method} /client/v4{path} HTTP/1.1\r\nAuthorization: Bearer {secret}\r\n");
        usher.api(&head, &body.to_string())
    };
    // What it could not make it does not change or take away.
    let path = format!("/user/tokens/{}", id(&admin));
    let less = json!({"name": "admin", "permissions": ["tokens:read"]});
    for (method, path, body) in [
        ("DELETE", path.clone(), json!({})),
        ("PUT", path.clone(), less.clone()),
        ("PATCH", path.clone(), less),
    ] {
        assert_eq!(
            errors(&with(&clerk, method, &path, body)).0,
            400,
            "{method}"
        );
    }
    assert_eq!(
        result(&usher.call("GET", &path, ""))["permissions"],
        json!(["admin"])
    );
    // What it makes does not outlive it.
    let child = |name: &str, ends: Value| json!({"name": name, "permissions": ["tokens:read"], "expires_on": ends});
    for ends in [Value::Null, json!("2099-01-01T00:00:01Z")] {
        let answer = with(&guest, "POST", "/user/tokens", child("longer", ends));
        assert_eq!(errors(&answer), one(400, 1002, "/expires_on"));
    }
    let answer = with(
        &guest,
        "POST",
        "/user/tokens",
        child("shorter", json!(ends)),
    );
    assert_eq!(answer.status(), 200, "{answer:?}");
}

#[test]
fn a_dry_run_says_what_would_move_and_keeps_nothing() {
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let [one, two] = ["one", "two"].map(|name| usher.made(&format!("{base}/pools"), &pool(name)));
    let body = json!({"name": HOST, "proxied": true, "default_pools": [id(&one)], "fallback_pool": id(&one)});
    let balancer = usher.made(&format!("{zone}/load_balancers"), &body);
    let path = format!("{zone}/load_balancers/{}", id(&balancer));
    eventually("explained", || {
        (usher.explain(&format!("http://{HOST}/"))["pool"] == "one").then_some(())
    });
    let patch =
        json!({"steering_policy": "random", "default_pools": [id(&one), id(&two)]}).to_string();
    let dry = usher.call("PATCH", &format!("{path}?dry_run=true"), &patch);
    let (_, dried) = told(&dry);
    assert_eq!(dried["result"]["steering_policy"], "random");
    let moved = &dried["dry_run"]["traffic"][0];
    assert_eq!(
        (&moved["load_balancer"], &moved["share_moved"]),
        (&json!(HOST), &json!(0.5)),
        "{dried}"
    );
    assert_eq!(result(&usher.call("GET", &path, "")), balancer);
    // Nobody would answer: all of it is lost, and none of it is a gain of others.
    let off = json!({"enabled": false}).to_string();
    let only = format!("{base}/pools/{}?dry_run=true", id(&one));
    for (method, path, body) in [
        ("PATCH", only, &*off),
        ("PATCH", format!("{path}?dry_run=true"), &*off),
        ("DELETE", format!("{path}?dry_run=true"), ""),
    ] {
        let (_, dried) = told(&usher.call(method, &path, body));
        let moved = &dried["dry_run"]["traffic"][0];
        let both = [&moved["share_moved"], &moved["share_lost"]];
        assert_eq!(both, [&json!(1.0), &json!(1.0)], "{method} {path}: {dried}");
    }
    // A flag that says nothing clear is no reason to write.
    for query in [
        "dry_run=",
        "dry_run=true&dry_run=",
        "dry_run=true&dry_run=false",
    ] {
        let unclear = usher.call("PATCH", &format!("{path}?{query}"), &patch);
        assert_eq!(errors(&unclear).0, 400, "{query}");
    }
    let wrong = usher.call(
        "PATCH",
        &format!("{path}?dry_run=true"),
        "{\"default_pools\": []}",
    );
    assert_eq!(errors(&wrong).0, 400);
}

#[test]
fn an_endpoint_that_fails_is_an_event() {
    let endpoint = Endpoint::named("a");
    let config = with_store(Config::serving([endpoint.origin("a")]).monitored("main"));
    let usher = Usher::start(&config);
    endpoint.set_healthy(false);
    let query = "/user/load_balancing_analytics/events?origin_healthy=false&pool_name=main";
    let event = eventually("an event", || {
        let list = result(&usher.call("GET", query, ""));
        list.as_array().unwrap().first().cloned()
    });
    assert_eq!(
        (&event["pool"]["name"], &event["pool"]["healthy"]),
        (&json!("main"), &json!(false))
    );
    let origin = &event["origins"][0];
    assert_eq!(
        (&origin["name"], &origin["changed"]),
        (&json!("a"), &json!(true))
    );
    assert_eq!(origin["failure_reason"], "Response code mismatch error");
}

#[test]
fn a_load_balancer_of_the_account_is_kept_and_nothing_reaches_it() {
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let pools = format!("{base}/pools");
    let pool = usher.made(&pools, &pool("eu"));
    let body = |name: &str| json!({"name": name, "default_pools": [id(&pool)], "fallback_pool": id(&pool)});
    for name in ["10.0.0.7", "fd00::7", "inner_1", HOST] {
        let (status, told) = told(&usher.call("POST", &base, &body(name).to_string()));
        assert_eq!(status, 200, "{told}");
        let note = told["messages"][0]["message"].as_str().unwrap();
        assert!(note.contains("no way in"), "{told}");
        assert_eq!(told["result"]["name"], name);
        assert!(told["result"].get("zone_name").is_none(), "{told}");
    }
    for name in ["192.0.2.1", "2001:db8::1", "a b", ""] {
        let (status, found) = errors(&usher.call("POST", &base, &body(name).to_string()));
        assert_eq!(
            (status, &found[0]),
            (400, &(1002, "/name".to_owned())),
            "{name:?}"
        );
    }
    let again = usher.call("POST", &base, &body("inner_1").to_string());
    assert_eq!(errors(&again), one(400, 1003, "/name"));
    // The same name may stand in a zone, and only that one is reached.
    let mut of_zone = body(HOST);
    of_zone["proxied"] = json!(true);
    usher.made(&format!("{zone}/load_balancers"), &of_zone);
    eventually("only the one of the zone to be served", || {
        let state = usher.state();
        let served = state["load_balancers"].as_array().unwrap().len();
        (served == 1).then_some(())
    });
    let listed = result(&usher.call("GET", &base, ""));
    assert_eq!(listed.as_array().map(Vec::len), Some(4));
    let path = format!("{base}/{}", id(&listed[0]));
    assert_eq!(result(&usher.call("GET", &path, "")), listed[0]);
    let elsewhere = format!("{zone}/load_balancers/{}", id(&listed[0]));
    assert_eq!(
        errors(&usher.call("GET", &elsewhere, "")),
        one(404, 1001, "-")
    );
    let used = usher.call("DELETE", &format!("{pools}/{}", id(&pool)), "");
    assert_eq!(errors(&used), one(412, 1005, "-"));
    let patched = usher.call("PATCH", &path, r#"{"description": "d"}"#);
    assert_eq!(result(&patched)["description"], "d");
    assert_eq!(usher.call("DELETE", &path, "").status(), 200);
}

#[test]
fn what_has_no_effect_yet_is_kept_shown_and_said() {
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let noted = |path: &str, body: &Value, field: &str| {
        let (status, told) = told(&usher.call("POST", path, &body.to_string()));
        assert_eq!(status, 200, "{told}");
        let notes = told["messages"].as_array().unwrap().iter();
        let pointers: Vec<_> = notes
            .map(|note| note["source"]["pointer"].clone())
            .collect();
        assert!(
            pointers.contains(&json!(format!("/{field}"))),
            "{field}: {told}"
        );
        assert_eq!(told["result"][field], body[field], "as it was given");
        told["result"].clone()
    };
    let monitors = format!("{base}/monitors");
    noted(
        &monitors,
        &json!({"type": "http", "probe_zone": "example.com"}),
        "probe_zone",
    );
    let pools = format!("{base}/pools");
    let with = |name: &str, regions: Value, sources: Value| {
        let mut body = pool(name);
        body["check_regions"] = regions;
        body["health_sources"] = sources;
        body
    };
    let kept = noted(
        &pools,
        &with("a", json!(["WEU", "ENAM"]), json!(["regional", "global"])),
        "check_regions",
    );
    noted(
        &pools,
        &with("b", json!(["ALL_REGIONS"]), json!(null)),
        "check_regions",
    );
    noted(
        &pools,
        &with("c", json!(null), json!(["global"])),
        "health_sources",
    );
    for (regions, sources, pointer) in [
        (json!(["XX"]), json!(null), "/check_regions/0"),
        (
            json!(["WEU", "ALL_REGIONS"]),
            json!(null),
            "/check_regions/1",
        ),
        (json!(["WEU", "WEU"]), json!(null), "/check_regions/1"),
        (json!([]), json!(["regional", "global"]), "/health_sources"),
        (json!(null), json!(["global", "local"]), "/health_sources"),
        (json!(null), json!([]), "/health_sources"),
    ] {
        let body = with("bad", regions, sources);
        let (status, found) = errors(&usher.call("POST", &pools, &body.to_string()));
        assert_eq!(
            (status, found.len(), found[0].1.as_str()),
            (400, 1, pointer),
            "{body}"
        );
    }
    let strategy = json!({"mode": "resolver_ip", "prefer_ecs": "geo"});
    let body = json!({"name": HOST, "proxied": true, "default_pools": [id(&kept)], "fallback_pool": id(&kept),
                      "location_strategy": strategy});
    noted(
        &format!("{zone}/load_balancers"),
        &body,
        "location_strategy",
    );
}
