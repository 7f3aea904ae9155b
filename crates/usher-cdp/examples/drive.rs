//! Asks browsers for things and says how long they took: the load of `bench/browsers.py`.
//!
//! One line of JSON for each measurement, times in microseconds. The same client speaks to a browser
//! directly and through a node, so that what differs is what is between.

#![allow(clippy::print_stdout)] // figures are for programs

use std::error::Error;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async_with_config};

type Fault = Box<dyn Error + Send + Sync>;

const USAGE: &str = "usage: drive
    answer                                 stands for a browser on a WebSocket; says `listening ADDRESS`
    trips URL SECRET COUNT                 round trips of a small command, one after the other
    flood URL SECRET COUNT BYTES           events of a stand-in
    values URL SECRET COUNT BYTES          values out of a page, eight asked for at a time
    acquire ADDRESS SECRETS COUNT PAUSE_MS browsers, one each pause
    idle ADDRESS SECRETS COUNT             sessions that say nothing, until standard input ends
    warm URL PAGE                          a picture of a page, from a browser that runs
    cold CHROMIUM PAGE                     the same from one that is started for it
    rest ADDRESS TOKEN PATH BODY           a request to the API";

/// Values that are under way together.
const AHEAD: usize = 8;

fn main() -> Result<(), Fault> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let told = runtime.block_on(async {
        match words.as_slice() {
            ["answer"] => answer().await,
            ["trips", url, secret, count] => trips(url, secret, count.parse()?).await,
            ["flood", url, secret, count, bytes] => {
                flood(url, secret, count.parse()?, bytes.parse()?).await
            }
            ["values", url, secret, count, bytes] => {
                values(url, secret, count.parse()?, bytes.parse()?).await
            }
            ["acquire", address, secrets, count, pause] => {
                let pause = Duration::from_millis(pause.parse()?);
                acquire(address, secrets, count.parse()?, pause).await
            }
            ["idle", address, secrets, count] => idle(address, secrets, count.parse()?).await,
            ["warm", url, page] => {
                let mut client = Client::connect(url, "").await?;
                let began = Instant::now();
                let len = client.picture(page).await?;
                Ok(json!({"us": micros(began), "bytes": len}))
            }
            ["cold", chromium, page] => cold(chromium, page).await,
            ["rest", address, token, path, body] => rest(address, token, path, body).await,
            _ => Err(USAGE.into()),
        }
    })?;
    println!("{told}");
    Ok(())
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The shares of what was measured that people ask for.
fn shares(mut times: Vec<u64>) -> Value {
    times.sort_unstable();
    let at = |share: f64| times.get(((times.len().max(1) - 1) as f64 * share) as usize);
    json!({
        "count": times.len(), "p50_us": at(0.5), "p95_us": at(0.95), "p99_us": at(0.99),
        "max_us": at(1.0),
    })
}

/// A connection to a browser or to one page of it.
struct Client {
    socket: WebSocketStream<TcpStream>,
    next: u64,
}

impl Client {
    async fn connect(url: &str, secret: &str) -> Result<Client, Fault> {
        let mut request = url.into_client_request()?;
        if !secret.is_empty() {
            request
                .headers_mut()
                .insert("usher-binding", secret.parse()?);
        }
        let authority = request.uri().authority().ok_or("no address")?.to_string();
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        // As clients on Node have it.
        let config = WebSocketConfig::default()
            .max_message_size(Some(256 << 20))
            .max_frame_size(Some(256 << 20));
        let (socket, _) = client_async_with_config(request, stream, Some(config)).await?;
        Ok(Client { socket, next: 1 })
    }

    async fn say(&mut self, part: &str, method: &str, params: &Value) -> Result<u64, Fault> {
        let id = self.next;
        self.next += 1;
        let text = match part {
            "" => format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#),
            part => format!(
                r#"{{"id":{id},"method":"{method}","params":{params},"sessionId":"{part}"}}"#
            ),
        };
        self.socket.send(Message::text(text)).await?;
        Ok(id)
    }

    async fn hear(&mut self) -> Result<Utf8Bytes, Fault> {
        loop {
            match self.socket.next().await.ok_or("the connection ended")?? {
                Message::Text(text) => return Ok(text),
                Message::Close(close) => return Err(format!("closed: {close:?}").into()),
                _ => {}
            }
        }
    }

