//! The calls, one after the other.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::IntoResponse as _;
use serde_json::json;
use tempfile::TempDir;
use usher_core::id::Kind as IdKind;
use usher_store::{Place, Retention};

use super::*;
use crate::access::{Access, Permission, Secret, Token};
use crate::here::{Here, nothing};
use crate::rest::{App, Declared, Desired};
use crate::wire::reader::declared;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The API over a store in a folder of its own, with a file that declares two rooms.
struct Api {
    app: Arc<App>,
    zone: String,
    in_time: Arc<AtomicBool>,
    _folder: TempDir,
}

impl Api {
    async fn new() -> Api {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::parse("sqlite:usher.db", folder.path()).expect("a place");
        let store = place.open(Retention::default(), Duration::ZERO).await;
        let desired = Desired {
            declared: Arc::new(file()),
            store: Some(store.expect("opens")),
        };
        let token = Token {
            name: "t".to_owned(),
            secret: Secret::new("secret"),
            permissions: vec![Permission::Admin],
            accounts: Vec::new(),
        };
        let in_time = Arc::new(AtomicBool::new(true));
        let control = Here {
            desired: Arc::new(desired),
            access: Arc::new(Access::new(&[token])),
            in_time: Arc::clone(&in_time),
            browsers: None,
        };
        let mut app = App::new(Arc::new(control));
        app.routes = super::routes();
        Api {
            app: Arc::new(app),
            zone: declared(IdKind::Zone, "example.com").to_string(),
            in_time,
            _folder: folder,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let path = path.replace("{z}", &self.zone);
        let request = Request::builder()
            .method(method)
            .uri(format!("/client/v4{path}"))
            .header("authorization", "Bearer secret")
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let answer = Arc::clone(&self.app).answer(request).await;
        let answer = answer.unwrap_or_else(ApiError::into_response);
        let status = answer.status().as_u16();
        let bytes = to_bytes(answer.into_body(), usize::MAX).await;
        let told = serde_json::from_slice(&bytes.expect("a body")).expect("JSON");
        (status, told)
    }

    /// The result of a call that succeeds.
    async fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, told) = self.ask(method, path, &text_of(body)).await;
        assert_eq!(
            (status, &told["success"]),
            (200, &json!(true)),
            "{method} {path}: {told}"
        );
        told["result"].clone()
    }

    /// Status, first code and its pointer of a call that fails.
    async fn refused(&self, method: &str, path: &str, body: &Value) -> (u16, u64, String) {
        let (status, told) = self.ask(method, path, &text_of(body)).await;
        assert_eq!(
            (&told["success"], &told["result"]),
            (&json!(false), &Value::Null)
        );
        let first = &told["errors"][0];
        let pointer = first["source"]["pointer"].as_str().unwrap_or_default();
        (
            status,
            first["code"].as_u64().expect("a code"),
            pointer.to_owned(),
        )
    }
}

fn text_of(body: &Value) -> String {
    match body {
        Value::Null => String::new(),
        body => body.to_string(),
    }
}

fn file() -> Declared {
    let root = json!({
        "zones": {"example.com": {}},
        "waiting_rooms": {
            "fixed": {"host": "fixed.example.com", "total_active_users": 9, "new_users_per_minute": 9,
                      "rules": [{"expression": "ssl"}], "usher": {"session_duration_seconds": 90}},
            "open": {"host": "Open.example.com", "total_active_users": 9, "new_users_per_minute": 9},
        },
    });
    let report = Report::new(Mode::File);
    let cursor = Cursor::root(&report, &root);
    let mut draft = nothing();
    for (section, below) in cursor.entries() {
        for (key, cursor) in below.entries() {
            if section == "zones" {
                let id = declared(IdKind::Zone, key);
                draft.zones.push(crate::wire::zones::read(&cursor, id, key));
            } else {
                let mut room = rooms::read(&cursor, declared(IdKind::Room, key), Some(key));
                room.zone = "example.com".to_owned();
                draft.rooms.push(room);
            }
        }
    }
    assert_eq!(report.into_parts().0, []);
    Declared::new(draft, &root, "usher.yaml")
}

fn sale(path: &str) -> Value {
    json!({"name": "sale", "host": "Shop.example.com", "path": path,
           "total_active_users": 300, "new_users_per_minute": 200})
}

