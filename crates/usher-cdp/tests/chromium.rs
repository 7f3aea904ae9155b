//! The relay in front of a real browser: what it makes of two clients, the browser takes for two.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bytes::BytesMut;
use serde_json::{Value, json};
use usher_cdp::{ClientId, Delivery, Gate, Part, Relay, Step};

/// Debian's; `scripts/setup` installs it for the tests.
const CHROMIUM: &str = "/usr/bin/chromium";

struct World {
    relay: Relay,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    browser: Child,
    /// What each client got and did not look at yet.
    got: HashMap<ClientId, Vec<Value>>,
    _profile: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let profile = tempfile::tempdir().expect("a folder");
        // The browser reads from 3 and writes to 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";
        let mut browser = Command::new("/bin/sh")
            .args(["-c", script, CHROMIUM])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let to = browser.stdin.take().expect("piped");
        let from = BufReader::new(browser.stdout.take().expect("piped"));
        World {
            relay: Relay::default(),
            to,
            from,
            browser,
            got: HashMap::new(),
            _profile: profile,
        }
    }

    fn send(&mut self, text: &str) {
        self.to
            .write_all(text.as_bytes())
            .expect("the browser reads");
        self.to.write_all(b"\0").expect("the browser reads");
    }

    /// Takes one message of the browser.
    fn turn(&mut self) -> Delivery {
        let mut message = Vec::new();
        self.from
            .read_until(0, &mut message)
            .expect("the browser writes");
        assert_eq!(
            message.pop(),
            Some(0),
            "{CHROMIUM} ended; apt-get install chromium"
        );
        let delivery = self.relay.deliver(BytesMut::from(&message[..]));
        match &delivery {
            Delivery::Client(id, text) => {
                let text = serde_json::from_slice(text).expect("JSON");
                self.got.entry(*id).or_default().push(text);
            }
            Delivery::Browser(text) => {
                let text = text.clone();
                self.send(&text);
            }
            _ => {}
        }
        delivery
    }

    fn join(&mut self, part: &Part) -> Option<ClientId> {
        let (client, text) = self
            .relay
            .join(part, Gate::default(), 32 << 20)
            .expect("room");
        self.send(&text);
        loop {
            match self.turn() {
                Delivery::Joined(id) if id == client => return Some(client),
                Delivery::Refused(id) if id == client => return None,
                _ => {}
            }
        }
    }

    fn leave(&mut self, client: ClientId) {
        if let Some(text) = self.relay.leave(client) {
            self.send(&text);
        }
    }

    /// Asks and waits for the answer.
    fn ask(
        &mut self,
        client: ClientId,
        id: i64,
        method: &str,
        params: Value,
        part: Option<&str>,
    ) -> Value {
        let mut text = json!({"id": id, "method": method, "params": params});
        if let Some(part) = part {
            text["sessionId"] = part.into();
        }
        match self.relay.command(client, &text.to_string()) {
            Step::Browser(text) => self.send(&text),
            Step::Client(text) => return serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        }
        self.until(client, |got| got["id"] == id)
    }

    /// Waits for a message, which is taken from what the client got.
    fn until(&mut self, client: ClientId, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let got = self.got.entry(client).or_default();
            if let Some(at) = got.iter().position(&wanted) {
                return got.remove(at);
            }
            self.turn();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

#[test]
fn two_clients_have_a_browser_each() {
    let mut world = World::new();
    let [first, second] = [(); 2].map(|()| world.join(&Part::Browser).expect("a part"));
    let large = (1_i64 << 53) - 1;
    for client in [first, second] {
        let version = world.ask(client, large, "Browser.getVersion", json!({}), None);
        assert!(version["result"]["product"].is_string(), "{version}");
        assert_eq!(
            (&version["id"], version.get("sessionId")),
            (&json!(large), None)
        );
    }
    let closed = world.ask(first, -7, "Nothing.there", json!({}), None);
    assert_eq!(
        (&closed["id"], &closed["error"]["code"]),
        (&json!(-7), &json!(-32601))
    );

    // What one attaches to by itself, the other is not told of.
    let all = json!({"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true});
    world.ask(first, 1, "Target.setAutoAttach", all, None);
    let context = world.ask(
        first,
        2,
        "Target.createBrowserContext",
        json!({"disposeOnDetach": true}),
        None,
    );
    let context = context["result"]["browserContextId"]
        .as_str()
        .expect("a context")
        .to_owned();
    let page = json!({"url": "about:blank", "browserContextId": context});
    let page = world.ask(first, 3, "Target.createTarget", page, None);
    let target = page["result"]["targetId"]
        .as_str()
        .expect("a target")
        .to_owned();
    let attached = world.until(first, |got| {
        got["method"] == "Target.attachedToTarget"
            && got["params"]["targetInfo"]["targetId"] == *target
    });
    assert_eq!(attached.get("sessionId"), None);
    let part = attached["params"]["sessionId"]
        .as_str()
        .expect("a part")
        .to_owned();
    let evaluate = json!({"expression": "'\",\"sessionId\":\"' + 6 * 7"});
    let answer = world.ask(first, 4, "Runtime.evaluate", evaluate.clone(), Some(&part));
    assert_eq!(answer["result"]["result"]["value"], "\",\"sessionId\":\"42");
    assert_eq!(answer["sessionId"], *part);
    let foreign = world.ask(second, 4, "Runtime.evaluate", evaluate.clone(), Some(&part));
    assert_eq!(foreign["error"]["code"], -32001);
    world.ask(second, 5, "Browser.getVersion", json!({}), None);
    let seen = world.got.remove(&second).unwrap_or_default();
    assert!(seen.is_empty(), "{seen:?}");

    // A client of the page alone, which goes with the page.
    let alone = world.join(&Part::Page(target.clone())).expect("a part");
    let answer = world.ask(alone, 1, "Runtime.evaluate", evaluate, None);
    assert_eq!(
        (&answer["result"]["result"]["type"], answer.get("sessionId")),
        (&json!("string"), None)
    );
    assert_eq!(world.join(&Part::Page("0".repeat(32))), None);

    // What was to vanish with its client does.
    world.leave(first);
    loop {
        if world.turn() == Delivery::Gone(alone) {
            break;
        }
    }
    let targets = world.ask(second, 6, "Target.getTargets", json!({}), None);
    let targets = targets["result"]["targetInfos"]
        .as_array()
        .expect("targets");
    assert!(
        targets.iter().all(|info| info["targetId"] != *target),
        "{targets:?}"
    );
}
