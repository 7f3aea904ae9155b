//! A Worker's side of the browsers: requests to the binding, and the browser's protocol behind it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocket;
use tokio_tungstenite::tungstenite::{self, client};

use super::PATIENCE;
use super::config::{Config, TOKEN};
use super::message::Message;
use super::process::Usher;
use super::wire::Wire;

/// What the Workers of `default` show.
pub const SECRET: &str = "binding-secret-of-tests";

/// For anything that a browser does on a slow machine.
pub const PATIENCE_OF_BROWSERS: Duration = Duration::from_secs(60);

impl Config {
    /// Browsers of one region, whose pages reach this machine.
    pub fn browsers(self) -> Self {
        self.set(
            &["browsers"],
            json!({"listen": "127.0.0.1:0", "pools": {"WEU": {"min_ready": 1, "max": 2}}}),
        )
        .set(
            &["accounts"],
            json!({"default": {
                "binding_secret": SECRET,
                "allow_private": ["127.0.0.0/8"],
                "limits": {"browsers_per_second": 50, "browsers_burst": 50},
            }}),
        )
    }
}

impl Usher {
    /// `line` is a method and a path below `/v1`.
    pub fn binding_as(&self, secret: &str, line: &str, body: &str) -> Message {
        let (method, path) = line.split_once(' ').unwrap();
        let head = format!(
            "{method} /v1{path} HTTP/1.1\r\nHost: fake.host\r\nusher-binding: {secret}\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Wire::connect(self.address("binding")).exchange(head)
    }

    pub fn binding(&self, line: &str) -> Message {
        self.binding_as(SECRET, line, "")
    }

    /// What a path below `/v1` shows.
    pub fn binding_get(&self, path: &str) -> Value {
        let answer = self.binding(&format!("GET {path}"));
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The session of a new browser. `None`, and a word why, where the machine refuses sandboxes.
    pub fn acquire(&self) -> Option<String> {
        self.acquired(|| self.binding("GET /acquire?wait=5s"))
    }

    /// The same, of one that may be idle for so long.
    pub fn acquire_for(&self, keep_alive: Duration) -> Option<String> {
        let millis = keep_alive.as_millis();
        self.acquired(|| self.binding(&format!("GET /acquire?wait=5s&keep_alive={millis}")))
    }

    /// The wish for a browser, sent; whoever waits for the answer gets it.
    pub fn begin_acquire(&self) -> Wire {
        let mut wire = Wire::connect(self.address("binding"));
        wire.send(format!(
            "GET /v1/acquire HTTP/1.1\r\nHost: fake.host\r\nusher-binding: {SECRET}\r\n\
             Connection: close\r\n\r\n"
        ));
        wire
    }

    /// The same, asked for in another way.
    fn acquired(&self, ask: impl Fn() -> Message) -> Option<String> {
        let deadline = Instant::now() + PATIENCE_OF_BROWSERS;
        loop {
            // It stands in line meanwhile.
            let answer = ask();
            if answer.status() == 200 {
                let told: Value = serde_json::from_slice(&answer.body).unwrap();
                return Some(told["sessionId"].as_str().unwrap().to_owned());
            }
            assert_eq!(answer.status(), 503, "{answer:?}");
            let stderr = self.stderr();
            if stderr.contains("the sandbox cannot be made") {
                println!("SKIPPED: {stderr}");
                return None;
            }
            assert!(Instant::now() < deadline, "no browser becomes ready");
        }
    }

    /// A connection to the browser of a session, once it can be made.
    pub fn devtools(&self, session: &str) -> Devtools {
        self.try_devtools(session)
            .unwrap_or_else(|error| panic!("session {session}: {error}"))
    }

    pub fn try_devtools(&self, session: &str) -> Result<Devtools, String> {
        let address = self.address("binding");
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE_OF_BROWSERS)).unwrap();
        let url = format!("ws://{address}/v1/devtools/browser/{session}");
        let mut request = url.into_client_request().unwrap();
        let secret = SECRET.parse().unwrap();
        request.headers_mut().insert("usher-binding", secret);
        let (socket, _) = client(request, socket).map_err(|error| error.to_string())?;
        Ok(Devtools { socket, last: 0 })
    }
}

impl Usher {
    /// The path of browsers of `default` in the API, under one of the prefixes.
    pub fn browsers_path(&self, prefix: &str) -> String {
        let accounts: Value =
            serde_json::from_slice(&self.api_get("/client/v4/accounts").body).unwrap();
        let account = super::api::named(&accounts["result"], "default");
        let id = account["id"].as_str().unwrap();
        format!("/client/v4/accounts/{id}/{prefix}")
    }

