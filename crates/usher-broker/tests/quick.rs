//! Pages drawn on request, with real browsers, the real proxy and real servers.
//!
//! Where the machine refuses namespaces these say so and do nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use usher_browsers::png::pixel;

mod served;

use served::{Answer, OTHER, PATIENCE, SECRET, Served};

impl Answer {
    /// Status, code and message of the first fault.
    fn fault(&self) -> (u16, Option<i64>, String) {
        let told = self.json();
        assert_eq!(told["success"], false, "{told}");
        let first = &told["errors"][0];
        let message = first["message"].as_str().unwrap().to_owned();
        (self.status, first["code"].as_i64(), message)
    }

    fn used_ms(&self) -> u64 {
        self.headers["x-browser-ms-used"].parse().unwrap()
    }
}

impl Served {
    async fn draw(&self, body: &Value) -> Answer {
        self.draw_as(SECRET, body).await
    }

    /// Asks for a picture, and again while no browser is ready: on a slow machine it takes longer to
    /// start one than anybody may stand in line.
    async fn draw_as(&self, secret: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let kind = Some("application/json");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = "POST /screenshot?wait=30s";
            let answer = self.exchange(secret, line, kind, body.as_bytes()).await;
            if answer.status != 503 {
                return answer;
            }
            assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
            assert!(Instant::now() < deadline, "no browser becomes ready");
        }
    }

    /// The page that is asked for, drawn.
    async fn drawn(&self, body: &Value) -> Answer {
        let answer = self.draw(body).await;
        let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]).into_owned();
        assert_eq!(answer.status, 200, "{body}: {text}");
        answer
    }

    async fn fault(&self, body: &Value) -> (u16, Option<i64>, String) {
        self.draw(body).await.fault()
    }
}

/// A site: what is at each path, and how often each was asked for.
#[derive(Default)]
struct Site {
    asked: std::sync::Mutex<Vec<String>>,
    silent: Notify,
    /// Somebody who was not answered has gone.
    left: Notify,
}

const TALL: &str = "<!doctype html><body style='margin:0;background:rgb(4,5,6);height:40000px'>\
    <div style='position:absolute;top:39990px;width:100%;height:10px;background:rgb(9,8,7)'>";
const PLAIN: &str = "<!doctype html><body style='margin:0;background:rgb(4,5,6)'>\
    <div id=box style='position:absolute;left:100px;top:900px;width:30px;height:20px;\
    background:rgb(1,2,3)'></div>";

async fn site() -> (SocketAddr, Arc<Site>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let site = Arc::new(Site::default());
    let known = Arc::clone(&site);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&known), address));
        }
    });
    (address, site)
}

async fn serve(mut stream: TcpStream, site: Arc<Site>, address: SocketAddr) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(1..) => {}
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    site.asked.lock().unwrap().push(head);
    let (status, extra, page) = match path.as_str() {
        "/tall" => ("200 OK", String::new(), TALL.to_owned()),
        "/missing" => ("404 Not Found", String::new(), PLAIN.to_owned()),
        "/silence" => {
            site.silent.notify_one();
            // Until the other end is tired of it.
            let _ = stream.read(&mut [0; 64]).await;
            site.left.notify_one();
            return;
        }
        "/with-silence" => (
            "200 OK",
            String::new(),
            format!("{PLAIN}<img src='/silence'>"),
        ),
        "/nothing" => return,
        "/loop" => ("302 Found", "Location: /loop\r\n".to_owned(), String::new()),
        "/to-file" => (
            "302 Found",
            "Location: file:///etc/passwd\r\n".to_owned(),
            String::new(),
        ),
        "/to-refused" => (
            "302 Found",
            "Location: http://127.0.0.1:6379/x\r\n".to_owned(),
            String::new(),
        ),
        "/file-inside" => {
            let page = "<body style='margin:0'><iframe src='file:///etc/passwd'></iframe>\
                <script>try { location = 'file:///etc/passwd' } catch {}</script>";
            ("200 OK", String::new(), page.to_owned())
        }
        "/dialogs" => {
            let page = "<script>onbeforeunload = () => 'stay'; alert(1); confirm(2); prompt(3);\
                document.write('<body style=\"background:rgb(7,7,7)\">')</script>";
            ("200 OK", String::new(), page.to_owned())
        }
        "/download" => (
            "200 OK",
            "Content-Disposition: attachment\r\n".to_owned(),
            PLAIN.to_owned(),
        ),
        "/hang" => (
            "200 OK",
            String::new(),
            "<script>for (;;);</script>".to_owned(),
        ),
        "/closes" => (
            "200 OK",
            String::new(),
            "<script>window.close()</script>".to_owned(),
        ),
        "/with-other" => {
            // Another site on the same server, in a frame with a process of its own.
            let port = address.port();
            let page = format!(
                "{PLAIN}<img src='/a.png?one'><img src='/b.png'>\
                 <iframe src='http://localhost:{port}/inner'></iframe>"
            );
            ("200 OK", String::new(), page)
        }
        "/inner" => (
            "200 OK",
            String::new(),
            "<img src='/a.png?inner'><img src='/b.png?inner'>".to_owned(),
        ),
        _ => ("200 OK", String::new(), PLAIN.to_owned()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{extra}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

impl Site {
    /// Whether something that begins so was asked for; forgets all of it.
    fn was_asked(&self, starts: &[&str]) -> Vec<bool> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let told = |start: &&str| asked.iter().any(|head| head.starts_with(start));
        starts.iter().map(told).collect()
    }
}

fn size(png: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!(&png[..4], b"\x89PNG");
    (number(16), number(20))
}

const SMALL: (u32, u32) = (400, 300);

fn order(address: SocketAddr, path: &str) -> Value {
    json!({
        "url": format!("http://{address}{path}"),
        "viewport": {"width": SMALL.0, "height": SMALL.1},
        "cacheTTL": 0,
    })
}

fn with(mut order: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        order[name] = value.clone();
    }
    order
}

