//! A session between WebSockets and a stand-in for the browser, over pipes in memory.

use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;

const LIMIT: usize = 1 << 20;

type Socket = WebSocketStream<DuplexStream>;

/// A session whose browser is the test.
struct World {
    session: Session,
    ended: JoinHandle<Ended>,
    pipe: DuplexStream,
    got: Vec<u8>,
    parts: usize,
}

impl World {
    fn new() -> World {
        World::with(Room::default(), None)
    }

    fn with(room: Room, reach: Option<Reach>) -> World {
        let (ours, pipe) = tokio::io::duplex(64 << 10);
        let service: Service = Arc::new(|asked: Asked| {
            Box::pin(async move { format!(r#""result":{{"asked":"{}"}}"#, asked.method) })
        });
        let terms = Terms {
            service,
            reach,
            room,
        };
        let (session, carried) = Session::new(ours, terms);
        World {
            session,
            ended: tokio::spawn(carried),
            pipe,
            got: Vec::new(),
            parts: 0,
        }
    }

    /// The next message to the browser that is of some client.
    async fn heard(&mut self) -> Value {
        loop {
            let message = self.heard_any().await;
            if message["id"].as_i64().is_none_or(|id| id >= 0) {
                return message;
            }
        }
    }

    /// The next message to the browser.
    async fn heard_any(&mut self) -> Value {
        loop {
            if let Some(end) = memchr(0, &self.got) {
                let text: Vec<u8> = self.got.drain(..=end).collect();
                return serde_json::from_slice(&text[..end]).expect("JSON");
            }
            let count = self.pipe.read_buf(&mut self.got).await.expect("a session");
            assert_ne!(count, 0, "the session has ended");
        }
    }

    async fn say(&mut self, message: &Value) {
        let text = message.to_string() + "\0";
        self.pipe
            .write_all(text.as_bytes())
            .await
            .expect("a session");
    }

    async fn join(&mut self, framing: Framing) -> (Socket, JoinHandle<Parted>) {
        let (near, far) = tokio::io::duplex(64 << 10);
        let served = self.join_over(near, framing).await;
        let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        (client, served)
    }

    async fn join_over(&mut self, near: DuplexStream, framing: Framing) -> JoinHandle<Parted> {
        let session = self.session.clone();
        let line =
            tokio::spawn(async move { session.join(Part::Browser, Gate::default(), LIMIT).await });
        let asked = self.heard().await;
        assert_eq!(asked["method"], "Target.attachToBrowserTarget");
        let part = format!("R{}", self.parts);
        self.parts += 1;
        self.say(&json!({"id": asked["id"], "result": {"sessionId": part}}))
            .await;
        let line = line.await.expect("no panic").expect("a part");
        tokio::spawn(line.serve(near, framing))
    }
}

async fn text(socket: &mut Socket) -> Value {
    loop {
        match socket.next().await.expect("a message").expect("a message") {
            Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn closed(socket: &mut Socket) -> (u16, String) {
    loop {
        match socket.next().await {
            Some(Ok(Message::Close(Some(frame)))) => {
                return (frame.code.into(), frame.reason.to_string());
            }
            Some(Ok(Message::Ping(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn commands_and_answers_pass_and_are_seen_to() {
    let mut world = World::new();
    let (mut socket, _served) = world.join(Framing::Text).await;
    assert_eq!(world.session.last_command(), None);
    socket
        .send(Message::text(r#"{"id":1,"method":"A.b"}"#))
        .await
        .expect("a session");
    assert_eq!(
        world.heard().await,
        json!({"id": 1, "method": "A.b", "sessionId": "R0"})
    );
    world
        .say(&json!({"method": "A.c", "params": {}, "sessionId": "R0"}))
        .await;
    assert_eq!(
        text(&mut socket).await,
        json!({"method": "A.c", "params": {}})
    );
    assert!(world.session.last_command().is_some());
    assert_eq!(
        (world.session.open_commands(), world.session.clients()),
        (1, 1)
    );
    world
        .say(&json!({"id": 1, "result": {}, "sessionId": "R0"}))
        .await;
    assert_eq!(text(&mut socket).await, json!({"id": 1, "result": {}}));
    socket
        .send(Message::text(r#"{"id":2,"method":"Cloudflare.x"}"#))
        .await
        .expect("a session");
    assert_eq!(
        text(&mut socket).await,
        json!({"id": 2, "result": {"asked": "Cloudflare.x"}})
    );
    socket
        .send(Message::text("nonsense"))
        .await
        .expect("a session");
    assert_eq!(text(&mut socket).await["error"]["code"], -32700);
}

#[tokio::test]
async fn an_older_client_has_its_framing_and_its_ping() {
    let mut world = World::new();
    let (mut socket, served) = world.join(Framing::Chunks).await;
    socket.send(Message::text("ping")).await.expect("a session");
    let command =
        json!({"id": 1, "method": "A.b", "params": {"x": "ü".repeat(400_000)}}).to_string();
    for piece in cut(command.into()) {
        socket
            .send(Message::Binary(piece))
            .await
            .expect("a session");
    }
    let heard = world.heard().await;
    assert_eq!(
        (&heard["id"], &heard["sessionId"]),
        (&json!(1), &json!("R0"))
    );
    // Text of such a client is a message as well.
    socket
        .send(Message::text(r#"{"id":2,"method":"A.b"}"#))
        .await
        .expect("a session");
    assert_eq!(world.heard().await["id"], 2);
    world
        .say(&json!({"id": 1, "result": {}, "sessionId": "R0"}))
        .await;
    let Some(Ok(Message::Binary(piece))) = socket.next().await else {
        panic!("a piece");
    };
    assert_eq!(&piece[..], b"\x14\0\0\0{\"id\":1,\"result\":{}}");
    // A message that lost its tail: its length fits, and it is no JSON.
    socket
        .send(Message::Binary(Bytes::from_static(b"\x04\0\0\0{\"a\"")))
        .await
        .expect("a session");
    assert_eq!(closed(&mut socket).await, (1007, "bad chunk".to_owned()));
    drop(socket);
    let parted = Parted {
        told: Some(Close::new(1007, "bad chunk")),
        spoke: true,
    };
    assert_eq!(served.await.expect("no panic"), parted);
    assert_eq!(world.heard().await["method"], "Target.detachFromTarget");
}

#[tokio::test]
async fn a_client_that_leaves_lets_the_session_go_on() {
    let mut world = World::new();
    let (first, served) = world.join(Framing::Text).await;
    let (mut second, _served) = world.join(Framing::Text).await;
    drop(first);
    let parted = Parted {
        told: None,
        spoke: false,
    };
    assert_eq!(served.await.expect("no panic"), parted);
    let detach = world.heard().await;
    assert_eq!(detach["params"]["sessionId"], "R0");
    second
        .send(Message::text(r#"{"id":1,"method":"A.b"}"#))
        .await
        .expect("a session");
    assert_eq!(world.heard().await["sessionId"], "R1");
    let binary = Message::Binary(Bytes::from_static(b"x"));
    second.send(binary).await.expect("a session");
    assert_eq!(closed(&mut second).await.0, 1003);
    assert_eq!(world.heard().await["params"]["sessionId"], "R1");
    // The last one left, and a new one is welcome.
    let (mut third, _served) = world.join(Framing::Text).await;
    third
        .send(Message::text(r#"{"id":1,"method":"A.b"}"#))
        .await
        .expect("a session");
    assert_eq!(world.heard().await["sessionId"], "R2");
}

#[tokio::test]
async fn a_session_is_closed_by_a_client_for_all() {
    let mut world = World::new();
    let (mut first, _served) = world.join(Framing::Text).await;
    let (mut second, _served2) = world.join(Framing::Text).await;
    first
        .send(Message::text(r#"{"id":-9999,"method":"Browser.close"}"#))
        .await
        .expect("a session");
    assert_eq!(text(&mut first).await, json!({"id": -9999, "result": {}}));
    for socket in [&mut first, &mut second] {
        assert_eq!(closed(socket).await, (1000, String::new()));
    }
    assert_eq!(world.ended.await.expect("no panic"), Ended::Closed);
    let late = world
        .session
        .join(Part::Browser, Gate::default(), LIMIT)
        .await;
    assert_eq!(late.expect_err("over"), JoinFault::Ended);
}

#[tokio::test]
async fn a_browser_that_dies_is_told_of_and_so_is_who_ended_it() {
    for (told, expected) in [
        (None, (1011, "ChromiumCrashed")),
        (Some("BrowserIdle"), (1000, "BrowserIdle")),
    ] {
        let mut world = World::new();
        let (mut socket, _served) = world.join(Framing::Text).await;
        if let Some(reason) = told {
            world.session.end_with(Close::new(1000, reason));
        }
        // One command is answered, and one is not: nobody waits for ever.
        for id in [1, 2] {
            let command = json!({"id": id, "method": "A.b"}).to_string();
            let sent = socket.send(Message::text(command)).await;
            sent.expect("a session");
            world.heard().await;
        }
        world
            .say(&json!({"id": 1, "result": {}, "sessionId": "R0"}))
            .await;
        assert_eq!(text(&mut socket).await["id"], 1);
        drop(world.pipe);
        let message = format!("Browser closed: {}", expected.1);
        assert_eq!(
            text(&mut socket).await,
            json!({"id": 2, "error": {"code": -32000, "message": message}})
        );
        assert_eq!(
            closed(&mut socket).await,
            (expected.0, expected.1.to_owned())
        );
        assert_eq!(world.ended.await.expect("no panic"), Ended::Browser);
    }
}

#[tokio::test]
async fn a_session_without_an_owner_ends_with_its_last_client() {
    let mut world = World::new();
    let (socket, _served) = world.join(Framing::Text).await;
    let World {
        session,
        ended,
        pipe: _pipe,
        ..
    } = world;
    drop(session);
    assert!(!ended.is_finished());
    drop(socket);
    assert_eq!(ended.await.expect("no panic"), Ended::Dropped);
    let World {
        session,
        ended,
        pipe: _pipe,
        ..
    } = World::new();
    drop(session);
    assert_eq!(ended.await.expect("no panic"), Ended::Dropped);
}

#[tokio::test]
async fn messages_too_long_cost_themselves_only() {
    let mut world = World::new();
    let (mut socket, _served) = world.join(Framing::Text).await;
    let answer = json!({"id": 1, "result": {"x": "y".repeat(LIMIT)}, "sessionId": "R0"});
    let said = answer.to_string() + "\0";
    let (written, got) = tokio::join!(world.pipe.write_all(said.as_bytes()), text(&mut socket));
    written.expect("a session");
    assert_eq!(got["error"]["code"], -32000);
    let command = json!({"id": 1, "method": "A.b", "params": {"x": "y".repeat(LIMIT)}});
    let (_, end) = tokio::join!(
        socket.send(Message::text(command.to_string())),
        world.heard()
    );
    assert_eq!(end["method"], "Target.detachFromTarget");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_off_and_the_others_go_on() {
    let mut world = World::new();
    let (stuck, _served) = world.join(Framing::Text).await;
    let (mut other, _served2) = world.join(Framing::Text).await;
    let event = |part: &str| {
        json!({"method": "A.b", "params": {"x": "y".repeat(LIMIT / 2)}, "sessionId": part})
            .to_string()
            + "\0"
    };
    let began = Instant::now();
    let flood = async {
        for _ in 0..=OUTBOX_MAX / (LIMIT / 2) + 1 {
            world
                .pipe
                .write_all(event("R0").as_bytes())
                .await
                .expect("a session");
        }
        world
            .pipe
            .write_all(event("R1").as_bytes())
            .await
            .expect("a session");
    };
    let (_, got) = tokio::join!(flood, text(&mut other));
    assert_eq!(got["method"], "A.b");
    assert!(began.elapsed() >= STALLED);
    assert_eq!(world.session.clients(), 1);
    drop(stuck);
}

#[tokio::test]
async fn a_browser_that_reads_nothing_stops_its_clients_and_is_still_read() {
    let mut world = World::new();
    let (socket, _served) = world.join(Framing::Text).await;
    let (mut sink, mut stream) = socket.split();
    let big = json!({"id": 1, "method": "A.b", "params": {"x": "y".repeat(LIMIT / 2)}}).to_string();
    // More than all bounds between client and browser hold.
    let flood = tokio::spawn(async move {
        for _ in 0..100 {
            sink.send(Message::text(big.clone()))
                .await
                .expect("a session");
        }
        sink
    });
    for n in 0..10 {
        world
            .say(&json!({"method": "A.b", "params": {"n": n}, "sessionId": "R0"}))
            .await;
        let got = stream.next().await.expect("an event").expect("an event");
        assert!(got.to_text().expect("text").contains(&format!("\"n\":{n}")));
    }
    assert!(!flood.is_finished());
    for _ in 0..100 {
        assert_eq!(world.heard().await["id"], 1);
    }
    drop(flood.await.expect("no panic"));
}

#[test]
fn a_splitter_finds_every_message_and_keeps_no_memory() {
    let mut splitter = Splitter::new(Room::default().of_session().hold());
    let text: Vec<u8> = (0..200_u32)
        .flat_map(|n| [vec![b'x'; n as usize * 97], vec![0]].concat())
        .collect();
    let mut found = Vec::new();
    for piece in text.chunks(1013) {
        splitter.make_room();
        splitter.bytes.extend_from_slice(piece);
        while let Some(message) = splitter.next() {
            found.push(message.len());
        }
    }
    let expected: Vec<_> = (0..200).map(|n| n * 97).collect();
    assert_eq!(found, expected);
    for _ in 0..10 {
        assert_eq!(splitter.next(), None);
        splitter.make_room();
    }
    assert!(
        splitter.bytes.capacity() <= 2 * READ_MIN,
        "{}",
        splitter.bytes.capacity()
    );
}

#[tokio::test(start_paused = true)]
async fn who_answers_no_ping_is_not_there() {
    let mut world = World::new();
    let (near, far) = tokio::io::duplex(64 << 10);
    // It neither reads nor closes, like one whose machine was switched off.
    let served = world.join_over(near, Framing::Text).await;
    let began = Instant::now();
    let parted = Parted {
        told: None,
        spoke: false,
    };
    assert_eq!(served.await.expect("no panic"), parted);
    assert_eq!(began.elapsed(), PING_EVERY * (PINGS_LOST_MAX + 1));
    assert_eq!(world.heard().await["method"], "Target.detachFromTarget");
    // One that answers stays.
    let (mut socket, served) = world.join(Framing::Text).await;
    let late = tokio::time::sleep(PING_EVERY * 10);
    tokio::select! {
        _ = text(&mut socket) => unreachable!("nothing is said"),
        () = late => {}
    }
    assert!(!served.is_finished());
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_and_never_reads_holds_no_more_than_its_room() {
    let mut world = World::new();
    let (socket, served) = world.join(Framing::Text).await;
    let (mut sink, stream) = socket.split();
    // Answered here, each longer than what asked for it; until the client is cut off.
    let mut sent = 0;
    while sink.send(Message::text("x")).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "answers pile up");
    }
    assert_eq!(served.await.expect("no panic").told, None);
    drop(stream);
    assert_eq!(world.heard().await["method"], "Target.detachFromTarget");
    // Others go on.
    let (mut other, _served) = world.join(Framing::Text).await;
    other.send(Message::text("x")).await.expect("a session");
    assert_eq!(text(&mut other).await["error"]["code"], -32700);
}

#[tokio::test]
async fn what_finds_no_room_is_told() {
    const LARGE: usize = 9 << 20;
    let mut world = World::with(Room::new(LARGE), None);
    let session = world.session.clone();
    let line = tokio::spawn(async move {
        let limit = 64 << 20;
        session.join(Part::Browser, Gate::default(), limit).await
    });
    let asked = world.heard().await;
    world
        .say(&json!({"id": asked["id"], "result": {"sessionId": "R0"}}))
        .await;
    let line = line.await.expect("no panic").expect("a part");
    let (near, far) = tokio::io::duplex(64 << 10);
    let served = tokio::spawn(line.serve(near, Framing::Text));
    let mut socket = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    // From the browser: too large for the room while it is read, it is left out.
    let event = json!({"method": "A.b", "params": {"x": "y".repeat(LARGE + 1)}, "sessionId": "R0"});
    world.say(&event).await;
    let event = json!({"method": "A.c", "params": {}, "sessionId": "R0"});
    world.say(&event).await;
    assert_eq!(text(&mut socket).await["method"], "A.c");
    // One that fits passes, and its room is given back.
    for _ in 0..3 {
        let event =
            json!({"method": "A.b", "params": {"x": "y".repeat(LARGE - 100)}, "sessionId": "R0"});
        let (_, got) = tokio::join!(world.say(&event), text(&mut socket));
        assert_eq!(got["method"], "A.b");
    }
    // From a client: cut off amid its message.
    let command = json!({"id": 1, "method": "A.b", "params": {"x": "y".repeat(2 * LARGE)}});
    let (sent, end) = tokio::join!(
        socket.send(Message::text(command.to_string())),
        world.heard()
    );
    assert!(sent.is_err());
    assert_eq!(end["method"], "Target.detachFromTarget");
    let told = served.await.expect("no panic").told.expect("a reason");
    assert_eq!(told.code, 1013);
}

#[tokio::test]
async fn a_question_is_answered_beside_all_clients() {
    let mut world = World::new();
    let begun = world.heard_any().await;
    assert_eq!(begun["method"], "Target.setDiscoverTargets");
    let session = world.session.clone();
    let asked = tokio::spawn(async move { session.ask("Target.getTargets", json!({})).await });
    let heard = world.heard().await;
    assert_eq!(heard["method"], "Target.getTargets");
    assert_eq!(world.session.clients(), 0);
    let answer = json!({"id": heard["id"], "result": {"targetInfos": []}});
    world.say(&answer).await;
    let told = asked.await.expect("no panic").expect("an answer");
    assert_eq!(
        serde_json::from_slice::<Value>(&told).expect("JSON"),
        answer
    );
    // Whoever asks a session that ends is not kept waiting.
    let session = world.session.clone();
    let asked = tokio::spawn(async move { session.ask("Target.getTargets", json!({})).await });
    world.heard().await;
    drop(world.pipe);
    assert_eq!(asked.await.expect("no panic"), None);
}

#[tokio::test]
async fn requests_that_guardrails_forbid_are_answered_on_the_pipe() {
    let reach = Reach::new(|host| host == "example.com");
    let mut world = World::with(Room::default(), Some(reach));
    for expected in [
        "Target.setDiscoverTargets",
        "Browser.setDownloadBehavior",
        "Fetch.disable",
        "Fetch.enable",
    ] {
        assert_eq!(world.heard_any().await["method"], expected);
    }
    for (url, expected) in [
        ("https://example.com/x", "Fetch.continueRequest"),
        ("https://other.example/x", "Fetch.fulfillRequest"),
    ] {
        let params = json!({"requestId": "i.1", "request": {"url": url}});
        world
            .say(&json!({"method": "Fetch.requestPaused", "params": params}))
            .await;
        let heard = world.heard_any().await;
        assert_eq!(heard["method"], expected);
        assert_eq!(heard["params"]["requestId"], "i.1");
    }
}

/// Lengths around those where a frame's head changes and where it goes past the WebSocket, over a
/// pipe that takes a few hundred bytes at a time, while the client asks for pongs.
#[tokio::test]
async fn messages_of_any_length_come_whole_and_in_order_between_pongs() {
    let mut world = World::new();
    let (near, far) = tokio::io::duplex(700);
    let _served = world.join_over(near, Framing::Text).await;
    let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    let (mut asks, mut hears) = client.split();
    let lens = [
        1,
        60,
        80,
        200,
        LONG_MIN - 90,
        LONG_MIN,
        65_400,
        65_600,
        300_000,
    ];
    let lens = [lens, lens].concat();
    let told = lens.clone();
    let hearing = tokio::spawn(async move {
        let (mut at, mut pong) = (0, None);
        while at < told.len() {
            match hears.next().await.expect("a message").expect("whole") {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    let params = &event["params"];
                    assert_eq!(params["at"], at);
                    assert_eq!(params["data"].as_str().map(str::len), Some(told[at]));
                    at += 1;
                }
                // Of those that were asked for together the last one may stand for all.
                Message::Pong(asked) => {
                    assert!(Some(asked.len()) > pong && asked.iter().all(|&byte| byte == b'x'));
                    pong = Some(asked.len());
                }
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let asking = tokio::spawn(async move {
        for len in 0..50 {
            let ping = Message::Ping(vec![b'x'; len].into());
            asks.send(ping).await.expect("a session");
            tokio::task::yield_now().await;
        }
        asks
    });
    for (at, &len) in lens.iter().enumerate() {
        let data = "y".repeat(len);
        let event = json!({"method": "A.b", "params": {"at": at, "data": data}, "sessionId": "R0"});
        world.say(&event).await;
    }
    let _asks = asking.await.expect("no panic");
    hearing.await.expect("all came");
}
