//! The binding, with real browsers behind it: what Workers send, and what clients that go wrong do.
//!
//! Where the machine refuses namespaces these say so and do nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod served;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use served::{Client, OTHER, PATIENCE, SECRET, Served};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use usher_cdp::chunks::{Assembler, cut};

#[tokio::test]
async fn a_worker_gets_a_browser_and_gives_it_back() {
    let Some(served) = Served::start().await else {
        return;
    };
    // Who shows no secret gets nothing, nor does who shows another's.
    let (status, text) = served.ask_as("wrong", "POST /devtools/browser", "").await;
    assert_eq!((status, text.as_str()), (401, "Authentication failed"));
    for (line, body, status, says) in [
        (
            "POST /devtools/browser?keep_alive=soon",
            "",
            400,
            "keep_alive",
        ),
        (
            "POST /devtools/browser?browser=kitesurf",
            "",
            400,
            "browser \"kitesurf\" is not available here",
        ),
        (
            "POST /devtools/browser",
            r#"{"guardrails":{"allowedDomains":["http://a"]}}"#,
            400,
            "host pattern",
        ),
        ("GET /devtools/browser", "", 426, "WebSocket"),
        (
            "GET /connectDevtools",
            "",
            400,
            "browser_session must be set",
        ),
        ("PUT /sessions", "", 405, ""),
        ("GET /nothing", "", 404, ""),
        (
            "DELETE /devtools/browser/none",
            "",
            404,
            "Session not found",
        ),
    ] {
        let (found, text) = served.ask(line, body).await;
        assert_eq!(found, status, "{line}: {text}");
        assert!(text.contains(says), "{line}: {text}");
    }

    let session = served
        .acquire("POST /devtools/browser?keep_alive=600000")
        .await;
    let listed = served.get("/sessions").await;
    assert_eq!(listed["sessions"][0]["sessionId"], session);
    assert!(listed["sessions"][0]["startTime"].is_number());
    assert!(listed["sessions"][0].get("connectionId").is_none());
    let limits = served.get("/limits").await;
    assert_eq!(limits["activeSessions"], json!([{"id": session}]));
    assert_eq!(limits["maxConcurrentSessions"], 3);

    // Nobody else finds it.
    let path = format!("/devtools/browser/{session}");
    let (status, _) = served.ask_as(OTHER, &format!("DELETE {path}"), "").await;
    assert_eq!(status, 404);
    let others = served.ask_as(OTHER, "GET /sessions", "").await;
    assert_eq!(others, (200, r#"{"sessions":[]}"#.to_owned()));

    // Two clients, each with the browser to itself.
    let mut client = served.connect(&path).await.unwrap();
    let mut second = served.connect(&path).await.unwrap();
    let version = client.ask("Browser.getVersion", json!({})).await;
    assert!(version["result"]["product"].is_string(), "{version}");
    let named = second.ask("Cloudflare.getSessionId", json!({})).await;
    assert_eq!(named["result"]["sessionId"], session);
    let refused = client
        .ask("Target.createTarget", json!({"url": "file:///etc/passwd"}))
        .await;
    assert!(refused["error"]["message"].is_string(), "{refused}");
    let connected = served.get("/sessions").await;
    assert!(connected["sessions"][0]["connectionId"].is_string());
    // Ids of any size come back as they went.
    client.next = -9_999;
    let answer = client.ask("Browser.getVersion", json!({})).await;
    assert!(answer["result"]["product"].is_string());
    client.next = 1_i64 << 40;
    let page = json!({"url": "data:text/html,seen"});
    let made = client.ask("Target.createTarget", page).await;
    let target = made["result"]["targetId"].as_str().unwrap().to_owned();

    // The same over plain requests.
    let version = served.get(&format!("{path}/json/version/")).await;
    let url = version["webSocketDebuggerUrl"].as_str().unwrap();
    assert_eq!(url, format!("ws://fake.host/v1{path}"));
    for listing in ["json", "json/list", "json/"] {
        let targets = served.get(&format!("{path}/{listing}")).await;
        let targets = targets.as_array().unwrap();
        let found = targets.iter().find(|found| found["id"] == target);
        let found = found.expect("the page that was opened");
        assert_eq!(found["type"], "page");
        let url = found["webSocketDebuggerUrl"].as_str().unwrap();
        assert_eq!(url, format!("ws://fake.host/v1{path}/page/{target}"));
    }
    let (status, text) = served
        .ask(&format!("PUT {path}/json/new?url=file:///x"), "")
        .await;
    assert_eq!(status, 400, "{text}");
    let (status, text) = served.ask(&format!("PUT {path}/json/new"), "").await;
    assert_eq!(status, 200, "{text}");
    let made: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(made["url"], "about:blank");
    let made = made["id"].as_str().unwrap();
    served.get(&format!("{path}/json/activate/{made}")).await;
    served.get(&format!("{path}/json/close/{made}")).await;
    let (status, _) = served.ask(&format!("GET {path}/json/list/none"), "").await;
    assert_eq!(status, 404);

    // One page alone.
    let mut page = served
        .connect(&format!("{path}/page/{target}"))
        .await
        .unwrap();
    let info = page.ask("Target.getTargetInfo", json!({})).await;
    assert_eq!(info["result"]["targetInfo"]["targetId"], target);
    let unknown = format!("{path}/page/{}", "0".repeat(32));
    assert_eq!(served.connect(&unknown).await.err().unwrap().0, 404);

    // Whoever goes away leaves the session; whoever closes the browser ends it for all.
    page.socket.close(None).await.unwrap();
    second.socket.close(None).await.unwrap();
    let mut again = served.connect(&path).await.unwrap();
    let closed = again.ask("Browser.close", json!({})).await;
    assert_eq!(closed["result"], json!({}));
    for ended in [again, client] {
        let frame = ended.ends().await.expect("a close frame");
        assert_eq!(u16::from(frame.code), 1000);
    }
    assert_eq!(served.connect(&path).await.err().unwrap().0, 404);
    // The first may come while it ends.
    let (status, _) = served.ask(&format!("DELETE {path}"), "").await;
    assert_eq!(status, 200);
    let (status, text) = served.ask(&format!("DELETE {path}"), "").await;
    assert_eq!((status, text.as_str()), (200, r#"{"status":"closed"}"#));
    let history = served.get("/history").await;
    let ended = &history["history"][0];
    assert_eq!(ended["sessionId"], session);
    assert_eq!(ended["closeReason"], 1);
    assert_eq!(ended["closeReasonText"], "NormalClosure");
    assert!(ended["endTime"].as_i64() >= ended["startTime"].as_i64());
    served.stop().await;
}

#[tokio::test]
async fn older_clients_speak_in_pieces_and_are_alone() {
    let Some(served) = Served::start().await else {
        return;
    };
    let session = served.acquire("GET /acquire?").await;
    let path = format!("/connectDevtools?browser_session={session}");
    let mut client = served.connect(&path).await.unwrap();
    let refused = served.connect(&path).await.err().unwrap();
    assert_eq!(refused, (409, "WebSocket already initialized".to_owned()));

    client.socket.send(Message::text("ping")).await.unwrap();
    let ask = |id: i64, expression: &str| {
        let params = json!({"expression": expression, "returnByValue": true});
        json!({"id": id, "method": "Runtime.evaluate", "params": params})
    };
    // A page, to have something that answers at length.
    let attach =
        json!({"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}});
    let made = pieces(&mut client, &attach).await;
    let target = made["result"]["targetId"].clone();
    let params = json!({"targetId": target, "flatten": true});
    let attach = json!({"id": 2, "method": "Target.attachToTarget", "params": params});
    let attached = pieces(&mut client, &attach).await;
    let mut long = ask(
        3,
        &format!(
            "'\u{d55c}'.repeat({}) + '{}'.length",
            1 << 20,
            "x".repeat(1_100_000)
        ),
    );
    long["sessionId"] = attached["result"]["sessionId"].clone();
    let answer = pieces(&mut client, &long).await;
    let text = answer["result"]["result"]["value"].as_str().unwrap();
    assert_eq!(text.chars().count(), (1 << 20) + 7);

    // A length that lies ends the connection, and another may follow.
    let lie = Bytes::from_static(b"\x02\0\0\0{}x");
    client.socket.send(Message::Binary(lie)).await.unwrap();
    let frame = client.ends().await.expect("a close frame");
    assert_eq!(
        (u16::from(frame.code), frame.reason.as_str()),
        (1007, "bad chunk")
    );
    let deadline = Instant::now() + PATIENCE;
    let mut client = loop {
        // The place is given back when the other end has seen the end.
        match served.connect(&path).await {
            Ok(client) => break client,
            Err((status, _)) => assert!(status == 409 && Instant::now() < deadline),
        }
    };
    let version = json!({"id": 1, "method": "Browser.getVersion"});
    assert!(pieces(&mut client, &version).await["result"].is_object());

    // It is ended from outside: whoever is connected is told.
    let line = format!("DELETE /devtools/browser/{session}/");
    let (status, text) = served.ask(&line, "").await;
    assert_eq!((status, text.as_str()), (200, r#"{"status":"closing"}"#));
    let frame = client.ends().await.expect("a close frame");
    assert_eq!(u16::from(frame.code), 1000);
    served.stop().await;
}

#[tokio::test]
async fn a_browser_that_dies_and_a_client_that_leaves_are_told_of() {
    let Some(served) = Served::start().await else {
        return;
    };
    // Acquired and connected in one step, asked for again while none is ready.
    let deadline = Instant::now() + PATIENCE;
    let mut client = loop {
        match served.connect("/devtools/browser?keep_alive=600000").await {
            Ok(client) => break client,
            Err((status, text)) => assert!(status == 503 && Instant::now() < deadline, "{text}"),
        }
    };
    let named = client.ask("Cloudflare.getSessionId", json!({})).await;
    let session = named["result"]["sessionId"].as_str().unwrap().to_owned();
    let path = format!("/devtools/browser/{session}");

    // Whoever hangs up before the answer has no session.
    let mut hasty = TcpStream::connect(&served.address).await.unwrap();
    let request = format!(
        "POST /v1/devtools/browser?wait=30s HTTP/1.1\r\nHost: a\r\nusher-binding: {SECRET}\r\n\
         Content-Length: 0\r\n\r\n"
    );
    hasty.write_all(request.as_bytes()).await.unwrap();
    drop(hasty);

    let killed = Instant::now();
    for process in served.browsers() {
        let pid = rustix::process::Pid::from_raw(process).unwrap();
        // One that has ended meanwhile is what is wanted.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let frame = client.ends().await.expect("a close frame");
    let told = (u16::from(frame.code), frame.reason.as_str());
    assert_eq!(told, (1011, "ChromiumCrashed"));
    assert_eq!(served.connect(&path).await.err().unwrap().0, 404);
    // The pool hears of it with the next batch, and of the hasty one when it is given back. From then
    // on everybody says the same.
    loop {
        let history = served.get("/history").await;
        let history = history["history"].as_array().unwrap();
        let found = history.iter().find(|found| found["sessionId"] == session);
        let open = history.iter().any(|found| found.get("endTime").is_none());
        if !open && found.is_some_and(|found| found["closeReasonText"] == "ChromiumCrashed") {
            break;
        }
        assert!(Instant::now() < deadline, "{history:?}");
    }
    let sessions = served.get("/sessions").await;
    assert_eq!(sessions, json!({"sessions": []}));
    assert_eq!(served.get("/limits").await["activeSessions"], json!([]));
    let (status, text) = served.ask(&format!("DELETE {path}"), "").await;
    assert_eq!((status, text.as_str()), (200, r#"{"status":"closed"}"#));
    println!("all agree {:?} after the kill", killed.elapsed());
    served.stop().await;
}

#[tokio::test]
async fn pages_reach_what_their_session_may_and_nothing_else() {
    let Some(served) = Served::start().await else {
        return;
    };
    let site = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = site.local_addr().unwrap();
    let (arrived, mut seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = site.accept().await {
            let mut head = vec![0; 4096];
            let len = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..len]).into_owned();
            let _ = arrived.send(head.lines().next().unwrap_or_default().to_owned());
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    for (page_path, guardrails, may) in [
        ("/none", r#"{"guardrails":{"allowedDomains":[]}}"#, false),
        (
            "/other",
            r#"{"guardrails":{"allowedDomains":["*.example.com"]}}"#,
            false,
        ),
        (
            "/this",
            r#"{"guardrails":{"allowedDomains":["127.0.0.1"]}}"#,
            true,
        ),
        ("/all", "", true),
    ] {
        let session = served
            .acquire_for("POST /devtools/browser", guardrails)
            .await;
        let path = format!("/devtools/browser/{session}");
        let mut client = served.connect(&path).await.unwrap();
        let blank = json!({"url": "about:blank"});
        let made = client.ask("Target.createTarget", blank).await;
        let target = made["result"]["targetId"].as_str().unwrap().to_owned();
        let mut page = served
            .connect(&format!("{path}/page/{target}"))
            .await
            .unwrap();
        // Answered once the page has come, or has not.
        let url = format!("http://{address}{page_path}");
        let went = page.ask("Page.navigate", json!({"url": url})).await;
        assert!(went["result"]["frameId"].is_string(), "{went}");
        let mut arrived = std::iter::from_fn(|| seen.try_recv().ok());
        let expected = format!("GET {page_path} HTTP/1.1");
        assert_eq!(arrived.any(|line| line == expected), may, "{guardrails}");
        let (status, _) = served.ask(&format!("DELETE {path}"), "").await;
        assert_eq!(status, 200);
    }
    served.stop().await;
}

/// Asks in pieces, and puts the pieces of the answer together.
async fn pieces(client: &mut Client, question: &Value) -> Value {
    for piece in cut(question.to_string().into()) {
        client.socket.send(Message::Binary(piece)).await.unwrap();
    }
    let mut assembler = Assembler::new(64 << 20);
    loop {
        let message = timeout(PATIENCE, client.socket.next()).await.unwrap();
        let Message::Binary(piece) = message.unwrap().unwrap() else {
            continue;
        };
        let Some(text) = assembler.piece(&piece).unwrap() else {
            continue;
        };
        let answer: Value = serde_json::from_str(&text).unwrap();
        if answer["id"] == question["id"] {
            return answer;
        }
    }
}