#[tokio::test]
async fn a_page_becomes_a_picture() {
    let Some(served) = Served::start().await else {
        return;
    };
    let (address, site) = site().await;
    let plain = || order(address, "/");
    let answer = served.drawn(&with(plain(), &json!({"nonsense": 1}))).await;
    assert_eq!(answer.headers["content-type"], "image/png");
    assert_eq!(answer.headers["usher-warning"], "unknown-fields: nonsense");
    assert!(answer.used_ms() > 0);
    assert_eq!(size(&answer.body), SMALL);
    assert_eq!(pixel(&answer.body, 10, 10), Ok([4, 5, 6]));
    // It was no session, and its time counts.
    assert_eq!(served.get("/sessions").await["sessions"], json!([]));
    assert_eq!(served.get("/history").await["history"], json!([]));
    let limits = served.get("/limits").await;
    assert_eq!(limits["activeSessions"], json!([]));
    let deadline = Instant::now() + PATIENCE;
    while served.get("/limits").await["usedBrowserTimeSeconds"] == json!(0.0) {
        assert!(Instant::now() < deadline, "its time is not counted");
    }

    for (kind, magic) in [("jpeg", &b"\xff\xd8\xff"[..]), ("webp", b"RIFF")] {
        let options = json!({"screenshotOptions": {"type": kind, "quality": 40}});
        let answer = served.drawn(&with(plain(), &options)).await;
        assert_eq!(answer.headers["content-type"], format!("image/{kind}"));
        assert!(answer.body.starts_with(magic), "{kind}");
    }
    let options = json!({"screenshotOptions": {"encoding": "base64"}});
    let answer = served.drawn(&with(plain(), &options)).await;
    assert_eq!(answer.headers["content-type"], "text/plain");
    let text = String::from_utf8(answer.body).unwrap();
    let coded = text.strip_prefix("data:image/png;base64,").unwrap();
    assert_eq!(size(&STANDARD.decode(coded).unwrap()), SMALL);

    let answer = served
        .drawn(&with(plain(), &json!({"selector": "#box"})))
        .await;
    assert_eq!(size(&answer.body), (30, 20));
    assert_eq!(pixel(&answer.body, 3, 3), Ok([1, 2, 3]));
    let options = json!({"screenshotOptions": {"fullPage": true}, "scrollPage": true});
    let answer = served.drawn(&with(plain(), &options)).await;
    assert_eq!(size(&answer.body), (400, 920));
    // What the server calls missing is a page all the same.
    let answer = served.drawn(&order(address, "/missing")).await;
    assert_eq!(pixel(&answer.body, 10, 10), Ok([4, 5, 6]));
    // Nobody answers dialogs, and nobody waits for an answer.
    let answer = served.drawn(&order(address, "/dialogs")).await;
    assert_eq!(pixel(&answer.body, 10, 10), Ok([7, 7, 7]));
    let html = json!({"html": "<body style='background:rgb(3,3,3)'>", "viewport": {"width": 50, "height": 40}});
    let answer = served.drawn(&html).await;
    assert_eq!(pixel(&answer.body, 10, 10), Ok([3, 3, 3]));

    // What is sent, and what is not.
    site.was_asked(&[]);
    let more = json!({
        "gotoOptions": {"waitUntil": ["load", "networkidle0"]},
        "setExtraHTTPHeaders": {"X-Order": "7"},
        "cookies": [{"name": "c", "value": "v"}],
        "rejectRequestPattern": ["/\\/A\\.PNG/i"],
    });
    served
        .drawn(&with(order(address, "/with-other"), &more))
        .await;
    {
        let asked = site.asked.lock().unwrap();
        let page = asked
            .iter()
            .find(|head| head.starts_with("GET /with-other "));
        let page = page.unwrap();
        for line in ["X-Order: 7", "Cookie: c=v", "Chrome/119.0.0.0"] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
        let inner = asked.iter().find(|head| head.starts_with("GET /inner "));
        let inner = inner.expect("a frame of another site");
        for line in ["X-Order: 7", "Chrome/119.0.0.0"] {
            assert!(inner.contains(line), "{line} is not in {inner}");
        }
    }
    let asked = site.was_asked(&["GET /a.png", "GET /b.png ", "GET /b.png?inner"]);
    assert_eq!(asked, [false, true, true]);
    served.stop().await;
}