    async fn ask(&mut self, part: &str, method: &str, params: Value) -> Result<Value, Fault> {
        let id = self.say(part, method, &params).await?;
        let begins = format!(r#"{{"id":{id},"#);
        loop {
            let text = self.hear().await?;
            if text.starts_with(&begins) {
                let mut answer: Value = serde_json::from_str(&text)?;
                if let Some(fault) = answer.get("error") {
                    return Err(format!("{method}: {fault}").into());
                }
                return Ok(answer["result"].take());
            }
        }
    }

    async fn page(&mut self) -> Result<(String, String), Fault> {
        let made = self
            .ask("", "Target.createTarget", json!({"url": "about:blank"}))
            .await?;
        let target = made["targetId"].as_str().ok_or("no target")?.to_owned();
        let params = json!({"targetId": target, "flatten": true});
        let attached = self.ask("", "Target.attachToTarget", params).await?;
        let part = attached["sessionId"].as_str().ok_or("no part")?.to_owned();
        Ok((target, part))
    }

    /// The steps that a person would take for a picture of a page.
    async fn picture(&mut self, page: &str) -> Result<usize, Fault> {
        let (target, part) = self.page().await?;
        let size = json!({"width": 1920, "height": 1080, "deviceScaleFactor": 1, "mobile": false});
        self.ask(&part, "Emulation.setDeviceMetricsOverride", size)
            .await?;
        self.ask(&part, "Page.enable", json!({})).await?;
        let navigated = self
            .say(&part, "Page.navigate", &json!({"url": page}))
            .await?;
        let (mut answered, mut loaded) = (false, false);
        while !(answered && loaded) {
            let text = self.hear().await?;
            answered |= text.starts_with(&format!(r#"{{"id":{navigated},"#));
            loaded |= answered && text.starts_with(r#"{"method":"Page.loadEventFired""#);
        }
        let shot = self
            .ask(&part, "Page.captureScreenshot", json!({"format": "png"}))
            .await?;
        let data = shot["data"].as_str().ok_or("no picture")?;
        let png = base64::engine::general_purpose::STANDARD.decode(data)?;
        self.ask("", "Target.closeTarget", json!({"targetId": target}))
            .await?;
        Ok(png.len())
    }
}

/// Answers on a WebSocket as a browser would that costs nothing, with nobody between.
async fn answer() -> Result<Value, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut socket = accept_async(stream).await?;
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            let command: Value = serde_json::from_str(&text)?;
            let result = json!({"product": "StandIn/1.0", "userAgent": "StandIn"});
            let answer = format!(r#"{{"id":{},"result":{result}}}"#, command["id"]);
            socket.send(Message::text(answer)).await?;
            if command["method"] == "Stream.start" {
                let params = &command["params"];
                let bytes = params["bytes"].as_u64().unwrap_or(0);
                let data = "x".repeat(usize::try_from(bytes)?);
                let event = format!(r#"{{"method":"Stream.part","params":{{"data":"{data}"}}}}"#);
                let event = Utf8Bytes::from(event);
                for _ in 0..params["count"].as_u64().unwrap_or(0) {
                    socket.send(Message::Text(event.clone())).await?;
                }
            }
        }
    }
}

async fn trips(url: &str, secret: &str, count: usize) -> Result<Value, Fault> {
    let mut client = Client::connect(url, secret).await?;
    let mut times = Vec::with_capacity(count);
    // The first tenth warms up.
    for turn in 0..count + count / 10 {
        let began = Instant::now();
        client.ask("", "Browser.getVersion", json!({})).await?;
        if turn >= count / 10 {
            times.push(micros(began));
        }
    }
    Ok(shares(times))
}

async fn flood(url: &str, secret: &str, count: usize, bytes: usize) -> Result<Value, Fault> {
    let mut client = Client::connect(url, secret).await?;
    let params = json!({"count": count, "bytes": bytes});
    client.ask("", "Stream.start", params).await?;
    let began = Instant::now();
    let mut came = 0;
    for _ in 0..count {
        came += client.hear().await?.len();
    }
    Ok(json!({"bytes": came, "us": micros(began)}))
}

async fn values(url: &str, secret: &str, count: usize, bytes: usize) -> Result<Value, Fault> {
    let mut client = Client::connect(url, secret).await?;
    let (target, part) = client.page().await?;
    let params = json!({
        "expression": format!("globalThis.v ??= 'x'.repeat({bytes})"), "returnByValue": true,
    });
    client
        .ask(&part, "Runtime.evaluate", params.clone())
        .await?;
    let began = Instant::now();
    let (mut asked, mut came, mut answered) = (0, 0, 0);
    while answered < count {
        while asked < count && asked - answered < AHEAD {
            client.say(&part, "Runtime.evaluate", &params).await?;
            asked += 1;
        }
        let text = client.hear().await?;
        if text.starts_with(r#"{"id":"#) {
            answered += 1;
            came += text.len();
        }
    }
    let took = micros(began);
    client
        .ask("", "Target.closeTarget", json!({"targetId": target}))
        .await?;
    Ok(json!({"bytes": came, "us": took}))
}

/// Status and body.
async fn request(address: &str, head: &str, body: &str) -> Result<(u16, Vec<u8>), Fault> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let text = format!(
        "{head}\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or("no answer")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, answer.split_off(end + 4)))
}

/// A browser, or the status of the refusal.
async fn take(address: &str, secret: &str) -> Result<Result<String, u16>, Fault> {
    let head = format!("POST /v1/devtools/browser HTTP/1.1\r\nusher-binding: {secret}");
    let (status, body) = request(address, &head, "").await?;
    if status != 200 {
        return Ok(Err(status));
    }
    let told: Value = serde_json::from_slice(&body)?;
    Ok(Ok(told["sessionId"]
        .as_str()
        .ok_or("no session")?
        .to_owned()))
}

async fn acquire(
    address: &str,
    secrets: &str,
    count: usize,
    pause: Duration,
) -> Result<Value, Fault> {
    let secrets: Vec<&str> = secrets.split(',').collect();
    let (mut times, mut refused) = (Vec::new(), 0);
    let mut ticks = tokio::time::interval(pause);
    for turn in 0..count {
        ticks.tick().await;
        let secret = secrets[turn % secrets.len()];
        let began = Instant::now();
        match take(address, secret).await? {
            Ok(session) => {
                times.push(micros(began));
                let head = format!(
                    "DELETE /v1/devtools/browser/{session} HTTP/1.1\r\nusher-binding: {secret}"
                );
                request(address, &head, "").await?;
            }
            Err(_) => refused += 1,
        }
    }
    let mut told = shares(times);
    told["refused"] = refused.into();
    Ok(told)
}

async fn idle(address: &str, secrets: &str, count: usize) -> Result<Value, Fault> {
    let secrets: Vec<&str> = secrets.split(',').collect();
    let mut kept = Vec::new();
    while kept.len() < count {
        let secret = secrets[kept.len() % secrets.len()];
        let session = match take(address, secret).await? {
            Ok(session) => session,
            // Its pool starts the next ones.
            Err(503 | 429) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(status) => return Err(format!("acquire: {status}").into()),
        };
        let url = format!("ws://{address}/v1/devtools/browser/{session}");
        let mut client = Client::connect(&url, secret).await?;
        client.ask("", "Browser.getVersion", json!({})).await?;
        kept.push(client);
    }
    println!("{}", json!({"sessions": kept.len()}));
    tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await??;
    Ok(json!({"sessions": kept.len()}))
}

/// The browser's own words for where it is spoken to.
async fn listens(browser: &mut Child) -> Result<String, Fault> {
    let said = browser.stderr.take().ok_or("no standard error")?;
    let mut lines = BufReader::new(said).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = line.strip_prefix("DevTools listening on ") {
            return Ok(url.to_owned());
        }
    }
    Err("the browser ended".into())
}

async fn cold(chromium: &str, page: &str) -> Result<Value, Fault> {
    let profile = std::env::temp_dir().join(format!("usher-bench-{}", std::process::id()));
    let began = Instant::now();
    let mut browser = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-port=0",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("about:blank")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let url = listens(&mut browser).await?;
    let len = Client::connect(&url, "").await?.picture(page).await?;
    browser.kill().await?;
    let took = micros(began);
    let _ = std::fs::remove_dir_all(&profile);
    Ok(json!({"us": took, "bytes": len}))
}

async fn rest(address: &str, token: &str, path: &str, body: &str) -> Result<Value, Fault> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json"
    );
    let began = Instant::now();
    let (status, answer) = request(address, &head, body).await?;
    let took = micros(began);
    if status != 200 {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&answer)).into());
    }
    Ok(json!({"us": took, "bytes": answer.len()}))
}