    /// Calls the API with its token; what it says.
    pub fn api_call(&self, method: &str, path: &str) -> Value {
        let head = format!("{method} {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n");
        let answer = self.api(&head, "");
        assert_eq!(answer.status(), 200, "{method} {path}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The session of a new browser, by the API. `None`, and a word why, where the machine refuses
    /// sandboxes.
    pub fn api_acquire(&self) -> Option<String> {
        let path = self.browsers_path("browser-rendering");
        let head = format!(
            "POST {path}/devtools/browser?wait=5s HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        );
        self.acquired(|| self.api(&head, ""))
    }
}

/// A connection that speaks the browser's protocol.
pub struct Devtools {
    socket: WebSocket<TcpStream>,
    last: u64,
}

impl Devtools {
    /// A connection to a browser at `url`, or status and body of the refusal.
    pub fn at(url: &str, headers: &[(&'static str, &str)]) -> Result<Devtools, (u16, String)> {
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let uri = request.uri();
        let address = (uri.host().unwrap(), uri.port_u16().unwrap());
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE_OF_BROWSERS)).unwrap();
        match client(request, socket) {
            Ok((socket, _)) => Ok(Devtools { socket, last: 0 }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                let body = answer.body().clone().unwrap_or_default();
                let body = String::from_utf8(body).unwrap();
                Err((answer.status().as_u16(), body))
            }
            Err(error) => panic!("{url}: {error}"),
        }
    }

    /// The result of a command, of the browser or of one of its pages.
    pub fn ask(&mut self, page: Option<&str>, method: &str, params: Value) -> Value {
        let id = self.tell(page, method, params);
        let answer = self.until(|message| message["id"] == id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Draws a page; false when the connection ends before it is drawn.
    pub fn try_draw(&mut self, url: &str) -> bool {
        let mut ask = |page: Option<&str>, method: &str, params: Value| -> Option<Value> {
            let id = self.tell(page, method, params);
            let answer = self.try_until(|message| message["id"] == id)?;
            answer.get("result").cloned()
        };
        let mut draw = || {
            let made = ask(None, "Target.createTarget", json!({"url": url}))?;
            let attach = json!({"targetId": made["targetId"], "flatten": true});
            let attached = ask(None, "Target.attachToTarget", attach)?;
            let page = attached["sessionId"].as_str()?.to_owned();
            ask(Some(&page), "Page.captureScreenshot", json!({}))
        };
        draw().is_some_and(|picture| picture["data"].is_string())
    }

    fn try_until(&mut self, is: impl Fn(&Value) -> bool) -> Option<Value> {
        loop {
            if let tungstenite::Message::Text(text) = self.socket.read().ok()? {
                let message: Value = serde_json::from_str(&text).unwrap();
                if is(&message) {
                    return Some(message);
                }
            }
        }
    }

    /// Sends a command and does not wait; its number.
    pub fn tell(&mut self, page: Option<&str>, method: &str, params: Value) -> u64 {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": params});
        if let Some(page) = page {
            command["sessionId"] = page.into();
        }
        let text = tungstenite::Message::text(command.to_string());
        // Whether the other side is there is seen by what it answers.
        let _ = self.socket.send(text);
        self.last
    }

    /// All that still comes, and how the other side ended it if it said so.
    pub fn last_words(&mut self) -> (Vec<Value>, Option<(u16, String)>) {
        let mut messages = Vec::new();
        loop {
            match self.socket.read() {
                Ok(tungstenite::Message::Text(text)) => {
                    messages.push(serde_json::from_str(&text).unwrap());
                }
                Ok(tungstenite::Message::Close(frame)) => {
                    let frame = frame.map(|it| (it.code.into(), it.reason.to_string()));
                    return (messages, frame);
                }
                Ok(_) => {}
                Err(_) => return (messages, None),
            }
        }
    }

    /// The next message of which `is` is true.
    pub fn until(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.socket.read().unwrap();
            if let tungstenite::Message::Text(text) = message {
                let message: Value = serde_json::from_str(&text).unwrap();
                if is(&message) {
                    return message;
                }
            }
        }
    }

    /// What the browser calls itself.
    pub fn version(&mut self) -> String {
        let version = self.ask(None, "Browser.getVersion", json!({}));
        version["product"].as_str().unwrap().to_owned()
    }
}

/// Ends the browser hosts that a node in this folder has left, with all of their browsers.
pub fn end_hosts(folder: &Path) {
    let regions = std::fs::read_dir(folder.join("var/browsers"));
    for region in regions.into_iter().flatten().flatten() {
        let Ok(mut host) = UnixStream::connect(region.path().join("socket")) else {
            continue;
        };
        let ask = br#"{"ask":"quit"}"#;
        let length = u32::try_from(ask.len()).unwrap().to_be_bytes();
        let _ = host.write_all(&[&length[..], ask].concat());
        let _ = host.set_read_timeout(Some(PATIENCE));
        // It ends with the host.
        let _ = host.read_to_end(&mut Vec::new());
    }
}
