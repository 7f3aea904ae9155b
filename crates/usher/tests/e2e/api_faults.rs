//! Faults that control APIs of others have had, tried on this one.

use serde_json::{Value, json};

use crate::control_api::{empty, errors, id, pool};
use crate::support::api::result;
use crate::support::config::HOST;
use crate::support::endpoint::PROBE_PATH;
use crate::support::{Endpoint, Usher, eventually};

/// As it is shown, less when it changed.
fn lasting(resource: &Value) -> Value {
    let mut resource = resource.clone();
    resource.as_object_mut().unwrap().remove("modified_on");
    resource
}

fn balancer(pool: &Value) -> Value {
    json!({"name": HOST, "proxied": true, "default_pools": [id(pool)], "fallback_pool": id(pool)})
}

#[test]
fn what_is_null_or_empty_is_the_same_the_second_time() {
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let made = usher.made(&format!("{base}/pools"), &pool("eu"));
    let mut body = balancer(&made);
    for (key, value) in [
        ("description", Value::Null),
        ("ttl", Value::Null),
        ("country_pools", Value::Null),
        ("region_pools", json!({})),
        ("pop_pools", Value::Null),
        ("session_affinity", Value::Null),
        ("session_affinity_ttl", Value::Null),
        ("session_affinity_attributes", json!({})),
        ("random_steering", Value::Null),
        ("adaptive_routing", json!({})),
        ("location_strategy", Value::Null),
        ("rules", json!([])),
        ("networks", Value::Null),
    ] {
        body[key] = value;
    }
    let list = format!("{zone}/load_balancers");
    let first = usher.made(&list, &body);
    let path = format!("{list}/{}", id(&first));
    for again in [&body, &first] {
        let second = result(&usher.call("PUT", &path, &again.to_string()));
        assert_eq!(lasting(&second), lasting(&first));
        assert_eq!(result(&usher.call("GET", &path, "")), second);
    }
}

#[test]
fn a_room_with_null_or_empty_is_the_same_the_second_time() {
    let usher = empty();
    let list = format!("{}/waiting_rooms", usher.zone());
    let mut body = json!({"name": "sale", "host": HOST, "total_active_users": 300, "new_users_per_minute": 200});
    for (key, value) in [
        ("description", Value::Null),
        ("path", Value::Null),
        ("additional_routes", json!([])),
        ("cookie_suffix", Value::Null),
        ("cookie_attributes", json!({})),
        ("session_duration", Value::Null),
        ("queueing_method", Value::Null),
        ("custom_page_html", json!("")),
        ("default_template_language", Value::Null),
        ("enabled_origin_commands", Value::Null),
        ("turnstile_mode", Value::Null),
        ("usher", json!({})),
    ] {
        body[key] = value;
    }
    let first = usher.made(&list, &body);
    let path = format!("{list}/{}", id(&first));
    for again in [&body, &first] {
        let second = result(&usher.call("PUT", &path, &again.to_string()));
        assert_eq!(lasting(&second), lasting(&first));
        assert_eq!(result(&usher.call("GET", &path, "")), second);
    }
}

/// Limits of a room in whatever order they come: what is told can be met, and nothing is kept of
/// what cannot.
#[test]
fn limits_of_a_room_are_told_as_they_are() {
    let usher = empty();
    let list = format!("{}/waiting_rooms", usher.zone());
    let room = |seats: Value, rate: Value| json!({"name": "sale", "host": HOST, "total_active_users": seats, "new_users_per_minute": rate});
    for (seats, rate, pointer) in [
        (json!(-1), json!(1), "/total_active_users"),
        (json!(1), json!(2_147_483_648_u64), "/new_users_per_minute"),
        (json!(1.5), json!(1), "/total_active_users"),
        (json!("1"), json!(1), "/total_active_users"),
    ] {
        let (status, found) = errors(&usher.call("POST", &list, &room(seats, rate).to_string()));
        assert_eq!(status, 400);
        assert!(
            found
                .iter()
                .any(|(code, it)| *code == 1100 && it == pointer),
            "{found:?}"
        );
    }
    assert_eq!(result(&usher.call("GET", &list, "")), json!([]));
    // None at all and one at a time are limits like others, with a word about the hosted service.
    let made = usher.call("POST", &list, &room(json!(0), json!(1)).to_string());
    assert_eq!(result(&made)["total_active_users"], 0);
    assert!(
        made.text().contains("the least that Cloudflare takes"),
        "{}",
        made.text()
    );
    let path = format!("{list}/{}", id(&result(&made)));
    for body in [
        json!({"total_active_users": 1}),
        json!({"new_users_per_minute": 0}),
        json!({"queue_all": true}),
    ] {
        let edited = result(&usher.call("PATCH", &path, &body.to_string()));
        let (key, value) = body.as_object().unwrap().iter().next().unwrap();
        assert_eq!(&edited[key], value);
    }
}