const ROOMS: &str = "/zones/{z}/waiting_rooms";

#[tokio::test]
async fn a_room_is_made_changed_and_taken_down() {
    let api = Api::new().await;
    let made = api.done("POST", ROOMS, &sale("/sale")).await;
    assert_eq!(made["host"], "shop.example.com");
    assert_eq!(
        (&made["queueing_method"], &made["session_duration"]),
        (&json!("fifo"), &json!(5))
    );
    assert_eq!(
        made["cookie_attributes"],
        json!({"samesite": "auto", "secure": "auto"})
    );
    assert_eq!(made["next_event_start_time"], Value::Null);
    let item = format!("{ROOMS}/{}", made["id"].as_str().expect("an id"));
    assert_eq!(api.done("GET", &item, &Value::Null).await, made);

    let usher = json!({"usher": {"session_duration_seconds": 61}, "queueing_method": "RANDOM"});
    let edited = api.done("PATCH", &item, &usher).await;
    assert_eq!(
        (&edited["session_duration"], &edited["queueing_method"]),
        (&json!(2), &json!("random"))
    );
    assert_eq!(edited["created_on"], made["created_on"]);
    // What was read can be written back.
    let again = api.done("PUT", &item, &edited).await;
    assert_eq!(
        (&again["usher"], &again["session_duration"]),
        (&edited["usher"], &json!(2))
    );
    let reset = api
        .done(
            "PATCH",
            &item,
            &json!({"usher": null, "session_duration": null}),
        )
        .await;
    assert_eq!(
        (reset.get("usher"), &reset["session_duration"]),
        (None, &json!(5))
    );
    let (_, told) = api
        .ask("PATCH", &item, r#"{"cookie_suffix": "x", "other": 1}"#)
        .await;
    let notes = told["messages"].as_array().expect("a list").len();
    assert_eq!(notes, 2, "{told}");

    let status = api
        .done("GET", &format!("{item}/status"), &Value::Null)
        .await;
    assert_eq!(
        status,
        json!({
            "status": "queueing", "event_id": "", "estimated_queued_users": 2,
            "estimated_total_active_users": 7, "max_estimated_time_minutes": 2,
        })
    );
    assert_eq!(
        api.done("DELETE", &item, &Value::Null).await,
        json!({"id": made["id"]})
    );
    assert_eq!(api.refused("GET", &item, &Value::Null).await.1, 1001);
    let (_, told) = api.ask("GET", &item, "").await;
    assert_eq!(told["errors"][0]["message"], "Object not found.");
}

#[tokio::test]
async fn what_is_wrong_has_a_number_and_a_place() {
    let api = Api::new().await;
    api.done("POST", ROOMS, &sale("/sale")).await;
    let with = |key: &str, value: Value| {
        let mut room = sale("/other");
        room["name"] = "other".into();
        room[key] = value;
        room
    };
    let many = vec![
        json!({"host": "www.example.com", "path": "/a"}),
        json!({"host": "example.net"}),
    ];
    let mut two = with("additional_routes", many.into());
    two["cookie_suffix"] = "x".into();
    for (body, code, pointer) in [
        (with("name", "sale".into()), 1101, "/name"),
        (with("name", "a b".into()), 1100, "/name"),
        (with("path", "/x/../%73ale/".into()), 1102, "/path"),
        (with("path", "/cdn-cgi/waitingroom/a".into()), 1100, "/path"),
        (with("host", "example.org".into()), 1108, "/host"),
        (with("host", "*".into()), 1100, "/host"),
        (
            with("total_active_users", Value::Null),
            1100,
            "/total_active_users",
        ),
        (
            with("new_users_per_minute", (-1).into()),
            1100,
            "/new_users_per_minute",
        ),
        (
            with("session_duration", 31.into()),
            1100,
            "/session_duration",
        ),
        (
            with("custom_page_html", "x".repeat(1_048_577).into()),
            1107,
            "/custom_page_html",
        ),
        (
            with("usher", json!({"hold_seconds": 29})),
            1100,
            "/usher/hold_seconds",
        ),
        (two, 1108, "/additional_routes/1/host"),
    ] {
        let found = api.refused("POST", ROOMS, &body).await;
        assert_eq!(found, (400, code, pointer.to_owned()));
    }
    let turnstile = with("turnstile_mode", "invisible".into());
    assert_eq!(api.refused("POST", ROOMS, &turnstile).await.0, 501);
    let (status, _) = api
        .ask("POST", ROOMS, &" ".repeat(PAGED_BODY_MAX + 1))
        .await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn lists_end_on_an_empty_page() {
    let api = Api::new().await;
    for number in 0..4 {
        let mut room = sale(&format!("/{number}"));
        room["name"] = format!("r{number}").into();
        api.done("POST", ROOMS, &room).await;
    }
    let account = format!("/accounts/{}/waiting_rooms", crate::rest::account());
    for list in [ROOMS, &account] {
        let names = |rooms: &Value| -> Vec<String> {
            let rooms = rooms.as_array().expect("a list").iter();
            rooms
                .map(|room| room["name"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        let first = api
            .done("GET", &format!("{list}?per_page=5&page=1"), &Value::Null)
            .await;
        assert_eq!(names(&first), ["fixed", "open", "r0", "r1", "r2"]);
        let second = api
            .done("GET", &format!("{list}?per_page=5&page=2.0"), &Value::Null)
            .await;
        assert_eq!(names(&second), ["r3"]);
        let third = api
            .done("GET", &format!("{list}?per_page=5&page=3"), &Value::Null)
            .await;
        assert_eq!(third, json!([]));
        for query in [
            "per_page=7",
            "per_page=0",
            "page=0",
            "page=1.5",
            "page=x",
            "per_page=1005",
        ] {
            let (status, code, _) = api
                .refused("GET", &format!("{list}?{query}"), &Value::Null)
                .await;
            assert_eq!((status, code), (400, 1100), "{query}");
        }
    }
}

#[tokio::test]
async fn rules_are_a_list_in_an_order() {
    let api = Api::new().await;
    let made = api.done("POST", ROOMS, &sale("/sale")).await;
    let item = format!("{ROOMS}/{}", made["id"].as_str().expect("an id"));
    let path = format!("{item}/rules");
    assert_eq!(api.done("GET", &path, &Value::Null).await, json!([]));
    let rule = |expression: &str, description: &str| json!({"action": "bypass_waiting_room", "expression": expression, "description": description});
    for name in ["a", "b", "c"] {
        api.done("POST", &path, &rule("ssl", name)).await;
    }
    let order = |rules: &Value| -> String {
        let rules = rules.as_array().expect("a list").iter();
        rules
            .map(|rule| {
                format!(
                    "{}{}",
                    rule["description"].as_str().unwrap_or_default(),
                    rule["version"].as_str().unwrap_or_default()
                )
            })
            .collect()
    };
    let rules = api.done("GET", &path, &Value::Null).await;
    assert_eq!(order(&rules), "a1b1c1");
    let id = |place: usize| rules[place]["id"].as_str().expect("an id").to_owned();
    let (a, b, c) = (id(0), id(1), id(2));
    let moves: VecDeque<(&str, Value, &str)> = [
        (&*c, json!({"position": {"index": 1}}), "c1a1b1"),
        (&*c, json!({"position": {"after": ""}}), "a1b1c1"),
        (&*b, json!({"position": {"before": ""}}), "b1a1c1"),
        (
            &*b,
            json!({"position": {"after": a.clone()}, "enabled": false}),
            "a1b2c1",
        ),
        (
            &*c,
            json!({"position": {"before": b.clone()}, "description": "d"}),
            "a1d2b2",
        ),
        (&*c, json!({"description": "d"}), "a1d2b2"),
    ]
    .into();
    for (rule, body, expected) in moves {
        let rules = api.done("PATCH", &format!("{path}/{rule}"), &body).await;
        assert_eq!(order(&rules), expected, "{body}");
    }
    for (position, pointer) in [
        (json!({"index": 4}), "/position/index"),
        (json!({"index": 0}), "/position/index"),
        (json!({"index": 1, "before": ""}), "/position"),
        (json!({"before": "0"}), "/position/before"),
        (json!({"after": a.clone()}), "/position/after"),
        (json!({}), "/position"),
    ] {
        let body = json!({"position": position});
        let found = api.refused("PATCH", &format!("{path}/{a}"), &body).await;
        assert_eq!(found, (400, 1100, pointer.to_owned()), "{body}");
    }
    for (expression, code) in [
        ("http.host eq 5", 1106),
        ("", 1106),
        ("dns.qry.name eq \"a\"", 1106),
    ] {
        let found = api.refused("POST", &path, &rule(expression, "")).await;
        assert_eq!(found, (400, code, "/expression".to_owned()), "{expression}");
    }
    let (_, told) = api
        .ask(
            "PUT",
            &path,
            &json!([rule("ssl", ""), rule("ssl and", "")]).to_string(),
        )
        .await;
    let first = &told["errors"][0];
    assert_eq!(
        (&first["code"], &first["source"]["pointer"]),
        (&json!(1106), &json!("/1/expression"))
    );
    assert!(
        first["message"]
            .as_str()
            .is_some_and(|text| text.contains("column 8")),
        "{told}"
    );

    // A rule that is written back stays the one that it is.
    let mut rules = api.done("GET", &path, &Value::Null).await;
    rules[0]["expression"] = "not ssl".into();
    let after = api.done("PUT", &path, &rules).await;
    assert_eq!(order(&after), "a2d2b2");
    let found = api
        .refused("PUT", &path, &json!([rules[0], rules[0]]))
        .await;
    assert_eq!(found, (400, 1100, "/1/id".to_owned()));
    assert_eq!(
        api.refused("PUT", &path, &json!({"rules": []})).await.1,
        1100
    );
    let many = vec![rule("ssl", ""); 101];
    assert_eq!(api.refused("PUT", &path, &many.into()).await.1, 1100);
    // Replacing the room leaves its rules.
    api.done("PUT", &item, &sale("/new")).await;
    assert_eq!(api.done("GET", &path, &Value::Null).await, after);
    assert_eq!(
        order(
            &api.done("DELETE", &format!("{path}/{b}"), &Value::Null)
                .await
        ),
        "a2d2"
    );
    assert_eq!(
        api.refused("DELETE", &format!("{path}/{b}"), &Value::Null)
            .await
            .1,
        1001
    );
    api.done("DELETE", &item, &Value::Null).await;
    let state = api.app.control.desired().state();
    assert_eq!(state.all(Kind::RoomRules).count(), 0);
}

#[tokio::test]
async fn what_a_file_declares_is_shown_and_stays() {
    let api = Api::new().await;
    let room = |key: &str| format!("{ROOMS}/{}", declared(IdKind::Room, key));
    let (fixed, open) = (room("fixed"), room("open"));
    let shown = api.done("GET", &fixed, &Value::Null).await;
    assert_eq!(
        (&shown["name"], &shown["session_duration"]),
        (&json!("fixed"), &json!(2))
    );
    assert_eq!(
        api.done("GET", &open, &Value::Null).await["host"],
        "open.example.com"
    );
    let rules = api
        .done("GET", &format!("{fixed}/rules"), &Value::Null)
        .await;
    assert_eq!(
        (&rules[0]["expression"], &rules[0]["action"]),
        (&json!("ssl"), &json!("bypass_waiting_room"))
    );
    let rule = json!({"action": "bypass_waiting_room", "expression": "ssl"});
    for (method, path, body) in [
        ("PATCH", &fixed, json!({"queue_all": true})),
        ("PUT", &open, sale("/x")),
        ("DELETE", &open, Value::Null),
        ("POST", &format!("{fixed}/rules"), rule.clone()),
    ] {
        assert_eq!(
            api.refused(method, path, &body).await.1,
            1109,
            "{method} {path}"
        );
    }
    // The file leaves the rules of this one to the API.
    let rules = api.done("POST", &format!("{open}/rules"), &rule).await;
    assert_eq!(rules[0]["version"], "1");
    // Its names and routes are taken.
    let mut body = sale("/");
    (body["name"], body["host"]) = ("open".into(), "open.example.com".into());
    let (status, told) = api.ask("POST", ROOMS, &body.to_string()).await;
    let codes: Vec<&Value> = told["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| &it["code"])
        .collect();
    assert_eq!((status, codes), (400, vec![&json!(1101), &json!(1102)]));
    // And all of it makes a catalog.
    let desired = api.app.control.desired();
    let catalog = crate::Assembler::default().assemble(&desired.declared, &desired.state());
    let catalog = catalog.expect("fits");
    let passed: Vec<usize> = catalog
        .draft()
        .rooms
        .iter()
        .map(|room| room.bypass.len())
        .collect();
    assert_eq!(passed, [1, 1]);
}

#[tokio::test]
async fn what_is_not_built_says_so() {
    let api = Api::new().await;
    let settings = format!("{ROOMS}/settings");
    let off = json!({"search_engine_crawler_bypass": false});
    for method in ["GET", "PUT", "PATCH"] {
        assert_eq!(api.done(method, &settings, &off).await, off);
    }
    let on = json!({"search_engine_crawler_bypass": true});
    assert_eq!(api.refused("PUT", &settings, &on).await.0, 501);
    let open = format!("{ROOMS}/{}", declared(IdKind::Room, "open"));
    assert_eq!(
        api.done("GET", &format!("{open}/events"), &Value::Null)
            .await,
        json!([])
    );
    assert_eq!(
        api.refused("POST", &format!("{open}/events"), &json!({}))
            .await
            .0,
        501
    );
    let event = format!("{open}/events/{}", "0".repeat(32));
    assert_eq!(api.refused("GET", &event, &Value::Null).await.1, 1001);
    assert_eq!(
        api.refused("GET", &format!("{event}/details"), &Value::Null)
            .await
            .1,
        1001
    );
}

#[tokio::test]
async fn a_page_is_checked_when_it_is_saved() {
    let api = Api::new().await;
    let mut room = sale("/sale");
    room["custom_page_html"] = "<p>\n  {{#queueAll}}held".into();
    let (status, told) = api.ask("POST", ROOMS, &room.to_string()).await;
    let first = &told["errors"][0];
    assert_eq!((status, &first["code"]), (400, &json!(1105)), "{told}");
    assert_eq!(first["source"]["pointer"], "/custom_page_html");
    let message = first["message"].as_str().unwrap_or_default();
    assert!(message.contains("line 2, column 3"), "{message}");
    room["custom_page_html"] = 5.into();
    let wrong = api.refused("POST", ROOMS, &room).await;
    assert_eq!(wrong, (400, 1100, "/custom_page_html".to_owned()));

    // What is surely not meant is said, and kept as it is.
    let html = "{{waitTime}} {{wait_time}} <img src=\"/sale/logo.svg\"> <img src=\"/logo.svg\">";
    room["custom_page_html"] = html.into();
    let (status, told) = api.ask("POST", ROOMS, &room.to_string()).await;
    let notes = told["messages"].as_array().expect("a list").iter();
    let notes: Vec<&str> = notes.filter_map(|note| note["message"].as_str()).collect();
    assert_eq!((status, notes.len()), (200, 2), "{told}");
    assert!(notes[0].contains("`wait_time` is no variable"), "{notes:?}");
    assert!(
        notes[1].contains("`/sale/logo.svg` is behind the room"),
        "{notes:?}"
    );
    assert_eq!(told["result"]["custom_page_html"], html);
}

impl Api {
    /// What a browser gets under an address.
    async fn look(&self, address: &str) -> (u16, http::HeaderMap, String) {
        let (_, path) = address.split_once("/preview/").expect("of a preview");
        let (id, query) = path.split_once('?').unwrap_or((path, ""));
        let answer = show_draft(&self.app, id, query);
        let (head, body) = answer.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body");
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        (head.status.as_u16(), head.headers, text)
    }

    async fn previewed(&self, body: &Value) -> String {
        let made = self.done("POST", &format!("{ROOMS}/preview"), body).await;
        made["preview_url"].as_str().expect("an address").to_owned()
    }
}

#[tokio::test]
async fn a_preview_shows_a_page_before_anybody_waits() {
    let api = Api::new().await;
    let html =
        "{{waitTimeFormatted}} {{#queueAll}}all{{/queueAll}}{{#isRejectQueue}}no{{/isRejectQueue}}";
    let url = api.previewed(&json!({"custom_html": html})).await;
    assert!(
        url.starts_with("http://usher.example.com/preview/"),
        "{url}"
    );
    let (status, headers, page) = api.look(&url).await;
    assert_eq!((status, page.as_str()), (200, "10 minutes "));
    let policy = headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("sandbox allow-scripts;"), "{policy}");
    assert!(policy.contains("connect-src 'none'") && policy.ends_with("frame-ancestors 'self'"));
    for (query, shown) in [
        ("waitTime=61", "1 hour 1 minute "),
        ("force_queue=true", "unavailable all"),
        ("queueing_method=reject", "unavailable no"),
    ] {
        let (status, _, page) = api.look(&format!("{url}?{query}")).await;
        assert_eq!((status, page.as_str()), (200, shown), "{query}");
    }
    let (_, _, page) = api
        .look(&format!("{url}?queueing_method=passthrough"))
        .await;
    assert!(page.contains("Welcome"), "{page}");
    for query in ["waitTime=0", "event=x", "shuffle_at_event_start=true"] {
        assert_eq!(api.look(&format!("{url}?{query}")).await.0, 400, "{query}");
    }

    // Of the built-in page there is one in every language.
    let built_in = api.previewed(&json!({"custom_html": ""})).await;
    let (status, headers, page) = api.look(&format!("{built_in}?language=ar-EG")).await;
    assert_eq!(status, 200);
    assert!(page.contains("dir=\"rtl\""), "{page}");
    let policy = headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("sandbox;"), "{policy}");

    // One that is changed keeps its address; others stay.
    let (_, id) = url.rsplit_once('/').expect("an id");
    let again = json!({"custom_html": "new", "usher": {"replaces": id}});
    assert_eq!(api.previewed(&again).await, url);
    assert_eq!(api.look(&url).await.2, "new");
    assert_eq!(api.look(&built_in).await.0, 200);
    let unknown = json!({"custom_html": "new", "usher": {"replaces": "0".repeat(32)}});
    assert_ne!(api.previewed(&unknown).await, url);

    let path = format!("{ROOMS}/preview");
    for (body, code, pointer) in [
        (json!({}), 1100, "/custom_html"),
        (json!({"custom_html": 1}), 1100, "/custom_html"),
        (json!({"custom_html": "{{"}), 1105, "/custom_html"),
        (
            json!({"custom_html": "x".repeat(1_048_577)}),
            1107,
            "/custom_html",
        ),
        (
            json!({"custom_html": "", "usher": {"replaces": "x"}}),
            1100,
            "/usher/replaces",
        ),
    ] {
        let found = api.refused("POST", &path, &body).await;
        assert_eq!(found, (400, code, pointer.to_owned()));
    }
    // Each fault is told once.
    let number = text_of(&json!({"custom_html": 5}));
    let (_, told) = api.ask("POST", &path, &number).await;
    assert_eq!(told["errors"].as_array().map(Vec::len), Some(1), "{told}");
    for nobody in ["00000000-0000-0000-0000-000000000000", "x", ""] {
        assert_eq!(api.look(&format!("/preview/{nobody}")).await.0, 404);
    }
}

#[tokio::test]
async fn a_change_that_is_not_in_force_in_time_says_so() {
    let api = Api::new().await;
    let body = json!({"name": "sale", "host": "example.com", "total_active_users": 200, "new_users_per_minute": 200});
    let path = "/zones/{z}/waiting_rooms";
    let (_, told) = api.ask("POST", path, &body.to_string()).await;
    assert_eq!(told["messages"], json!([]));
    let id = told["result"]["id"].as_str().expect("an id");
    api.in_time.store(false, Ordering::Relaxed);
    let rules = format!("{path}/{id}/rules");
    let rule = json!({"expression": "ssl", "action": "bypass_waiting_room"});
    let room = format!("{path}/{id}");
    // Twice, so that the word stands alone and beside another one.
    let cookie = json!({"cookie_suffix": "x"});
    for (method, path, body, words) in [
        ("POST", &rules, &rule, 1),
        ("PATCH", &room, &cookie, 2),
        ("DELETE", &room, &Value::Null, 1),
    ] {
        let (status, told) = api.ask(method, path, &text_of(body)).await;
        assert_eq!((status, &told["success"]), (200, &json!(true)), "{told}");
        let messages = told["messages"].as_array().expect("a list");
        assert_eq!(messages.len(), words, "{told}");
        let late = messages[0]["message"].as_str().expect("a text");
        assert!(late.starts_with("kept, and not yet in force"), "{late}");
    }
}
