//! Browsers over the API: what programs with a token do, down to the bytes that a browser draws.
//!
//! Where the machine refuses namespaces these say so and do nothing.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::browsers::{Devtools, PATIENCE_OF_BROWSERS, SECRET};
use crate::support::config::TOKEN;
use crate::support::message::Message;
use crate::support::{Config, Usher};

fn bearer() -> String {
    format!("Bearer {TOKEN}")
}

/// Connects as a client of WebSockets does, to an address that the node told.
fn connect(url: &Value, authorization: Option<&str>) -> Result<Devtools, (u16, String)> {
    let headers = authorization.map(|value| ("authorization", value));
    Devtools::at(url.as_str().expect("an address"), headers.as_slice())
}

#[test]
fn a_program_with_a_token_connects_in_each_way_that_clients_know() {
    let usher = Usher::start(&Config::new().browsers());
    let Some(session) = usher.api_acquire() else {
        return;
    };
    let browsers = usher.browsers_path("browser-run");
    let path = format!("{browsers}/devtools/browser/{session}");
    // With the slash that some clients put at its end.
    let version = usher.api_get(&format!("{path}/json/version/"));
    let version: Value = serde_json::from_slice(&version.body).unwrap();
    let told = &version["webSocketDebuggerUrl"];
    let url = json!(format!("ws://{}{path}", usher.address("api")));

    // As a header, and as the password in an address.
    let basic = "Basic eDp0ZXN0LXRva2VuLXdpdGgtZW5vdWdoLWxldHRlcnM=";
    for authorization in [&bearer(), basic] {
        let mut browser = connect(&url, Some(authorization)).expect(authorization);
        assert!(version["Browser"] == browser.version().as_str());
    }
    let refusal = |url: &Value, authorization: Option<&str>| match connect(url, authorization) {
        Ok(_) => panic!("{url} is open"),
        Err((status, text)) => {
            let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(text.lines().count(), 1, "{text}");
            (
                status,
                body["error"].as_str().unwrap_or_default().to_owned(),
            )
        }
    };
    let stranger = (401, "Authentication failed".to_owned());
    assert_eq!(refusal(&url, None), stranger);
    assert_eq!(refusal(&url, Some("Bearer wrong")), stranger);
    let query = json!(format!("{}?token={TOKEN}", url.as_str().unwrap()));
    assert_eq!(refusal(&query, None), stranger);

    // As an address that opens it once, for those who take nothing along.
    let mut browser = connect(told, None).expect("once");
    let id = browser.ask(None, "Cloudflare.getSessionId", json!({}));
    assert_eq!(id["sessionId"], session.as_str());
    assert_eq!(refusal(told, None), stranger);
    connect(told, Some(&bearer())).expect("with a token");

    // A page by itself.
    let page = usher.api_call("PUT", &format!("{path}/json/new?url=about:blank%23page"));
    let mut page = connect(&page["webSocketDebuggerUrl"], Some(&bearer())).expect("a page");
    let place = json!({"expression": "location.href"});
    let place = page.ask(None, "Runtime.evaluate", place);
    assert_eq!(place["result"]["value"], "about:blank#page");

    let nobody = "00000000-0000-4000-8000-000000000000";
    let missing = json!(url.as_str().unwrap().replace(&session, nobody));
    let refused = refusal(&missing, Some(&bearer()));
    assert_eq!(refused, (404, "Session not found".to_owned()));

    // All of them stand in one browser, which its end takes along.
    assert_eq!(usher.api_call("DELETE", &path)["status"], "closing");
    assert_eq!(refusal(&url, Some(&bearer())).0, 404);
    assert_eq!(usher.api_call("DELETE", &path)["status"], "closed");
}

