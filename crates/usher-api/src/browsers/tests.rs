//! Who is let through to browsers, and what is written to those who are not.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use axum::body::to_bytes;
use serde_json::{Value, json};
use usher_core::id::Kind;

use super::*;
use crate::access::{Access, Permission, Secret, Token};
use crate::here::{Here, nothing};
use crate::rest::{Declared, Desired};

/// What came through.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Asked>>);

impl BrowserFront for Seen {
    fn accounts(&self) -> Vec<(Id, String)> {
        ["default", "shop"]
            .map(|name| (of(name), name.to_owned()))
            .to_vec()
    }

    fn answer(&self, asked: Asked) -> Answering {
        let status = match asked.path.split('/').nth(2) {
            Some("gone") => Some(StatusCode::NOT_FOUND),
            Some("odd") => Some(StatusCode::METHOD_NOT_ALLOWED),
            Some("elsewhere") => None,
            _ => Some(StatusCode::OK),
        };
        self.0.lock().expect("whole").push(asked);
        Box::pin(async move { status.map(|status| status.into_response()) })
    }
}

fn of(name: &str) -> Id {
    Id::derive("default", Kind::Account, name)
}

struct Tried {
    surface: Arc<Surface>,
    seen: Arc<Seen>,
}

impl Tried {
    fn new() -> Tried {
        let seen = Arc::new(Seen::default());
        let surface = surface(Some(Arc::clone(&seen) as Arc<dyn BrowserFront>));
        Tried { surface, seen }
    }

    async fn ask(&self, request: http::request::Builder) -> (StatusCode, HeaderMap, Value) {
        ask(&self.surface, request, Body::empty()).await
    }

    fn last(&self) -> Asked {
        let last = self.seen.0.lock().expect("whole").pop();
        last.expect("it came through")
    }

    fn refused(&self) -> bool {
        self.seen.0.lock().expect("whole").is_empty()
    }
}

fn surface(browsers: Option<Arc<dyn BrowserFront>>) -> Arc<Surface> {
    let token = |name: &str, permission: &str, accounts: &[&str]| Token {
        name: name.to_owned(),
        secret: Secret::new(name),
        permissions: Permission::parse(permission).into_iter().collect(),
        accounts: accounts.iter().map(|&name| name.to_owned()).collect(),
    };
    let tokens = [
        token("admin", "admin", &[]),
        token("edit", "browsers:edit", &[]),
        token("read", "browsers:read", &[]),
        token("shop", "browsers:edit", &["shop"]),
        token("rooms", "waiting_rooms:edit", &[]),
    ];
    let declared = Declared::new(nothing(), &json!({}), "usher.yaml");
    let control = Here {
        desired: Arc::new(Desired {
            declared: Arc::new(declared),
            store: None,
        }),
        access: Arc::new(Access::new(&tokens)),
        in_time: Arc::new(AtomicBool::new(true)),
        browsers,
    };
    Arc::new(Surface::new(Arc::new(App::new(Arc::new(control)))))
}

async fn ask(
    surface: &Arc<Surface>,
    request: http::request::Builder,
    body: Body,
) -> (StatusCode, HeaderMap, Value) {
    let request = request.body(body).expect("a request");
    let answer = Arc::clone(surface).answer(request).await;
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let body = serde_json::from_slice(&body).unwrap_or_default();
    assert_eq!(head.headers[&REQUEST_ID].len(), 32);
    (head.status, head.headers, body)
}

/// `line` is a method and a path below a prefix of the account.
fn request(line: &str, account: &str, token: &str) -> http::request::Builder {
    let (method, path) = line.split_once(' ').expect("a line");
    let account = of(account);
    let uri = format!("/client/v4/accounts/{account}/browser-run/{path}");
    let request = Request::builder().method(method).uri(uri);
    match token {
        "" => request,
        token => request.header("authorization", format!("Bearer {token}")),
    }
}

