//! Notifications: policies, webhook destinations, and what reaches those who want to be told.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::api::result;
use crate::support::config::TOKEN;
use crate::support::endpoint::{ok, refusing};
use crate::support::{Config, Endpoint, Message, Usher, eventually};

const RECEIVED: &str = "HTTP/1.1 204 No Content\r\n\r\n";

fn told(config: Config) -> Config {
    config
        .set(&["store"], json!({"url": "sqlite:var/usher.db"}))
        .set(&["notifications"], json!({"allow_private": true}))
}

/// One slow probe on a busy machine is no news: it takes two.
fn steady(config: Config) -> Config {
    config.set(&["monitors", "web", "consecutive_down"], json!(2))
}

/// What an operator of notifications calls.
struct Desk {
    usher: Usher,
    base: String,
}

impl Desk {
    fn of(usher: Usher) -> Desk {
        let accounts = result(&usher.api_get("/client/v4/accounts"));
        let base = format!(
            "/client/v4/accounts/{}/alerting/v3",
            accounts[0]["id"].as_str().unwrap()
        );
        Desk { usher, base }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Message {
        let head = format!(
            "{method} {}/{path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n",
            self.base
        );
        self.usher.api(&head, &body.to_string())
    }

    fn get(&self, path: &str) -> Value {
        result(&self.call("GET", path, &Value::Null))
    }

    /// The id of a new destination.
    fn webhook(&self, url: &str, secret: Option<&str>) -> String {
        let mut body = json!({"name": "pager", "url": url});
        if let Some(secret) = secret {
            body["secret"] = secret.into();
        }
        let made = result(&self.call("POST", "destinations/webhooks", &body));
        made["id"].as_str().unwrap().to_owned()
    }

    /// The id of a new policy.
    fn policy(&self, alert: &str, filters: &Value, webhook: &str) -> String {
        let body = json!({
            "name": "night", "enabled": true, "alert_type": alert, "filters": filters,
            "mechanisms": {"webhooks": [{"id": webhook}]},
        });
        let made = result(&self.call("POST", "policies", &body));
        made["id"].as_str().unwrap().to_owned()
    }
}

fn url(endpoint: &Endpoint) -> String {
    format!("http://{}/hook?room=7", endpoint.address())
}

fn body(message: &Message) -> Value {
    assert_eq!(
        (message.method(), message.target()),
        ("POST", "/hook?room=7")
    );
    assert_eq!(message.field("content-type"), Some("application/json"));
    serde_json::from_slice(&message.body).unwrap()
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
fn a_destination_is_tried_when_it_is_made_and_its_secret_is_never_shown() {
    let receiver = Endpoint::answering(RECEIVED);
    let desk = Desk::of(Usher::start(&told(Config::new())));
    let id = desk.webhook(&url(&receiver), Some("open-sesame"));
    let test = receiver.next();
    assert_eq!(test.field("cf-webhook-auth"), Some("open-sesame"));
    let signature = test.field("usher-signature").unwrap();
    assert!(
        signature.starts_with("t=") && signature.contains(",v1="),
        "{signature}"
    );
    assert_eq!(body(&test)["alert_type"], "test");

    let path = format!("destinations/webhooks/{id}");
    let shown = desk.call("GET", &path, &Value::Null);
    assert!(!shown.text().contains("open-sesame"), "{}", shown.text());
    let shown = result(&shown);
    assert_eq!(
        (&shown["name"], &shown["type"]),
        (&json!("pager"), &json!("generic"))
    );
    assert!(
        shown["last_success"].is_string() && shown["last_failure"].is_null(),
        "{shown}"
    );
    assert_eq!(desk.get("destinations/webhooks"), json!([shown]));

    // Another name: nothing to try, and the secret stays.
    let named = desk.call(
        "PUT",
        &path,
        &json!({"name": "bell", "url": url(&receiver)}),
    );
    assert_eq!(result(&named), json!({"id": id}));
    assert_eq!(desk.get(&path)["name"], "bell");
    // Another place: it is tried with the secret that was kept.
    let moved = format!("{}&moved=1", url(&receiver));
    let answer = desk.call("PUT", &path, &json!({"url": moved}));
    assert_eq!(result(&answer), json!({"id": id}));
    let test = receiver.next();
    assert_eq!(test.target(), "/hook?room=7&moved=1");
    assert_eq!(test.field("cf-webhook-auth"), Some("open-sesame"));

    // Another host: whoever may change the address does not get the secret by that.
    let other = Endpoint::answering(RECEIVED);
    let answer = desk.call("PUT", &path, &json!({"url": url(&other)}));
    assert_eq!(errors(&answer), (400, vec![(1002, "/secret".to_owned())]));
    let answer = desk.call("PUT", &path, &json!({"url": url(&other), "secret": ""}));
    assert_eq!(result(&answer), json!({"id": id}));
    assert_eq!(other.next().field("cf-webhook-auth"), None);

    // One that does not answer is kept, and that is said.
    let nobody = json!({"name": "n", "url": format!("http://{}/", refusing())});
    let answer = desk.call("POST", "destinations/webhooks", &nobody);
    let envelope: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        envelope["messages"][0]["source"]["pointer"], "/url",
        "{envelope}"
    );
    let path = format!(
        "destinations/webhooks/{}",
        result(&answer)["id"].as_str().unwrap()
    );
    assert!(desk.get(&path)["last_failure"].is_string());
    assert_eq!(desk.call("DELETE", &path, &Value::Null).status(), 200);
    assert_eq!(errors(&desk.call("GET", &path, &Value::Null)).0, 404);
}

#[test]
fn what_happens_to_an_endpoint_is_told_to_those_who_ask() {
    let receiver = Endpoint::answering(RECEIVED);
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let config = Config::serving([a.origin("a"), b.origin("b")]).monitored("main");
    let desk = Desk::of(Usher::start(&told(steady(config))));
    let webhook = desk.webhook(&url(&receiver), None);
    assert_eq!(receiver.next().field("cf-webhook-auth"), None);
    let filters = json!({"event_source": ["origin"]});
    let policy = desk.policy("load_balancing_health_alert", &filters, &webhook);
    b.set_healthy(false);
    let down = body(&receiver.next());
    assert_eq!(down["alert_type"], "load_balancing_health_alert");
    assert_eq!(
        (&down["policy_id"], &down["name"]),
        (&json!(policy), &json!("night"))
    );
    let data = &down["data"];
    assert_eq!(
        (&data["pool_name"], &data["new_health"]),
        (&json!("main"), &json!("Unhealthy"))
    );
    assert_eq!(
        (&data["old_state"], &data["new_state"]),
        (&json!("healthy"), &json!("critical"))
    );
    let origin = &data["origins"][0];
    assert_eq!(
        (&origin["name"], &origin["healthy"]),
        (&json!("b"), &json!(false))
    );
    assert_eq!(origin["failure_reason"], "Response code mismatch error");
    b.set_healthy(true);
    assert_eq!(body(&receiver.next())["data"]["new_health"], "Healthy");

    let used = desk.call(
        "DELETE",
        &format!("destinations/webhooks/{webhook}"),
        &Value::Null,
    );
    assert_eq!(errors(&used), (412, vec![(1005, "-".to_owned())]));
    let path = format!("policies/{policy}");
    assert_eq!(
        result(&desk.call("PUT", &path, &json!({"enabled": false})))["id"],
        policy
    );
    let shown = desk.get(&path);
    assert_eq!(
        (&shown["enabled"], &shown["name"]),
        (&json!(false), &json!("night"))
    );
    assert_eq!(
        result(&desk.call("DELETE", &path, &Value::Null)),
        json!({"id": policy})
    );
    assert_eq!(desk.get("policies"), json!([]));
    let gone = desk.call(
        "DELETE",
        &format!("destinations/webhooks/{webhook}"),
        &Value::Null,
    );
    assert_eq!(gone.status(), 200);
}

#[test]
fn a_pool_says_what_of_it_is_told() {
    let receiver = Endpoint::answering(RECEIVED);
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")])
        .monitored("main")
        .set(
            &["pools", "main", "notification_filter"],
            json!({"origin": {"disable": true}, "pool": {"healthy": null}}),
        );
    let desk = Desk::of(Usher::start(&told(steady(config))));
    let webhook = desk.webhook(&url(&receiver), None);
    receiver.next();
    desk.policy("load_balancing_health_alert", &json!({}), &webhook);
    // Each is one change of the pool and one of its endpoint.
    for (healthy, word) in [
        (false, "Unhealthy"),
        (true, "Healthy"),
        (false, "Unhealthy"),
    ] {
        endpoint.set_healthy(healthy);
        let data = &body(&receiver.next())["data"];
        assert_eq!(
            (&data["event_source"], &data["new_health"]),
            (&json!("pool"), &json!(word))
        );
    }
}

#[test]
fn a_pool_that_is_turned_off_is_told_and_a_lost_message_is_tried_again() {
    let nth = AtomicUsize::new(0);
    let receiver = Endpoint::scripted(move |visit| {
        while visit.request().is_some() {
            // The test message arrives, the first notification does not.
            match nth.fetch_add(1, Ordering::SeqCst) {
                1 => visit.send("HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n"),
                _ => visit.send(ok("")),
            }
        }
    });
    let desk = Desk::of(Usher::start(&told(Config::new())));
    let webhook = desk.webhook(&url(&receiver), None);
    receiver.next();
    let pools = desk.base.replace("/alerting/v3", "/load_balancers/pools");
    let pool = json!({"name": "eu", "origins": [{"name": "a", "address": "192.0.2.1"}]});
    let pool = result(&desk.usher.api_post(&pools, &pool));
    let id = pool["id"].as_str().unwrap();
    eventually("the pool to be there", || {
        let state = desk.usher.state();
        let mut pools = state["pools"].as_array().unwrap().iter();
        pools.any(|pool| pool["name"] == "eu").then_some(())
    });
    let filters = json!({"pool_id": [id], "enabled": ["false"]});
    desk.policy("load_balancing_pool_enablement_alert", &filters, &webhook);
    let head = format!("PATCH {pools}/{id} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n");
    result(&desk.usher.api(&head, r#"{"enabled": false}"#));
    let lost = body(&receiver.next());
    assert_eq!(
        (&lost["data"]["pool_id"], &lost["data"]["enabled"]),
        (&json!(id), &json!(false))
    );
    assert_eq!(body(&receiver.next()), lost, "the same again");
    let path = format!("destinations/webhooks/{webhook}");
    eventually("both to be told", || {
        let shown = desk.get(&path);
        let (success, failure) = (
            shown["last_success"].as_str(),
            shown["last_failure"].as_str(),
        );
        success
            .zip(failure)
            .filter(|(success, failure)| success > failure)
            .map(|_| ())
    });
}

#[test]
fn what_cannot_be_told_is_refused() {
    let config = told(Config::new()).set(&["notifications"], json!({"allow_private": false}));
    let desk = Desk::of(Usher::start(&config));
    let unknown = "0".repeat(32);
    for (path, body, pointers) in [
        ("destinations/webhooks", json!({}), vec!["/name", "/url"]),
        (
            "destinations/webhooks",
            json!({"name": "", "url": "gopher://example.com/", "secret": "a b"}),
            vec!["/name", "/url", "/secret"],
        ),
        (
            "destinations/webhooks",
            json!({"name": 1, "url": 2, "secret": 3}),
            vec!["/name", "/url", "/secret"],
        ),
        (
            "destinations/webhooks",
            json!({"name": "a", "url": "http://127.0.0.1/"}),
            vec!["/url"],
        ),
        (
            "destinations/webhooks",
            json!({"name": "a", "url": "http://[::1]:80/"}),
            vec!["/url"],
        ),
        (
            "destinations/webhooks",
            json!({"name": "a", "url": "http://169.254.169.254/"}),
            vec!["/url"],
        ),
        (
            "destinations/webhooks",
            json!({"name": "a", "url": "http://localhost:8788/"}),
            vec!["/url"],
        ),
        (
            "destinations/webhooks",
            json!({"name": "a", "url": "http://u:p@example.com/"}),
            vec!["/url"],
        ),
        (
            "destinations/webhooks",
            json!({"name": "a", "url": format!("http://example.com/{}", "x".repeat(2048))}),
            vec!["/url"],
        ),
        (
            "policies",
            json!({}),
            vec!["/name", "/alert_type", "/mechanisms"],
        ),
        (
            "policies",
            json!({"name": "p", "alert_type": "billing_usage_alert", "enabled": "yes",
                   "filters": {"new_health": ["Fine"], "pool_id": ["x"]}, "mechanisms": {}}),
            vec![
                "/enabled",
                "/alert_type",
                "/filters/new_health/0",
                "/filters/pool_id/0",
                "/mechanisms",
            ],
        ),
        (
            "policies",
            json!({"name": "p", "alert_type": "load_balancing_health_alert",
                   "mechanisms": {"webhooks": [{"id": unknown}, {"id": "x"}, {}]}}),
            vec![
                "/mechanisms/webhooks/2/id",
                "/mechanisms/webhooks/0/id",
                "/mechanisms/webhooks/1/id",
            ],
        ),
    ] {
        let (status, mut found) = errors(&desk.call("POST", path, &body));
        found.sort();
        let mut wanted: Vec<_> = pointers.iter().map(|at| (1002, (*at).to_owned())).collect();
        wanted.sort();
        assert_eq!((status, found), (400, wanted), "{body}");
    }
    assert_eq!(desk.get("destinations/webhooks"), json!([]));
    let pager = json!({"name": "p", "alert_type": "load_balancing_health_alert",
                       "mechanisms": {"pagerduty": [{"id": unknown}]}});
    assert_eq!(errors(&desk.call("POST", "policies", &pager)).0, 501);
    let mail = json!({"name": "p", "alert_type": "load_balancing_health_alert",
                      "mechanisms": {"email": [{"id": "ops@example.com"}]}});
    let answer = desk.call("POST", "policies", &mail);
    let envelope: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        envelope["messages"][0]["source"]["pointer"], "/mechanisms/email/0/id",
        "{envelope}"
    );
    for (method, path) in [
        ("GET", format!("policies/{unknown}")),
        ("PUT", format!("policies/{unknown}")),
        ("DELETE", format!("destinations/webhooks/{unknown}")),
    ] {
        let answer = desk.call(method, &path, &json!({}));
        assert_eq!(
            errors(&answer),
            (404, vec![(1001, "-".to_owned())]),
            "{method} {path}"
        );
    }
}
