//! The relay against a browser that says what a test lets it say.

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 32 << 20;

/// A relay with clients whose parts are called R0, R1 and so on.
fn relay(clients: usize) -> (Relay, Vec<ClientId>) {
    let mut relay = Relay::default();
    let ids = (0..clients).map(|n| join(&mut relay, &format!("R{n}"), Gate::default(), LIMIT));
    let ids = ids.collect();
    (relay, ids)
}

fn join(relay: &mut Relay, part: &str, gate: Gate, limit: usize) -> ClientId {
    let (client, asked) = relay.join(&Part::Browser, gate, limit).expect("room");
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    assert_eq!(asked["method"], "Target.attachToBrowserTarget");
    // The browser tells of the part before it answers.
    let event = json!({"method": "Target.attachedToTarget", "params": {"sessionId": part}});
    assert_eq!(say(relay, &event), Delivery::Nothing);
    let answer = json!({"id": asked["id"], "result": {"sessionId": part}});
    assert_eq!(say(relay, &answer), Delivery::Joined(client));
    client
}

fn say(relay: &mut Relay, message: &Value) -> Delivery {
    relay.deliver(BytesMut::from(message.to_string().as_bytes()))
}

fn to_client(id: ClientId, text: &str) -> Delivery {
    Delivery::Client(id, Bytes::copy_from_slice(text.as_bytes()))
}

fn to_browser(step: Step) -> String {
    match step {
        Step::Browser(text) => text,
        other => panic!("{other:?}"),
    }
}

