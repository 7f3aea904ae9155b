//! Browsers and the binding in front of them, as processes, and clients that speak to it.

#![allow(dead_code)] // each test file uses its part

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

pub(crate) const SECRET: &str = "a-secret";
pub(crate) const OTHER: &str = "a-secret-of-another";

/// For anything that a browser does on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    pub(crate) folder: TempDir,
}

/// What a request is answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// By their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

impl Served {
    /// `None`, and a word why, where no browser can be started.
    pub(crate) async fn start() -> Option<Served> {
        Served::start_with(1).await
    }

    /// With so many browsers ready.
    pub(crate) async fn start_with(ready: u32) -> Option<Served> {
        let folder = tempfile::tempdir().unwrap();
        // Browsers of a host that is root are somebody else.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_binding-under-test"))
            .arg("serve")
            .arg(folder.path())
            .arg(SECRET)
            .arg(ready.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        let Some(line) = line else {
            let mut said = String::new();
            let mut errors = child.stderr.take().unwrap();
            errors.read_to_string(&mut said).await.unwrap();
            assert!(said.contains("the sandbox cannot be made"), "{said}");
            println!("SKIPPED: {said}");
            return None;
        };
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = errors.next_line().await {
                println!("serve: {line}");
            }
        });
        Some(Served {
            child,
            address: line.strip_prefix("listening ").unwrap().to_owned(),
            folder,
        })
    }

    pub(crate) async fn ask(&self, line: &str, body: &str) -> (u16, String) {
        self.ask_as(SECRET, line, body).await
    }

    /// Status and body; `line` is a method and a path below `/v1`.
    pub(crate) async fn ask_as(&self, secret: &str, line: &str, body: &str) -> (u16, String) {
        let answer = self.exchange(secret, line, None, body.as_bytes()).await;
        (answer.status, String::from_utf8(answer.body).unwrap())
    }

    /// Asks, with a body of that type.
    pub(crate) async fn exchange(
        &self,
        secret: &str,
        line: &str,
        kind: Option<&str>,
        body: &[u8],
    ) -> Answer {
        let mut stream = self.send(secret, line, kind, body).await;
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer));
        let _ = read.await.expect(line);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{line}: {:?}", String::from_utf8_lossy(&answer)));
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        Answer {
            status: status.parse().unwrap(),
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: answer[end + 4..].to_vec(),
        }
    }

    /// Asks; whoever holds the stream may wait for the answer.
    pub(crate) async fn send(
        &self,
        secret: &str,
        line: &str,
        kind: Option<&str>,
        body: &[u8],
    ) -> TcpStream {
        let (method, path) = line.split_once(' ').unwrap();
        let kind = kind.map_or_else(String::new, |kind| format!("Content-Type: {kind}\r\n"));
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let head = format!(
            "{method} /v1{path} HTTP/1.1\r\nHost: fake.host\r\nusher-binding: {secret}\r\n\
             Connection: close\r\n{kind}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // Whoever is refused may be refused before all of it is read.
        let _ = stream.write_all(body).await;
        stream
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(&format!("GET {path}"), "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// A browser; asked for again while none is ready, as its pool has one at a time.
    pub(crate) async fn acquire(&self, line: &str) -> String {
        self.acquire_for(line, "").await
    }

    pub(crate) async fn acquire_for(&self, line: &str, wish: &str) -> String {
        self.acquire_as(SECRET, line, wish).await
    }

    pub(crate) async fn acquire_as(&self, secret: &str, line: &str, wish: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (status, body) = self.ask_as(secret, line, wish).await;
            match status {
                200 => {
                    let told: Value = serde_json::from_str(&body).unwrap();
                    return told["sessionId"].as_str().unwrap().to_owned();
                }
                503 => assert!(Instant::now() < deadline, "no browser becomes ready"),
                _ => panic!("{status} {body}"),
            }
        }
    }

    pub(crate) async fn connect(&self, path: &str) -> Result<Client, (u16, String)> {
        self.connect_as(SECRET, path).await
    }

    pub(crate) async fn connect_as(
        &self,
        secret: &str,
        path: &str,
    ) -> Result<Client, (u16, String)> {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let mut request = format!("ws://{}/v1{path}", self.address)
            .into_client_request()
            .unwrap();
        let headers = request.headers_mut();
        headers.insert("usher-binding", secret.parse().unwrap());
        let client = "@cloudflare/puppeteer@1.4.0".parse().unwrap();
        headers.insert("cf-brapi-client", client);
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, response)) => {
                assert!(response.headers().contains_key("cf-browser-session-id"));
                let seen = Vec::new();
                Ok(Client {
                    socket,
                    next: 1,
                    seen,
                })
            }
            Err(Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let body = String::from_utf8(body).unwrap();
                Err((response.status().as_u16(), body))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The processes of all browsers: what the host started, and what those did.
    pub(crate) fn browsers(&self) -> Vec<i32> {
        let mut last = below(&[self.host()]);
        let mut found = Vec::new();
        while !last.is_empty() {
            found.extend(&last);
            last = below(&last);
        }
        found
    }

    /// The process of the host.
    pub(crate) fn host(&self) -> i32 {
        let own = i32::try_from(self.child.id().unwrap()).unwrap();
        below(&[own])[0]
    }

    pub(crate) async fn stop(mut self) {
        drop(self.child.stdin.take());
        let ended = timeout(PATIENCE, self.child.wait()).await;
        assert!(ended.expect("it ends").unwrap().success());
    }
}

/// The processes that these have started.
fn below(parents: &[i32]) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let parent = fields.and_then(|fields| fields.split_whitespace().nth(1));
        parent.is_some_and(|parent| parents.iter().any(|of| of.to_string() == parent))
    };
    pids.filter(child).collect()
}

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) next: i64,
    /// What came and nobody asked for yet.
    seen: Vec<Value>,
}