#[tokio::test]
async fn a_token_of_the_account_with_the_permission_comes_through() {
    let node = Tried::new();
    for (token, account, line, status) in [
        ("admin", "default", "POST devtools/browser", 200),
        ("edit", "shop", "POST devtools/browser", 200),
        ("edit", "default", "GET devtools/session", 200),
        ("read", "default", "GET devtools/session", 200),
        ("read", "default", "HEAD devtools/session", 200),
        ("read", "default", "GET devtools/browser/s/json/list/", 200),
        ("read", "default", "POST devtools/browser", 403),
        ("read", "default", "GET devtools/browser/s", 403),
        (
            "read",
            "default",
            "GET devtools/browser/s/json/close/t",
            403,
        ),
        ("read", "default", "POST screenshot", 403),
        ("read", "default", "GET crawl/j", 200),
        ("shop", "shop", "POST screenshot", 200),
        ("shop", "default", "POST screenshot", 403),
        ("rooms", "default", "GET devtools/session", 403),
        ("nobody", "default", "GET devtools/session", 401),
        ("nobody", "default", "POST screenshot", 401),
        ("", "default", "POST screenshot", 401),
        ("", "nobody", "GET devtools/session", 401),
        ("edit", "nobody", "GET devtools/session", 404),
        ("edit", "nobody", "POST screenshot", 404),
        ("edit", "default", "POST photograph", 404),
        ("edit", "default", "POST ", 404),
        ("edit", "default", "GET screenshot", 405),
    ] {
        let (said, headers, body) = node.ask(request(line, account, token)).await;
        let what = format!("{token}: {account}: {line}: {body}");
        assert_eq!(said, status, "{what}");
        if status == 200 {
            let asked = node.last();
            assert_eq!(asked.account, of(account), "{what}");
            assert_eq!(
                asked.base,
                format!(
                    "ws://usher.example.com/client/v4/accounts/{}/browser-run",
                    of(account)
                )
            );
            continue;
        }
        assert!(node.refused(), "{what}");
        let (code, text) = match status {
            401 => (json!(10000), "Authentication failed"),
            403 => (json!(10000), "Authentication error"),
            404 => (json!(7003), "Could not route to browser-run/"),
            _ => (json!(10405), "Method not allowed"),
        };
        assert_eq!(body["success"], false, "{what}");
        assert_eq!(body["errors"][0]["code"], code, "{what}");
        let said = body["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(said.starts_with(text), "{what}");
        // What is not in an envelope says it by the name that is looked for there, too.
        let bare = line.contains("devtools");
        assert_eq!(body.get("error").is_some(), bare, "{what}");
        if status == 405 {
            assert_eq!(headers[ALLOW], "POST");
        }
    }
    let (status, headers, _) = node
        .ask(request("PUT devtools/browser/odd", "shop", "edit"))
        .await;
    assert_eq!(
        (status, &headers[ALLOW]),
        (
            StatusCode::METHOD_NOT_ALLOWED,
            &"GET, DELETE".parse().expect("a value")
        )
    );
}

#[tokio::test]
async fn a_token_is_taken_from_headers_alone() {
    let node = Tried::new();
    let asked = || request("GET devtools/session?token=edit", "default", "");
    assert_eq!(node.ask(asked()).await.0, 401);
    for (name, value) in [
        ("authorization", "Bearer edit"),
        ("authorization", "Basic OmVkaXQ="),
        ("x-auth-key", "edit"),
    ] {
        assert_eq!(
            node.ask(asked().header(name, value)).await.0,
            200,
            "{value}"
        );
    }
}

#[tokio::test]
async fn a_websocket_needs_more_than_reading_wherever_it_is_asked_for() {
    let node = Tried::new();
    for (token, status) in [("read", 403), ("edit", 200)] {
        let asked = request("GET devtools/session", "default", token);
        let asked = asked
            .header("connection", "upgrade")
            .header("upgrade", "websocket");
        assert_eq!(node.ask(asked).await.0, status, "{token}");
    }
}

#[tokio::test]
async fn a_session_of_the_dashboard_shows_and_changes_nothing_by_reading() {
    let node = Tried::new();
    for (line, status) in [
        ("GET devtools/session", 200),
        ("GET devtools/browser/s/json/close/t", 403),
        ("GET devtools/browser/s", 403),
    ] {
        let asked = request(line, "default", "edit").extension(Unspoken);
        assert_eq!(node.ask(asked).await.0, status, "{line}");
    }
    // Nor is it told an address that would do more.
    let asked = request("GET devtools/browser/s/json/version", "default", "edit");
    assert_eq!(node.ask(asked.extension(Unspoken)).await.0, 200);
    assert_eq!(node.last().once, None);
}

#[tokio::test]
async fn an_address_opens_its_browser_once_without_a_token() {
    let node = Tried::new();
    let version = |id: &str, token: &str| {
        request(
            &format!("GET devtools/browser/{id}/json/version/"),
            "default",
            token,
        )
    };
    node.ask(version("s", "read")).await;
    assert_eq!(node.last().once, None, "it may not connect");
    node.ask(version("s", "edit")).await;
    let once = node.last().once.expect("an address");
    let secret = once.rsplit_once('/').expect("a path").1.to_owned();
    assert!(secret.len() == 43 && once.ends_with(&format!("browser-run/once/{secret}")));
    let line = |secret: &str, rest: &str| format!("GET once/{secret}/{rest}");
    let opens = async |line: &str, account: &str, token: &str| {
        let asked = request(line, account, token).header("upgrade", "websocket");
        let (status, _, body) = node.ask(asked).await;
        if status == 401 {
            assert_eq!(body["error"], "Authentication failed");
        }
        status == StatusCode::OK
    };
    let right = line(&secret, "devtools/browser/s");
    // It opens nothing else, and not what is no WebSocket.
    for path in [
        "devtools/browser",
        "devtools/session",
        "devtools/browser/s/json",
        "screenshot",
    ] {
        assert!(!opens(&line(&secret, path), "default", "").await, "{path}");
    }
    assert_eq!(node.ask(request(&right, "default", "")).await.0, 401);
    assert!(opens(&right, "default", "").await);
    let asked = node.last();
    assert_eq!(
        (asked.path.as_str(), asked.once),
        ("devtools/browser/s", None)
    );
    assert!(!opens(&right, "default", "").await, "twice");
    assert!(!opens(&line("", "devtools/browser/s"), "default", "").await);
    // Who has a token comes as often as they like.
    assert!(opens(&right, "default", "edit").await);
    assert!(!opens(&right, "default", "nobody").await);
    // Where nothing was found to connect to, there is nothing to open.
    node.ask(version("gone", "edit")).await;
    let once = node.last().once.expect("it was asked about");
    let secret = once.rsplit_once('/').expect("a path").1;
    assert!(!opens(&line(secret, "devtools/browser/gone"), "default", "").await);
}

#[tokio::test]
async fn a_body_is_taken_up_to_its_limit() {
    let node = Tried::new();
    let post = |line: &str, length: usize| {
        let asked = request(line, "default", "edit").header("content-length", length);
        ask(&node.surface, asked, Body::from(vec![b' '; length]))
    };
    assert_eq!(post("POST screenshot", 2 << 20).await.0, 200);
    assert_eq!(node.last().request.body().len(), 2 << 20);
    assert_eq!(post("POST devtools/browser", 1 << 20).await.0, 200);
    let (status, _, body) = post("POST devtools/browser", (1 << 20) + 1).await;
    assert_eq!(
        (status.as_u16(), &body["errors"][0]["code"]),
        (413, &json!(10413))
    );
    // What says that it is too large is not read; what turns out to be is read no further.
    let asked = request("POST screenshot", "default", "edit");
    let said = asked.header("content-length", PAGE_MAX + 1);
    for (asked, body) in [
        (said, Body::empty()),
        (
            request("POST screenshot", "default", "edit"),
            Body::from(vec![0; PAGE_MAX + 1]),
        ),
    ] {
        let (status, _, body) = ask(&node.surface, asked, body).await;
        assert_eq!(status, 413);
        let error = json!({"code": 10413, "message": "Error: request entity too large"});
        assert_eq!(body["errors"], json!([error]));
    }
    // Whoever is nobody is not waited for.
    let asked = request("POST screenshot", "default", "").header("content-length", PAGE_MAX);
    let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    assert_eq!(ask(&node.surface, asked, never).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_come_keep_nobody_waiting_for_ever() {
    let node = Tried::new();
    let never =
        || Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let slow: Vec<_> = (0..LARGE_MAX)
        .map(|_| {
            let surface = Arc::clone(&node.surface);
            let asked = request("POST screenshot", "default", "edit");
            tokio::spawn(async move { ask(&surface, asked, never()).await.0 })
        })
        .collect();
    tokio::task::yield_now().await;
    // A small one needs no turn.
    let small = request("POST screenshot", "default", "edit").header("content-length", 2);
    assert_eq!(ask(&node.surface, small, Body::from("{}")).await.0, 200);
    let large = request("POST screenshot", "default", "edit");
    let (large, _, _) = ask(&node.surface, large, Body::from("{}")).await;
    assert!(large == 200 || large == 408, "{large}");
    for slow in slow {
        assert_eq!(slow.await.expect("an answer"), 408);
    }
}

#[tokio::test]
async fn a_node_without_browsers_says_so_to_who_may_know() {
    let surface = surface(None);
    for (line, token, status) in [
        ("POST devtools/browser", "edit", 501),
        ("POST screenshot", "edit", 501),
        ("POST screenshot", "", 401),
    ] {
        let (said, headers, _) =
            ask(&surface, request(line, "default", token), Body::empty()).await;
        assert_eq!(said, status, "{line}");
        assert_eq!(headers.contains_key("x-should-retry"), status == 501);
    }
}

#[tokio::test]
async fn browsers_that_another_process_has_are_asked_for_again_soon() {
    let node = Tried::new();
    let asked = request("GET devtools/browser/elsewhere/json", "default", "edit");
    let (status, headers, body) = node.ask(asked).await;
    assert_eq!(
        (status.as_u16(), &headers["retry-after"]),
        (503, &"1".parse().expect("a value"))
    );
    assert_eq!(body["error"], "the browsers are still another process's");
}

#[test]
fn a_path_is_taken_apart() {
    let parts = |path: &'static str| {
        let place = Place::of(path)?;
        Some((place.account, place.prefix, place.secret, place.meant()))
    };
    for (path, expected) in [
        (
            "/client/v4/accounts/a/browser-run/devtools/session/",
            Some(("a", "browser-run", None, "devtools/session")),
        ),
        (
            "/client/v4/accounts/a/browser-rendering/once/x/devtools/browser/s",
            Some(("a", "browser-rendering", Some("x"), "devtools/browser/s")),
        ),
        (
            "/client/v4/accounts/a/browser-run/once/x",
            Some(("a", "browser-run", None, "once/x")),
        ),
        ("/client/v4/accounts/a/browser-walk/devtools", None),
        ("/client/v4/accounts/a", None),
        ("", None),
    ] {
        assert_eq!(parts(path), expected, "{path}");
    }
}