#[tokio::test]
async fn a_page_that_cannot_be_drawn_says_why() {
    let Some(served) = Served::start().await else {
        return;
    };
    let (address, _site) = site().await;
    let at = |url: &str| json!({"url": url, "cacheTTL": 0});
    // A port of this machine that nobody listens on, for pages may only reach what is above.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = closed.local_addr().unwrap();
    drop(closed);
    for (order, code, message) in [
        (
            at(&format!("http://{refused}/")),
            5008,
            "net::ERR_CONNECTION_REFUSED",
        ),
        (
            at(&format!("https://{refused}/")),
            5008,
            "net::ERR_CONNECTION_REFUSED",
        ),
        (
            at("http://nobody.invalid/"),
            5005,
            "net::ERR_NAME_NOT_RESOLVED",
        ),
        (
            at("https://nobody.invalid/"),
            5005,
            "net::ERR_NAME_NOT_RESOLVED",
        ),
        (
            at("http://10.0.0.1/"),
            5010,
            "net::ERR_BLOCKED_BY_ADMINISTRATOR",
        ),
        (
            at("https://169.254.169.254/"),
            5010,
            "net::ERR_BLOCKED_BY_ADMINISTRATOR",
        ),
        (
            order(address, "/to-refused"),
            5010,
            "net::ERR_BLOCKED_BY_ADMINISTRATOR",
        ),
        (order(address, "/nothing"), 5011, "net::ERR_EMPTY_RESPONSE"),
        (order(address, "/loop"), 5003, "net::ERR_TOO_MANY_REDIRECTS"),
        (order(address, "/to-file"), 5009, "net::ERR_UNSAFE_REDIRECT"),
        (order(address, "/download"), 5002, "net::ERR_ABORTED"),
        (
            with(
                order(address, "/hang"),
                &json!({"gotoOptions": {"timeout": 400}}),
            ),
            6002,
            "Navigation timeout of 400 ms exceeded",
        ),
        (
            with(
                order(address, "/"),
                &json!({"waitForSelector": {"selector": "none", "timeout": 200}}),
            ),
            6002,
            "Waiting failed: 200 ms exceeded",
        ),
        (
            with(order(address, "/"), &json!({"selector": "none"})),
            6003,
            "no element matches selector \"none\"",
        ),
    ] {
        let answer = served.draw(&order).await;
        assert!(answer.used_ms() > 0, "{order}");
        assert_eq!(
            answer.fault(),
            (422, Some(code), message.to_owned()),
            "{order}"
        );
    }
    // One image that never answers fails what waits for it, unless the best is good enough.
    let waits = json!({"gotoOptions": {"waitUntil": "load", "timeout": 500}});
    let waits = with(order(address, "/with-silence"), &waits);
    let late = "Navigation timeout of 500 ms exceeded".to_owned();
    assert_eq!(served.fault(&waits).await, (422, Some(6002), late));
    let answer = served
        .drawn(&with(waits, &json!({"bestAttempt": true})))
        .await;
    assert_eq!(pixel(&answer.body, 10, 10), Ok([4, 5, 6]));
    // Nothing of the machine's files is seen by any road.
    for url in [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file://localhost/etc/passwd",
        "%66ile:///etc/passwd",
        "view-source:file:///etc/passwd",
    ] {
        let (status, code, _) = served.fault(&at(url)).await;
        assert_eq!((status, code), (400, Some(5010)), "{url}");
    }
    let blank = served.drawn(&order(address, "/file-inside")).await;
    let frame = json!({"html": "<body style='margin:0'><iframe src='file:///etc/passwd'></iframe>",
        "viewport": {"width": SMALL.0, "height": SMALL.1}});
    let other = served.drawn(&frame).await;
    for picture in [&blank.body, &other.body] {
        // The frame's inside: white, without a letter in it.
        for (x, y) in [(20, 12), (20, 20), (40, 12), (60, 30)] {
            let found = pixel(picture, x, y).unwrap();
            assert!(found.iter().all(|&part| part > 200), "{x} {y} {found:?}");
        }
    }
    // What is no request for a picture.
    for (line, kind, body, status) in [
        ("GET /screenshot", "application/json", "{}", 405),
        ("POST /screenshot", "text/plain", "{}", 400),
        ("POST /screenshot", "application/json", "[1]", 400),
        ("POST /screenshot", "application/json", "{\"url\":", 400),
        (
            "POST /screenshot?browser=kitesurf",
            "application/json",
            "{}",
            400,
        ),
        ("POST /pdf", "application/json", "{}", 501),
        ("POST /accessibilityTree", "application/json", "{}", 501),
    ] {
        let answer = served
            .exchange(SECRET, line, Some(kind), body.as_bytes())
            .await;
        assert_eq!(answer.fault().0, status, "{line} {body}");
    }
    let many = json!({"viewport": {"width": "x"}, "bestAttempt": 1});
    let told = served.draw(&many).await.json();
    let paths = told["errors"].as_array().unwrap().iter();
    let paths: Vec<_> = paths.map(|error| error["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 3, "{told}");
    assert!(paths.contains(&"viewport.width"), "{told}");
    // What only the browser knows to be no cookie or header is the caller's fault all the same.
    for (field, value, path) in [
        (
            "cookies",
            json!([{"name": "a", "value": "b"}, {"name": "c", "value": "\r\n"}]),
            "cookies.1",
        ),
        ("userAgent", json!("a\r\nb: c"), "userAgent"),
        (
            "setExtraHTTPHeaders",
            json!({"a b": "c"}),
            "setExtraHTTPHeaders",
        ),
    ] {
        let mut order = order(address, "/");
        order[field] = value;
        let answer = served.draw(&order).await;
        let told = answer.json();
        assert_eq!(answer.status, 400, "{told}");
        let at = told["errors"][0]["path"].as_str().unwrap();
        assert!(at.starts_with(path), "{told}");
    }
    let large = vec![b' '; (50 << 20) + 1];
    let kind = Some("application/json");
    let answer = served
        .exchange(SECRET, "POST /screenshot", kind, &large)
        .await;
    let text = "Error: request entity too large".to_owned();
    assert_eq!(answer.fault(), (413, None, text));
    served.stop().await;
}

#[tokio::test]
async fn limits_and_copies() {
    let Some(served) = Served::start().await else {
        return;
    };
    let (address, site) = site().await;
    // One in 500 s, and one who has to wait is told for how long.
    let plain = order(address, "/");
    assert_eq!(served.draw_as(OTHER, &plain).await.status, 200);
    let refused = served.draw_as(OTHER, &plain).await;
    assert_eq!(
        refused.fault(),
        (429, None, "Rate limit exceeded".to_owned())
    );
    let wait: u64 = refused.headers["retry-after"].parse().unwrap();
    assert!((1..=500).contains(&wait), "{wait}");

    // Whoever asks for the same at the same time gets the same, and so does who comes soon.
    let same = with(order(address, "/same"), &json!({"cacheTTL": 600}));
    site.was_asked(&[]);
    let (one, two) = tokio::join!(served.drawn(&same), served.drawn(&same));
    assert_eq!(one.body, two.body);
    let hits = |answer: &Answer| answer.headers.contains_key("usher-cache");
    assert!(hits(&one) != hits(&two));
    let third = served.drawn(&same).await;
    assert!(hits(&third) && third.body == one.body);
    assert_eq!(third.used_ms(), 0);
    let asked = site.asked.lock().unwrap().clone();
    let asked = asked.iter().filter(|head| head.starts_with("GET /same "));
    assert_eq!(asked.count(), 1);
    let fresh = served.drawn(&with(same, &json!({"cacheTTL": 0}))).await;
    assert!(!hits(&fresh));

    // A page that is taller than a screen can be, drawn as it is.
    let options = json!({"screenshotOptions": {"fullPage": true}});
    let answer = served.drawn(&with(order(address, "/tall"), &options)).await;
    assert_eq!(size(&answer.body), (400, 40_000));
    let clip = json!({"x": 0, "y": 39_985, "width": 20, "height": 15});
    let options = json!({"screenshotOptions": {"clip": clip}});
    let answer = served.drawn(&with(order(address, "/tall"), &options)).await;
    assert_eq!(pixel(&answer.body, 5, 2), Ok([4, 5, 6]));
    assert_eq!(pixel(&answer.body, 5, 12), Ok([9, 8, 7]));
    served.stop().await;
}

#[tokio::test]
async fn who_goes_away_and_what_dies_leaves_nothing() {
    let Some(served) = Served::start().await else {
        return;
    };
    let (address, site) = site().await;
    let hang = with(
        order(address, "/silence"),
        &json!({"gotoOptions": {"timeout": 60_000}}),
    );
    let body = hang.to_string();
    let begin = async |query: &str| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = format!("POST /screenshot?wait={query}");
            let asked = served.send(SECRET, &line, Some("application/json"), body.as_bytes());
            let stream = asked.await;
            tokio::select! {
                () = site.silent.notified() => return stream,
                // Nothing is ready yet.
                _ = stream.readable() => assert!(Instant::now() < deadline),
            }
        }
    };
    // The client: its browser is gone at once, and another takes its place.
    let stream = begin("30s").await;
    let vanished = Instant::now();
    drop(stream);
    let left = timeout(PATIENCE, site.left.notified()).await;
    left.expect("its browser works for nobody");
    println!(
        "the browser of a client that vanished left after {:?}",
        vanished.elapsed()
    );

    // The browser: its page is tried once more where there is another one, and then it is said.
    let mut stream = begin("30s").await;
    kill_browsers(&served);
    let mut killed = Instant::now();
    let mut answer = Vec::new();
    loop {
        tokio::select! {
            read = stream.read_to_end(&mut answer) => {
                read.unwrap();
                break;
            }
            () = site.silent.notified() => {
                kill_browsers(&served);
                killed = Instant::now();
            }
        }
    }
    println!("told {:?} after the last kill", killed.elapsed());
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 422 "), "{text}");
    assert!(text.contains("Page crashed!"), "{text}");

    // What is drawn now is drawn as ever.
    served.drawn(&order(address, "/")).await;
    // The host, with a page under way: tried once more, and nobody is there.
    let mut stream = begin("0s").await;
    kill(served.host());
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("an answer").unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
    assert!(text.contains("\"code\":2000"), "{text}");
    drop(served);
}