impl Client {
    /// Asks over plain text messages.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.tell(id, method, params).await;
        self.until(|told| told["id"] == id).await
    }

    pub(crate) async fn tell(&mut self, id: i64, method: &str, params: Value) {
        let text = json!({"id": id, "method": method, "params": params}).to_string();
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The next message that is `wanted`, of those that came and were not asked for.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at);
        }
        let next = async {
            loop {
                let message = self.socket.next().await.expect("it goes on").unwrap();
                let Message::Text(text) = message else {
                    continue;
                };
                let told: Value = serde_json::from_str(&text).unwrap();
                if wanted(&told) {
                    return told;
                }
                self.seen.push(told);
            }
        };
        timeout(PATIENCE, next).await.expect("it comes")
    }

    /// The end that the other side says.
    pub(crate) async fn ends(mut self) -> Option<CloseFrame> {
        let ended = async {
            while let Some(Ok(message)) = self.socket.next().await {
                if let Message::Close(frame) = message {
                    return frame;
                }
            }
            None
        };
        timeout(PATIENCE, ended).await.expect("an end")
    }
}

/// A page, asked over a socket of its own.
pub(crate) struct Page {
    pub(crate) client: Client,
    pub(crate) target: String,
}

impl Page {
    /// An empty one of the session.
    pub(crate) async fn open(served: &Served, session: &str) -> Page {
        Page::open_as(served, SECRET, session).await
    }

    pub(crate) async fn open_as(served: &Served, secret: &str, session: &str) -> Page {
        let path = format!("/devtools/browser/{session}");
        let mut browser = served.connect_as(secret, &path).await.unwrap();
        let blank = json!({"url": "about:blank"});
        let made = browser.ask("Target.createTarget", blank).await;
        let target = made["result"]["targetId"].as_str().unwrap().to_owned();
        let path = format!("{path}/page/{target}");
        let client = served.connect_as(secret, &path).await.unwrap();
        Page { client, target }
    }

    /// What `expression` comes to, waited for.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.client.ask("Runtime.evaluate", params).await;
        assert!(answer["result"]["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["result"]["value"].clone()
    }
}