fn to_itself(step: Step) -> Value {
    match step {
        Step::Client(text) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_client_sees_a_browser_of_its_own() {
    let (mut relay, ids) = relay(2);
    for (n, &id) in ids.iter().enumerate() {
        let sent = to_browser(relay.command(id, r#"{"method":"Browser.getVersion","id":1}"#));
        assert_eq!(
            sent,
            format!(r#"{{"sessionId":"R{n}","method":"Browser.getVersion","id":1}}"#)
        );
    }
    assert_eq!(relay.open(), 2);
    for (n, &id) in ids.iter().enumerate() {
        let answer = json!({"id": 1, "result": {"a": n}, "sessionId": format!("R{n}")});
        let got = say(&mut relay, &answer);
        assert_eq!(
            got,
            to_client(id, &format!(r#"{{"id":1,"result":{{"a":{n}}}}}"#))
        );
    }
    assert_eq!(relay.open(), 0);
    let event = json!({"method": "Target.targetCreated", "params": {}, "sessionId": "R1"});
    let expected = r#"{"method":"Target.targetCreated","params":{}}"#;
    assert_eq!(say(&mut relay, &event), to_client(ids[1], expected));
}

#[test]
fn what_a_client_attaches_to_is_its_own_and_so_is_all_below() {
    let (mut relay, ids) = relay(2);
    for (of, part) in [("R0", "A"), ("A", "B"), ("R1", "C")] {
        let event = json!({"method": "Target.attachedToTarget", "params": {"sessionId": part, "targetInfo": {}}, "sessionId": of});
        assert!(matches!(say(&mut relay, &event), Delivery::Client(..)));
    }
    let b = r#"{"id":7,"method":"Page.enable","sessionId":"B"}"#;
    assert_eq!(to_browser(relay.command(ids[0], b)), b);
    let refused = json!({"id": 7, "error": {"code": -32001, "message": "Session with given id not found."}, "sessionId": "B"});
    assert_eq!(to_itself(relay.command(ids[1], b)), refused);
    // What is a client's own part, another cannot name either.
    let foreign = to_itself(relay.command(ids[1], r#"{"id":7,"method":"A.b","sessionId":"R0"}"#));
    assert_eq!(foreign["error"]["code"], -32001);
    let answer = json!({"id": 7, "result": {}, "sessionId": "B"});
    assert_eq!(
        say(&mut relay, &answer),
        to_client(ids[0], r#"{"id":7,"result":{},"sessionId":"B"}"#)
    );
    let event = json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "B"}, "sessionId": "A"});
    assert!(matches!(say(&mut relay, &event), Delivery::Client(..)));
    assert_eq!(to_itself(relay.command(ids[0], b)), refused);
    let late = json!({"method": "Page.loadEventFired", "params": {}, "sessionId": "B"});
    assert_eq!(say(&mut relay, &late), Delivery::Nothing);
}

#[test]
fn numbers_that_a_browser_cannot_count_in_are_exchanged_and_come_back() {
    let (mut relay, ids) = relay(2);
    let large = [
        i64::from(EXCHANGED_MIN),
        i64::from(i32::MAX),
        i64::from(i32::MAX) + 1,
        i64::from(i32::MIN) - 1,
        (1 << 53) - 1,
        -(1 << 53) + 1,
        // What is below zero on the pipe is the relay's own.
        -1,
        -9999,
        i64::from(i32::MIN),
    ];
    for &id in large.iter().chain(&[0, i64::from(EXCHANGED_MIN) - 1]) {
        let text = format!(r#"{{"id":{id},"method":"A.b","params":{{"id":5}}}}"#);
        for client in [ids[0], ids[1]] {
            let sent: Value =
                serde_json::from_str(&to_browser(relay.command(client, &text))).expect("JSON");
            let number = sent["id"].as_i64().expect("a number");
            assert!(i32::try_from(number).is_ok(), "{number}");
            match large.contains(&id) {
                true => assert!(number >= i64::from(EXCHANGED_MIN), "{id}"),
                false => assert_eq!(number, id),
            }
            assert_eq!(sent["params"]["id"], 5);
            let answer = json!({"id": number, "result": {}, "sessionId": sent["sessionId"]});
            assert_eq!(
                say(&mut relay, &answer),
                to_client(client, &format!(r#"{{"id":{id},"result":{{}}}}"#))
            );
        }
    }
    assert!(relay.exchanged.is_empty());
    // As many as nobody has under way end in a refusal, not in two with one number.
    for n in 0..32_768_i64 {
        to_browser(relay.command(
            ids[0],
            &format!(r#"{{"id":{},"method":"A.b"}}"#, (1 << 40) + n),
        ));
    }
    let refused = to_itself(relay.command(ids[0], r#"{"id":1099511660000,"method":"A.b"}"#));
    assert_eq!(
        refused["error"]["message"],
        "too many commands are not answered yet"
    );
    assert_eq!(refused["id"], 1_099_511_660_000_i64);
    relay.leave(ids[0]).expect("it had a part");
    to_browser(relay.command(ids[1], r#"{"id":1099511660000,"method":"A.b"}"#));
}

#[test]
fn what_is_answered_here_never_reaches_the_browser() {
    let (mut relay, ids) = relay(1);
    let id = ids[0];
    for (text, answer) in [
        (
            "{",
            json!({"error": {"code": -32700, "message": "JSON: no such text at byte 1"}}),
        ),
        (
            r#"{"id":1}"#,
            json!({"error": {"code": -32600, "message": "Message must have string 'method' property"}}),
        ),
        (
            r#"{"id":1,"method":"Page.navigate","params":{"url":"file:///"}}"#,
            json!({"id": 1, "error": {"code": -32000, "message": "Cannot navigate to this URL"}}),
        ),
        (
            r#"{"id":-5,"method":"Browser.getBrowserCommandLine"}"#,
            json!({"id": -5, "result": {"arguments": []}}),
        ),
    ] {
        assert_eq!(to_itself(relay.command(id, text)), answer, "{text}");
    }
    let close = relay.command(id, r#"{"id":-9999,"method":"Browser.close","params":{}}"#);
    assert_eq!(close, Step::Close(r#"{"id":-9999,"result":{}}"#.to_owned()));
    let service = relay.command(
        id,
        r#"{"id":3,"method":"Cloudflare.getLiveView","params":{"mode":"tab"}}"#,
    );
    let expected = Step::Service {
        id: 3,
        method: "Cloudflare.getLiveView".to_owned(),
        session: None,
        params: r#"{"mode":"tab"}"#.to_owned(),
    };
    assert_eq!(service, expected);
    assert_eq!(
        Relay::answer(3, Some("S"), r#""result":{}"#),
        r#"{"id":3,"result":{},"sessionId":"S"}"#
    );
    let context = relay.command(
        id,
        r#"{ "id":4,"method":"Target.createBrowserContext","params":{"proxyServer":"a"}}"#,
    );
    assert_eq!(
        to_browser(context),
        r#"{"sessionId":"R0", "id":4,"method":"Target.createBrowserContext","params":{}}"#
    );
    assert_eq!(relay.open(), 1);
}

#[test]
fn the_command_line_is_taken_out_of_an_answer() {
    let (mut relay, ids) = relay(1);
    let sent = to_browser(relay.command(ids[0], r#"{"id":1,"method":"SystemInfo.getInfo"}"#));
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let answer = json!({"id": sent["id"], "result": {"modelName": "", "commandLine": "chromium --secret"}, "sessionId": "R0"});
    let expected = r#"{"id":1,"result":{"modelName":"","commandLine":""}}"#;
    assert_eq!(say(&mut relay, &answer), to_client(ids[0], expected));
}

#[test]
fn a_client_that_leaves_takes_everything_of_it_along() {
    let (mut relay, ids) = relay(2);
    let event = json!({"method": "Target.attachedToTarget", "params": {"sessionId": "A"}, "sessionId": "R0"});
    say(&mut relay, &event);
    to_browser(relay.command(ids[0], r#"{"id":1,"method":"A.b"}"#));
    let detach: Value = serde_json::from_str(&relay.leave(ids[0]).expect("a part")).expect("JSON");
    assert_eq!(
        (&detach["method"], &detach["params"]),
        (
            &json!("Target.detachFromTarget"),
            &json!({"sessionId": "R0"})
        )
    );
    assert_eq!((relay.open(), relay.clients()), (0, 1));
    for session in ["R0", "A"] {
        let late = json!({"id": 1, "result": {}, "sessionId": session});
        assert_eq!(say(&mut relay, &late), Delivery::Nothing);
    }
    assert_eq!(
        say(
            &mut relay,
            &json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "R0"}})
        ),
        Delivery::Nothing
    );
    assert_eq!(
        say(&mut relay, &json!({"id": detach["id"], "result": {}})),
        Delivery::Nothing
    );
    assert_eq!(relay.leave(ids[0]), None);
    assert!(matches!(
        relay.command(ids[0], r#"{"id":1,"method":"A.b"}"#),
        Step::Client(_)
    ));
    // One that left before it got its part: the part is given back.
    let (early, asked) = relay
        .join(&Part::Browser, Gate::default(), LIMIT)
        .expect("room");
    assert_eq!(relay.leave(early), None);
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    let Delivery::Browser(back) = say(
        &mut relay,
        &json!({"id": asked["id"], "result": {"sessionId": "R9"}}),
    ) else {
        panic!("it is given back");
    };
    assert!(
        back.contains(r#""Target.detachFromTarget","params":{"sessionId":"R9"}"#),
        "{back}"
    );
}

#[test]
fn a_page_that_is_not_there_or_goes_is_told() {
    let mut relay = Relay::default();
    let page = Part::Page("no \"such\" page".to_owned());
    let (client, asked) = relay.join(&page, Gate::default(), LIMIT).expect("room");
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    assert_eq!(
        asked["params"],
        json!({"targetId": "no \"such\" page", "flatten": true})
    );
    let fault = json!({"id": asked["id"], "error": {"code": -32602, "message": "No target with given id found"}});
    assert_eq!(say(&mut relay, &fault), Delivery::Refused(client));
    assert!(matches!(
        relay.command(client, r#"{"id":1,"method":"A.b"}"#),
        Step::Client(_)
    ));
    relay.leave(client);
    let (client, asked) = relay.join(&page, Gate::default(), LIMIT).expect("room");
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    assert_eq!(
        say(
            &mut relay,
            &json!({"id": asked["id"], "result": {"sessionId": "P"}})
        ),
        Delivery::Joined(client)
    );
    let gone = json!({"method": "Target.detachedFromTarget", "params": {"sessionId": "P", "targetId": "T"}});
    assert_eq!(say(&mut relay, &gone), Delivery::Gone(client));
    assert_eq!(relay.leave(client), None);
}

#[test]
fn only_so_many_clients_and_parts_fit() {
    let (mut relay, ids) = relay(CLIENTS_MAX);
    assert_eq!(
        relay.join(&Part::Browser, Gate::default(), LIMIT),
        Err(Full)
    );
    relay.leave(ids[3]).expect("a part");
    join(&mut relay, "R99", Gate::default(), LIMIT);
    let attached = |n: usize| json!({"method": "Target.attachedToTarget", "params": {"sessionId": format!("A{n}")}, "sessionId": "R0"});
    for n in 0..PARTS_MAX {
        assert!(matches!(
            say(&mut relay, &attached(n)),
            Delivery::Client(..)
        ));
        assert!(
            matches!(say(&mut relay, &attached(n)), Delivery::Client(..)),
            "told twice"
        );
    }
    assert!(matches!(
        say(&mut relay, &attached(PARTS_MAX)),
        Delivery::Browser(_)
    ));
}

#[test]
fn what_is_too_long_for_a_client_is_shortened_or_left_out() {
    let mut relay = Relay::default();
    let client = join(&mut relay, "R0", Gate::default(), 300);
    let answer =
        |size: usize| json!({"id": 1, "result": {"x": "y".repeat(size)}, "sessionId": "R0"});
    // At the limit once the name of the part is gone.
    let fits = 300 - r#"{"id":1,"result":{"x":""}}"#.len();
    assert!(
        matches!(say(&mut relay, &answer(fits)), Delivery::Client(of, text) if of == client && text.len() == 300)
    );
    let Delivery::Client(_, text) = say(&mut relay, &answer(fits + 1)) else {
        panic!("an answer");
    };
    let text: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(
        text["error"]["message"],
        "reply of 301 bytes is over this connection's limit of 300"
    );
    assert_eq!(text["id"], 1);
    let frame = json!({"method": "Page.screencastFrame", "params": {"data": "x".repeat(400)}, "sessionId": "R0"});
    assert_eq!(say(&mut relay, &frame), Delivery::Nothing);
    assert_eq!(relay.left_out(), 1);
}

proptest! {
    /// Neither side can bring the relay down, nor hear what is another's.
    #[test]
    fn nothing_that_is_said_does_harm(
        steps in prop::collection::vec((0_usize..3, 0_usize..8, 0_usize..8, any::<i64>(), "\\PC{0,8}"), 0..60),
    ) {
        let (mut relay, ids) = relay(3);
        const PARTS: [&str; 8] = ["R0", "R1", "R2", "A", "B", "C", "", "x\"y"];
        const METHODS: [&str; 8] = [
            "Target.attachedToTarget", "Target.detachedFromTarget", "Page.enable", "Page.navigate",
            "SystemInfo.getInfo", "Target.sendMessageToTarget", "Browser.close", "",
        ];
        for (who, part, method, id, text) in steps {
            let message = json!({
                "id": id, "method": METHODS[method],
                "params": {"sessionId": PARTS[(part + who) % 8], "url": text, "message": text},
                "sessionId": PARTS[part],
            });
            if let Step::Browser(sent) = relay.command(ids[who], &message.to_string()) {
                let sent: Value = serde_json::from_str(&sent).expect("JSON");
                let session = sent["sessionId"].as_str().expect("a part");
                prop_assert_eq!(relay.owners.get(session), Some(&ids[who]));
            }
            let _ = relay.command(ids[who], &text);
            let event = json!({"method": METHODS[method], "params": message["params"], "sessionId": PARTS[part]});
            let answer = json!({"id": id % (1 << 31), "result": {}, "sessionId": PARTS[part]});
            for said in [event, answer, message] {
                let owner = relay.owners.get(PARTS[part]).copied();
                if let Delivery::Client(of, bytes) = say(&mut relay, &said) {
                    prop_assert_eq!(Some(of), owner);
                    prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
                }
            }
            let _ = relay.deliver(BytesMut::from(text.as_bytes()));
        }
    }
}

#[test]
fn what_the_relay_sees_to_itself_is_nobodys() {
    let (mut relay, ids) = relay(1);
    let own = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert!(value["id"].as_i64().is_some_and(|id| id < 0), "{text}");
        assert!(text.starts_with("{\"id\":-"), "{text}");
        value
    };
    let begun = relay.begin();
    assert_eq!(own(&begun[0])["method"], "Target.setDiscoverTargets");
    let answer = json!({"id": own(&begun[0])["id"], "result": {}});
    assert_eq!(say(&mut relay, &answer), Delivery::Nothing);
    let info =
        |id: usize, url: &str| json!({"targetId": id.to_string(), "type": "page", "url": url});
    let created =
        |info: Value| json!({"method": "Target.targetCreated", "params": {"targetInfo": info}});
    let stray = created(info(0, "view-source:http://a"));
    let Delivery::Browser(close) = say(&mut relay, &stray) else {
        panic!("it is closed");
    };
    assert_eq!(own(&close)["method"], "Target.closeTarget");
    for id in 0..PAGES_MAX {
        assert_eq!(say(&mut relay, &created(info(id, ""))), Delivery::Nothing);
    }
    let create = r#"{"id":1,"method":"Target.createTarget","params":{"url":"about:blank"}}"#;
    let refused = to_itself(relay.command(ids[0], create));
    let text = "this browser has 50 pages, and may have no more";
    assert_eq!(refused["error"]["message"], text);
    let gone = json!({"method": "Target.targetDestroyed", "params": {"targetId": "7"}});
    say(&mut relay, &gone);
    to_browser(relay.command(ids[0], create));
    // A client is not attached to the browser's own surface.
    let event = json!({"method": "Target.attachedToTarget", "params": {"sessionId": "U", "targetInfo": {"url": "chrome://omnibox-popup.top-chrome/"}}, "sessionId": "R0"});
    let Delivery::Browser(back) = say(&mut relay, &event) else {
        panic!("it is given back");
    };
    assert_eq!(own(&back)["params"], json!({"sessionId": "U"}));
    let there = to_itself(relay.command(ids[0], r#"{"id":2,"method":"A.b","sessionId":"U"}"#));
    assert_eq!(there["error"]["code"], -32001);
    // A question has its answer, and it has no client.
    let (number, text) = relay.question("Target.getTargets", &json!({}));
    assert!(text.contains("\"method\":\"Target.getTargets\"") && number > 0);
    let answer = json!({"id": number, "result": {"targetInfos": []}});
    let told = Bytes::from(answer.to_string());
    assert_eq!(say(&mut relay, &answer), Delivery::Told(number, told));
    assert_eq!(say(&mut relay, &answer), Delivery::Nothing);
}

#[test]
fn a_command_that_the_browser_could_not_read_is_refused() {
    let (mut relay, ids) = relay(1);
    let command = |size: usize| {
        let text = "x".repeat(size);
        format!(r#"{{"id":1,"method":"Runtime.evaluate","params":{{"expression":"{text}"}}}}"#)
    };
    let longest = TAKEN_MAX - "R0".len() - ADDED_MAX - command(0).len();
    let sent = to_browser(relay.command(ids[0], &command(longest)));
    assert!(sent.len() <= TAKEN_MAX);
    let told = to_itself(relay.command(ids[0], &command(longest + 1)));
    assert_eq!(told["id"], 1);
    assert_eq!(told["error"]["code"], -32000);
}
