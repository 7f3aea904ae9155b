//! Every field of every resource with values that it cannot hold.
//!
//! Fields and their types are taken from the description that the node itself gives, so that a new
//! field is tried without a line here.

use serde_json::{Value, json};

use crate::control_api::{empty, errors, id, pool};
use crate::support::Usher;
use crate::support::api::result;
use crate::support::config::HOST;

/// Where resources are created, by what their routes are called in the description, and a body that
/// is taken.
fn good(usher: &Usher) -> Vec<(&'static str, String, Value)> {
    let (base, zone) = (usher.base(), usher.zone());
    let monitor = usher.made(&format!("{base}/monitors"), &json!({"type": "http"}));
    let kept = usher.made(&format!("{base}/pools"), &pool("kept"));
    let member = json!({"monitor_id": id(&monitor), "enabled": true, "monitoring_only": false, "must_be_healthy": false});
    vec![
        (
            "create_monitor",
            format!("{base}/monitors"),
            json!({"type": "http"}),
        ),
        (
            "create_monitor_group",
            format!("{base}/monitor_groups"),
            json!({"description": "", "members": [member]}),
        ),
        ("create_pool", format!("{base}/pools"), pool("new")),
        (
            "create_load_balancer",
            format!("{zone}/load_balancers"),
            json!({"name": HOST, "proxied": true, "default_pools": [id(&kept)], "fallback_pool": id(&kept)}),
        ),
        (
            "create_waiting_room",
            format!("{zone}/waiting_rooms"),
            json!({"name": "sale", "host": HOST, "total_active_users": 300, "new_users_per_minute": 200}),
        ),
    ]
}

/// The description of a body, by the name of its call.
fn schema(document: &Value, operation: &str) -> Value {
    let paths = document["paths"].as_object().unwrap().values();
    let mut calls = paths.flat_map(|path| path.as_object().unwrap().values());
    let call = calls.find(|call| call["operationId"] == operation);
    call.unwrap_or_else(|| panic!("no {operation}"))["requestBody"]["content"]["application/json"]
        ["schema"]
        .clone()
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Values that a field of this description cannot have.
fn wrong(schema: &Value) -> Vec<Value> {
    let types = types(schema);
    let has = |name: &str| types.contains(&name);
    let mut all = Vec::new();
    if has("string") {
        all.extend([json!(17), json!(true), json!(["x"]), json!({"x": 1})]);
    } else if has("boolean") {
        all.extend([json!("true"), json!(1), json!([true])]);
    } else if has("integer") {
        all.extend([json!("1"), json!(1.5), json!(-1), json!(4_294_967_296_u64)]);
        all.extend([json!(true), json!([1]), json!(-1e300)]);
    } else if has("number") {
        all.extend([json!("1"), json!(true), json!([1]), json!(1e9), json!(-1e9)]);
    } else if has("array") {
        all.extend([
            json!("x"),
            json!(1),
            json!({"x": 1}),
            json!([[1]]),
            json!([7]),
        ]);
    } else {
        all.extend([json!("x"), json!(1), json!(["x"]), json!(true)]);
    }
    all
}

/// Tries every wrong value of every field below `place`, which `set` puts into a good body.
fn each_field(schema: &Value, pointer: &str, tried: &mut dyn FnMut(&str, Value)) {
    let properties = schema["properties"].as_object();
    for (name, field) in properties.into_iter().flatten() {
        let pointer = format!("{pointer}/{name}");
        for value in wrong(field) {
            tried(&pointer, value);
        }
        each_field(field, &pointer, tried);
        if field["items"]["properties"].is_object() {
            each_field(&field["items"], &format!("{pointer}/0"), tried);
        }
    }
}

/// Puts a value where the pointer says; what is missing on the way is made.
fn put(body: &mut Value, pointer: &str, value: Value) {
    let mut place = body;
    for token in pointer.split('/').skip(1) {
        place = match token.parse::<usize>() {
            Ok(index) => {
                if !place.is_array() {
                    *place = json!([{}]);
                }
                &mut place[index]
            }
            Err(_) => &mut place[token],
        };
    }
    *place = value;
}

#[test]
fn no_field_takes_what_it_cannot_hold() {
    let usher = empty();
    let document: Value =
        serde_json::from_slice(&usher.api_get("/client/v4/openapi.json").body).unwrap();
    for (operation, path, body) in good(&usher) {
        let before = usher.call("GET", &path, "").text();
        let schema = schema(&document, operation);
        let (mut count, mut taken) = (0, Vec::new());
        each_field(&schema, "", &mut |pointer, value| {
            let mut body = body.clone();
            put(&mut body, pointer, value.clone());
            let answer = usher.call("POST", &path, &body.to_string());
            let what = format!("{operation} {pointer} = {value}: {answer:?}");
            match errors(&answer) {
                // A part that is not built says so, whatever it was to be.
                (501, _) => {}
                (400, found) if found.iter().any(|(_, it)| it.starts_with(pointer)) => {}
                _ => taken.push(what),
            }
            count += 1;
        });
        assert!(taken.is_empty(), "{}", taken.join("\n"));
        assert!(count > 10, "{operation} has fields");
        for name in schema["required"].as_array().into_iter().flatten() {
            let mut body = body.clone();
            let name = name.as_str().unwrap();
            body[name] = Value::Null;
            let (status, found) = errors(&usher.call("POST", &path, &body.to_string()));
            let pointer = format!("/{name}");
            assert_eq!(status, 400, "{operation} {name}");
            assert!(found.iter().any(|(_, it)| *it == pointer), "{found:?}");
        }
        assert_eq!(
            usher.call("GET", &path, "").text(),
            before,
            "{operation}: nothing was kept"
        );
        result(&usher.call("POST", &path, &body.to_string()));
    }
}