#[test]
fn a_browser_of_another_account_is_nobodys() {
    let limits = json!({"browsers_per_second": 50, "browsers_burst": 50});
    let config = Config::new()
        .browsers()
        .set(&["accounts", "other"], json!({"limits": limits}));
    let usher = Usher::start(&config);
    let Some(session) = usher.api_acquire() else {
        return;
    };
    let accounts = usher.api_get("/client/v4/accounts");
    let accounts: Value = serde_json::from_slice(&accounts.body).unwrap();
    let ids = ["default", "other"].map(|name| {
        let all = accounts["result"].as_array().unwrap();
        let found = all.iter().find(|account| account["name"] == name);
        found.expect(name)["id"].as_str().unwrap().to_owned()
    });
    let own = usher.browsers_path("browser-rendering");
    let others = own.replace(&ids[0], &ids[1]);
    assert_ne!(own, others);
    for (browsers, status, sessions) in [(&own, 200, 1), (&others, 404, 0)] {
        let one = usher.api_get(&format!("{browsers}/devtools/session/{session}"));
        assert_eq!(one.status(), status);
        let listed = usher.api_get(&format!("{browsers}/devtools/session"));
        let listed: Value = serde_json::from_slice(&listed.body).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), sessions, "{listed}");
    }
    let url = format!(
        "ws://{}{others}/devtools/browser/{session}",
        usher.address("api")
    );
    let refused = connect(&json!(url), Some(&bearer())).err();
    assert_eq!(refused.expect("refused").0, 404);
    let none = usher.api_get(&own.replace(&ids[0], &"0".repeat(32)));
    assert_eq!(none.status(), 404);
}

#[test]
fn a_connection_over_the_api_outlives_a_hand_over() {
    let config = Config::new()
        .browsers()
        .set(&["pid_file"], json!("usher.pid"));
    let mut usher = Usher::start(&config);
    let Some(session) = usher.api_acquire() else {
        return;
    };
    let path = usher.browsers_path("browser-run");
    let path = format!("{path}/devtools/browser/{session}");
    let url = json!(format!("ws://{}{path}", usher.address("api")));
    let mut before = connect(&url, Some(&bearer())).expect("a browser");
    before.version();
    usher.hand_over();
    // Carried to its end by the process before; who comes now is the other one's.
    before.version();
    let mut after = connect(&url, Some(&bearer())).expect("the same browser");
    after.version();
    assert_eq!(usher.api_call("DELETE", &path)["status"], "closing");
    assert_eq!(usher.wait().code(), Some(0));
}

#[test]
fn a_page_is_drawn_by_both_prefixes_and_for_workers() {
    let usher = Usher::start(&Config::new().browsers());
    // Where no browser can be started this says so.
    if usher.api_acquire().is_none() {
        return;
    }
    let html = "<body style='background:rgb(1,2,3)'>";
    let order = json!({"html": html, "viewport": {"width": 40, "height": 30}}).to_string();
    let drawn = |ask: &dyn Fn() -> Message| {
        let deadline = Instant::now() + PATIENCE_OF_BROWSERS;
        loop {
            let answer = ask();
            if answer.status() != 503 {
                assert_eq!(answer.status(), 200, "{answer:?}");
                assert_eq!(answer.field("content-type"), Some("image/png"));
                assert!(answer.field("x-browser-ms-used").is_some());
                assert!(answer.body.starts_with(b"\x89PNG"));
                return;
            }
            assert!(Instant::now() < deadline, "no browser becomes ready");
        }
    };
    for prefix in ["browser-rendering", "browser-run"] {
        let head = format!(
            "POST {}/screenshot?wait=3s HTTP/1.1\r\nAuthorization: {}\r\n",
            usher.browsers_path(prefix),
            bearer()
        );
        drawn(&|| usher.api(&head, &order));
        let bad = usher.api(&head, "{\"viewport\":{\"width\":0}}");
        assert_eq!(bad.status(), 400);
        let told: Value = serde_json::from_slice(&bad.body).unwrap();
        assert_eq!(told["success"], false);
        let paths = told["errors"].as_array().unwrap().iter();
        let paths: Vec<&str> = paths.filter_map(|error| error["path"].as_str()).collect();
        assert_eq!(paths, ["url", "viewport.width"]);
    }
    drawn(&|| usher.binding_as(SECRET, "POST /screenshot?wait=3s", &order));
    // It is no session: the one that was acquired is all there is.
    let listed = usher.binding_get("/sessions");
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");
}