#[test]
fn overrides_of_rules_come_back_as_they_were_sent() {
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let made = usher.made(&format!("{base}/pools"), &pool("eu"));
    let own = json!([id(&made)]);
    let overrides = [
        ("default_pools", own.clone()),
        ("fallback_pool", json!(id(&made))),
        ("region_pools", json!({"WEU": own})),
        ("country_pools", json!({"NL": own})),
        ("pop_pools", json!({"AMS": own})),
        ("steering_policy", json!("random")),
        (
            "random_steering",
            json!({"default_weight": 0.5, "pool_weights": {id(&made): 0.25}}),
        ),
        ("session_affinity", json!("cookie")),
        ("session_affinity_ttl", json!(1800)),
        (
            "session_affinity_attributes",
            json!({"samesite": "Lax", "secure": "Always"}),
        ),
        ("adaptive_routing", json!({"failover_across_pools": true})),
        (
            "location_strategy",
            json!({"mode": "resolver_ip", "prefer_ecs": "always"}),
        ),
        ("ttl", json!(60)),
    ];
    let list = format!("{zone}/load_balancers");
    let path = format!("{list}/{}", id(&usher.made(&list, &balancer(&made))));
    for (key, value) in overrides {
        let rule = json!({"name": key, "condition": "http.request.uri.path eq \"/x\"", "overrides": {key: value}});
        let answer = usher.call("PATCH", &path, &json!({"rules": [rule]}).to_string());
        if answer.status() == 501 {
            continue;
        }
        let shown = result(&answer);
        assert_eq!(
            shown["rules"][0]["overrides"],
            json!({key: value}),
            "{shown}"
        );
        assert_eq!(result(&usher.call("GET", &path, "")), shown);
        for (field, kind) in [("disabled", "false"), ("terminates", "false")] {
            assert_eq!(shown["rules"][0][field].to_string(), kind, "{shown}");
        }
    }
}

#[test]
fn a_range_that_is_told_can_be_met() {
    let usher = empty();
    let path = format!("{}/pools", usher.base());
    let origin = |number: usize| json!({"name": format!("o{number}"), "address": "192.0.2.1", "port": number + 1});
    for count in [0, 5_000] {
        let origins: Vec<Value> = (0..count).map(origin).collect();
        let body = json!({"name": "eu", "origins": origins}).to_string();
        let answer = usher.call("POST", &path, &body);
        let (status, found) = errors(&answer);
        assert_eq!(status, 400);
        assert!(
            found.iter().any(|(_, pointer)| pointer == "/origins"),
            "{found:?}"
        );
        let text = answer.text();
        let mut ranges = text
            .split([' ', ':', '"'])
            .filter_map(|word| word.split_once(".."));
        assert!(
            ranges.all(
                |(low, high)| match (low.parse::<f64>(), high.parse::<f64>()) {
                    (Ok(low), Ok(high)) => low <= high,
                    _ => true,
                }
            ),
            "{text}"
        );
    }
}

fn monitored(usher: &Usher, name: &str, endpoint: &Endpoint) -> (Value, Value) {
    let base = usher.base();
    let monitor =
        json!({"type": "http", "path": PROBE_PATH, "interval": 2, "timeout": 1, "retries": 0});
    let monitor = usher.made(&format!("{base}/monitors"), &monitor);
    let body = json!({"name": name, "monitor": id(&monitor), "origins": [endpoint.origin("a")]});
    let pool = usher.made(&format!("{base}/pools"), &body);
    (monitor, pool)
}

#[test]
fn state_health_and_traffic_say_the_same() {
    let (a, b) = (Endpoint::named("a"), Endpoint::named("b"));
    let usher = empty();
    let (base, zone) = (usher.base(), usher.zone());
    let (_, eu) = monitored(&usher, "eu", &a);
    let body = json!({"name": "spare", "origins": [b.origin("b")]});
    let spare = usher.made(&format!("{base}/pools"), &body);
    let body = json!({"name": HOST, "proxied": true, "default_pools": [id(&eu)], "fallback_pool": id(&spare)});
    usher.made(&format!("{zone}/load_balancers"), &body);
    for healthy in [true, false, true] {
        a.set_healthy(healthy);
        let (state, served) = match healthy {
            true => ("healthy", "a"),
            false => ("critical", "b"),
        };
        eventually(&format!("all say {state}"), || {
            let health = usher.call("GET", &format!("{base}/pools/{}/health", id(&eu)), "");
            let health = result(&health)["pop_health"]["NL"]["healthy"].clone();
            let told = usher.state();
            let told = told["pools"]
                .as_array()?
                .iter()
                .find(|it| it["name"] == "eu")?;
            let answer = usher.get("/");
            let all = told["state"] == state
                && health == healthy
                && answer.status() == 200
                && answer.text() == served;
            all.then_some(())
        });
    }
}

#[test]
fn what_is_deleted_is_not_probed_any_more() {
    let [first, second, clock] = ["a", "b", "clock"].map(Endpoint::named);
    let usher = empty();
    let base = usher.base();
    let (monitor, one) = monitored(&usher, "one", &first);
    let (other, two) = monitored(&usher, "two", &second);
    let (_, _) = monitored(&usher, "clock", &clock);
    for endpoint in [&first, &second, &clock] {
        endpoint.wait_probes(1);
    }
    let delete = |kind: &str, resource: &Value| {
        usher
            .call("DELETE", &format!("{base}/{kind}/{}", id(resource)), "")
            .status()
    };
    // The monitor first, which its pool has to let go of; then a pool, with its monitor behind it.
    assert_eq!(delete("monitors", &monitor), 412);
    let path = format!("{base}/pools/{}", id(&one));
    result(&usher.call("PATCH", &path, r#"{"monitor": null}"#));
    assert_eq!(delete("monitors", &monitor), 200);
    assert_eq!(delete("pools", &two), 200);
    assert_eq!(delete("monitors", &other), 200);
    // Time goes by the probes of the one that stays: one under way may still end.
    clock.wait_probes(2);
    let last = [first.probes(), second.probes()];
    clock.wait_probes(3);
    assert_eq!([first.probes(), second.probes()], last);
    assert_eq!(delete("pools", &one), 200);
}