/// Kills every browser, and what started it.
fn kill_browsers(served: &Served) {
    for pid in served.browsers() {
        kill(pid);
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// So many pictures one after the other, and nothing is left of them.
#[tokio::test]
async fn pictures_in_a_row_leave_the_host_as_it_was() {
    let count: u32 = std::env::var("USHER_SCREENSHOTS").map_or(500, |count| count.parse().unwrap());
    let Some(served) = Served::start_with(2).await else {
        return;
    };
    let (address, _site) = site().await;
    served.drawn(&order(address, "/")).await;
    let base = quiet(&served, None).await;
    let began = Instant::now();
    let two = async || {
        for _ in 0..count / 2 {
            let answer = served.drawn(&order(address, "/")).await;
            assert_eq!(size(&answer.body), SMALL);
        }
    };
    tokio::join!(two(), two());
    println!("{count} pictures in {:?}", began.elapsed());
    quiet(&served, Some(base)).await;
    served.stop().await;
}

/// Processes, entries of the folder and descriptors of the host, once nothing changes.
async fn quiet(served: &Served, wanted: Option<[usize; 3]>) -> [usize; 3] {
    let look = || {
        let files = walk(served.folder.path());
        let descriptors = format!("/proc/{}/fd", served.host());
        let descriptors = fs::read_dir(descriptors).map_or(0, Iterator::count);
        [served.browsers().len(), files, descriptors]
    };
    let deadline = Instant::now() + PATIENCE;
    let mut last = (look(), Instant::now());
    loop {
        sleep(Duration::from_millis(50)).await;
        let now = look();
        if now != last.0 {
            last = (now, Instant::now());
        }
        let long = last.1.elapsed() > Duration::from_secs(2);
        match wanted {
            // A page more or less of a browser that waits is no leak; one of each picture is.
            Some(wanted) if now.iter().zip(wanted).all(|(now, base)| *now <= base + 8) => {
                return now;
            }
            None if long => return now,
            _ => {}
        }
        assert!(Instant::now() < deadline, "{now:?}, not {wanted:?}");
    }
}

fn walk(folder: &std::path::Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(
            |entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => 1 + walk(&entry.path()),
                false => 1,
            },
        )
        .sum()
}
