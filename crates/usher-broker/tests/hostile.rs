//! Pages that hang, talk and multiply, and clients that lie, flood, stall and vanish: what is theirs
//! ends, and everybody else goes on.
//!
//! Where the machine refuses namespaces these say so and do nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod served;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use served::{Client, PATIENCE, Page, SECRET, Served};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

/// Bytes of one message that a binding takes.
const MESSAGE_MAX: usize = 32 << 20;

async fn targets(served: &Served, path: &str) -> Vec<Value> {
    let listed = served.get(&format!("{path}/json/list")).await;
    listed.as_array().unwrap().clone()
}

#[tokio::test]
async fn pages_that_hang_or_talk_hold_nothing_up() {
    let Some(served) = Served::start().await else {
        return;
    };
    // One that nobody commands any more ends, whatever its page does.
    let idle = served
        .acquire("POST /devtools/browser?keep_alive=10000")
        .await;
    let mut restless = Page::open(&served, &idle).await;
    let noise = "for (let n = 0; n < 3; n++) window.open('about:blank'); setInterval(() => fetch('https://a.example/').catch(() => {}), 50); 1";
    restless.value(noise).await;
    let ends = tokio::spawn(restless.client.ends());

    let session = served
        .acquire("POST /devtools/browser?keep_alive=600000")
        .await;
    let path = format!("/devtools/browser/{session}");
    let mut browser = served.connect(&path).await.unwrap();
    let loop_forever = json!({"expression": "for (;;) {}"});
    let mut hung = Page::open(&served, &session).await;
    hung.client.tell(1, "Runtime.evaluate", loop_forever).await;
    let mut talking = Page::open(&served, &session).await;
    let talk = json!({"expression": "alert('a'); alert('b')"});
    talking.client.tell(1, "Runtime.evaluate", talk).await;
    let mut leaving = Page::open(&served, &session).await;
    leaving.value("addEventListener('beforeunload', left => { left.preventDefault(); left.returnValue = 'no' }); 1").await;

    let listed = targets(&served, &path).await;
    for page in [&hung, &talking, &leaving] {
        assert!(
            listed.iter().any(|target| target["id"] == page.target),
            "{listed:?}"
        );
        served
            .get(&format!("{path}/json/list/{}", page.target))
            .await;
        served
            .get(&format!("{path}/json/activate/{}", page.target))
            .await;
    }
    served.get(&format!("{path}/json/version")).await;
    let (status, text) = served.ask(&format!("PUT {path}/json/new"), "").await;
    assert_eq!(status, 200, "{text}");
    // Others come, to the browser and to the page that hangs.
    let mut other = served.connect(&path).await.unwrap();
    assert!(other.ask("Browser.getVersion", json!({})).await["result"].is_object());
    served
        .connect(&format!("{path}/page/{}", hung.target))
        .await
        .unwrap();
    served
        .get(&format!("{path}/json/close/{}", leaving.target))
        .await;
    served
        .get(&format!("{path}/json/close/{}", hung.target))
        .await;
    let gone = async {
        loop {
            let told = browser
                .ask("Target.getTargets", json!({}))
                .await
                .to_string();
            if !told.contains(&leaving.target) && !told.contains(&hung.target) {
                return;
            }
        }
    };
    timeout(PATIENCE, gone).await.expect("they close");
    let (status, text) = served.ask(&format!("DELETE {path}"), "").await;
    assert_eq!((status, text.as_str()), (200, r#"{"status":"closing"}"#));
    let frame = other.ends().await.expect("a close frame");
    assert_eq!(u16::from(frame.code), 1000);

    let frame = ends.await.unwrap().expect("a close frame");
    let told = (u16::from(frame.code), frame.reason.as_str());
    assert_eq!(told, (1000, "BrowserIdle"));
    served.stop().await;
}

#[tokio::test]
async fn pages_do_not_multiply_without_end_and_one_that_crashes_is_alone() {
    let Some(served) = Served::start().await else {
        return;
    };
    // Redirects without end, each to the next.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = "HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    let session = served.acquire("POST /devtools/browser").await;
    let path = format!("/devtools/browser/{session}");
    let mut browser = served.connect(&path).await.unwrap();
    let mut page = Page::open(&served, &session).await;
    let went = page
        .client
        .ask(
            "Page.navigate",
            json!({"url": format!("http://{address}/")}),
        )
        .await;
    assert_eq!(
        went["result"]["errorText"], "net::ERR_TOO_MANY_REDIRECTS",
        "{went}"
    );

    let open = "for (let n = 0; n < 80; n++) window.open('about:blank', '_blank'); 1";
    page.client
        .ask(
            "Page.navigate",
            json!({"url": "data:text/html,<title>many</title>"}),
        )
        .await;
    page.value(open).await;
    let settled = async {
        loop {
            let told = browser.ask("Target.getTargets", json!({})).await;
            let pages = told["result"]["targetInfos"].as_array().unwrap().iter();
            let pages = pages.filter(|info| info["type"] == "page").count();
            if pages == 50 {
                return;
            }
        }
    };
    timeout(PATIENCE, settled)
        .await
        .expect("as many as may be, and no more");
    let told = browser
        .ask("Target.createTarget", json!({"url": "about:blank"}))
        .await;
    let text = "this browser has 50 pages, and may have no more";
    assert_eq!(told["error"]["message"], text);
    assert_eq!(page.value("6 * 7").await, 42);

    page.client.tell(1000, "Page.crash", json!({})).await;
    page.client
        .until(|told| told["method"] == "Inspector.targetCrashed")
        .await;
    assert!(browser.ask("Browser.getVersion", json!({})).await["result"].is_object());
    assert!(!targets(&served, &path).await.is_empty());
    served.stop().await;
}

#[tokio::test]
async fn clients_that_lie_flood_or_stall_cost_themselves_only() {
    let Some(served) = Served::start().await else {
        return;
    };
    let session = served
        .acquire("POST /devtools/browser?keep_alive=600000")
        .await;
    let path = format!("/devtools/browser/{session}");
    let mut honest = served.connect(&path).await.unwrap();
    let mut page = Page::open(&served, &session).await;

    // What cannot be read is answered, and ids of any size come back.
    for (text, code) in [
        ("", -32700),
        ("nonsense", -32700),
        ("[1]", -32600),
        ("{}", -32600),
        (r#"{"id":1}"#, -32600),
        (
            r#"{"id":9007199254740992,"method":"Browser.getVersion"}"#,
            -32600,
        ),
        (r#"{"id":1.5,"method":"Browser.getVersion"}"#, -32600),
        (
            r#"{"id":1,"method":"Browser.getVersion","sessionId":"ABC"}"#,
            -32001,
        ),
        (r#"{"id":1,"method":"Browser.getVersion"}{"id":2}"#, -32700),
        (
            "{\"id\":1,\"method\":\"Browser.getVersion\"}\0{\"id\":2}",
            -32700,
        ),
    ] {
        honest.socket.send(Message::text(text)).await.unwrap();
        let told = honest.until(|told| told["error"].is_object()).await;
        assert_eq!(told["error"]["code"], code, "{text:?}: {told}");
    }
    for id in [
        0,
        -1,
        -9_999,
        i64::from(i32::MIN) - 1,
        (1 << 53) - 1,
        -(1 << 53) + 1,
    ] {
        honest.tell(id, "Browser.getVersion", json!({})).await;
        let told = honest.until(|told| told["id"] == id).await;
        assert!(told["result"].is_object(), "{id}: {told}");
    }

    // 100 MB towards us end a connection, and 100 MB from the browser are told of.
    let mut large = served.connect(&path).await.unwrap();
    let text = Message::text("x".repeat(100_000_000));
    // It may be cut off before all of it is sent.
    let _ = timeout(PATIENCE, large.socket.send(text))
        .await
        .expect("it is cut off");
    let code = large.ends().await.map(|frame| u16::from(frame.code));
    assert!(matches!(code, Some(1009) | None), "{code:?}");
    let long = json!({"expression": "'x'.repeat(100000000)", "returnByValue": true});
    let told = page.client.ask("Runtime.evaluate", long).await;
    let text = told["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("{told}"));
    assert!(
        text.contains(&format!("over this connection's limit of {MESSAGE_MAX}")),
        "{text}"
    );
    // Neither is a binary message one.
    let mut binary = served.connect(&path).await.unwrap();
    binary
        .socket
        .send(Message::binary(b"{}".to_vec()))
        .await
        .unwrap();
    assert_eq!(
        binary.ends().await.map(|frame| u16::from(frame.code)),
        Some(1003)
    );

    // Who asks ten thousand things before it reads the first answer gets all of them.
    let mut hasty = served.connect(&path).await.unwrap();
    let (mut sink, mut stream) = (&mut hasty.socket).split();
    let asking = async {
        for id in 0..10_000 {
            let text = format!(r#"{{"id":{id},"method":"Browser.getVersion"}}"#);
            sink.feed(Message::text(text)).await.unwrap();
        }
        sink.flush().await.unwrap();
    };
    let reading = async {
        let mut answers = 0;
        while answers < 10_000 {
            if let Message::Text(_) = stream.next().await.unwrap().unwrap() {
                answers += 1;
            }
        }
    };
    timeout(PATIENCE, async { tokio::join!(asking, reading) })
        .await
        .expect("all answers");

    // As many connections as may be, and one more; questions need none.
    let mut crowd = Vec::new();
    let refused = loop {
        match served.connect(&path).await {
            Ok(client) => crowd.push(client),
            Err(refused) => break refused,
        }
        assert!(crowd.len() <= 16);
    };
    let text = "this session has 16 connections, and may have no more";
    assert_eq!(refused, (409, text.to_owned()));
    assert!(!targets(&served, &path).await.is_empty());
    assert!(honest.ask("Browser.getVersion", json!({})).await["result"].is_object());
    served.stop().await;
}

#[tokio::test]
async fn clients_that_vanish_between_any_two_steps_take_nothing_along() {
    let Some(served) = Served::start().await else {
        return;
    };
    let upgrade = format!(
        "GET /v1/devtools/browser?keep_alive=600000 HTTP/1.1\r\nHost: a\r\nusher-binding: {SECRET}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: enSxZFaS2fH5Ax9SEBvXbA==\r\n\r\n"
    );
    let began = Instant::now();
    // Gone at once, gone amid the head, gone when the answer began, gone when all of it was there.
    for turn in 0..10 {
        let mut hasty = TcpStream::connect(&served.address).await.unwrap();
        let upto = if turn % 10 == 0 {
            upgrade.len() / 2
        } else {
            upgrade.len()
        };
        hasty.write_all(&upgrade.as_bytes()[..upto]).await.unwrap();
        // Whoever waits for its answer uses a browser up, so only a few do.
        let reads = match turn {
            3 => 1,
            5 => 12,
            7 => 400,
            _ => 0,
        };
        let _ = timeout(PATIENCE, hasty.read(&mut vec![0; reads]))
            .await
            .expect("an answer");
        // Without a farewell: what was not read is answered with a reset.
        drop(hasty);
    }
    // Nothing of them holds a place of the account, which has three: an honest one works at once.
    let mut kept: Vec<Client> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while kept.len() < 3 {
        match served.connect("/devtools/browser?keep_alive=600000").await {
            Ok(mut client) => {
                let told = client.ask("Browser.getVersion", json!({})).await;
                assert!(told["result"].is_object());
                kept.push(client);
            }
            // None is ready yet, or one of theirs is still being given back.
            Err((status, text)) => {
                assert!(
                    matches!(status, 429 | 503) && Instant::now() < deadline,
                    "{status} {text}"
                );
            }
        }
    }
    println!("ten gone and three served after {:?}", began.elapsed());
    let open = served.get("/sessions").await;
    assert_eq!(open["sessions"].as_array().map(Vec::len), Some(3), "{open}");
    served.stop().await;
}
