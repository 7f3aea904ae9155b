//! A real browser behind the proxy: what a page may reach loads, and by no road does anything of it
//! arrive where it must not.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;
use usher_egress::{Cause, Deadlines, Door, Egress, Policy};

/// Debian's; `scripts/setup` installs it for the tests.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Far beyond what it takes.
const LONG: Duration = Duration::from_secs(60);

const PAGE: &str = r#"<!doctype html><title>page</title><script>
const inside = "INSIDE", host = inside.slice("http://".length);
const quiet = {mode: "no-cors", cache: "no-store"};
const ends = (thing, good, bad = "error") => new Promise(done => {
  thing["on" + good] = () => done(good);
  thing["on" + bad] = () => { thing.close?.(); done(bad) };
});
const shown = (tag, values) => {
  const element = Object.assign(document.createElement(tag), values);
  document.head.append(element);
  return ends(element, "load");
};
const worker = source => ends(new Worker(URL.createObjectURL(new Blob([source]))), "message");
const tries = {
  own: fetch("/own").then(answer => answer.text()),
  fetch: fetch(inside + "/fetch", quiet),
  post: fetch(inside + "/post", {...quiet, method: "POST", body: "secret"}),
  redirect: fetch("/redirect", quiet),
  literal: fetch("http://127.0.0.2:PORT/literal", quiet),
  decimal: fetch("http://2130706434:PORT/decimal", quiet),
  mapped: fetch("http://[::ffff:127.0.0.2]:PORT/mapped", quiet),
  secure: fetch("https://" + host + "/secure", quiet),
  image: shown("img", {src: inside + "/image"}),
  style: shown("link", {rel: "stylesheet", href: inside + "/style"}),
  script: shown("script", {src: inside + "/script"}),
  frame: shown("iframe", {src: inside + "/frame"}),
  socket: ends(new WebSocket("ws://" + host + "/socket"), "open"),
  events: ends(new EventSource(inside + "/events"), "open"),
  worker: worker(`fetch("${inside}/worker", {mode: "no-cors"}).then(() => postMessage(1), () => postMessage(2))`),
};
shown("link", {rel: "prefetch", href: inside + "/prefetch"});
shown("link", {rel: "dns-prefetch", href: "//dns.inside.example"});
shown("link", {rel: "preconnect", href: inside});
navigator.sendBeacon(inside + "/beacon", "secret");
try {
  const peer = new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.2:PORT"}]});
  peer.createDataChannel("x");
  peer.createOffer().then(offer => peer.setLocalDescription(offer));
} catch {}
Promise.allSettled(Object.values(tries)).then(async all => {
  document.title = "done " + all[0].value;
  await fetch("/done?" + all.map(one => one.status[0]).join(""));
});
</script>"#;

#[tokio::test]
async fn a_page_reaches_what_it_may_and_nothing_else() {
    let (inside, port) = inside();
    let (told, mut asked) = mpsc::unbounded_channel();
    let site = site(port, told).await.expect("a site");
    let egress = Egress::with(Deadlines::default(), |host| async move {
        let ip: IpAddr = match &*host {
            "site.example" => [127, 0, 0, 1].into(),
            "inside.example" => [127, 0, 0, 2].into(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(vec![ip])
    });
    let exit = egress.open();
    exit.admit(Policy {
        allow_private: vec!["127.0.0.1/32".parse().expect("a network")],
        ..Policy::default()
    })
    .expect("the first policy");
    let door = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy = door.local_addr().expect("an address");
    egress.own_listeners([proxy]);
    let served = exit.clone();
    tokio::spawn(async move { served.serve(Door::Port(door, None)).await });

    let profile = tempfile::tempdir().expect("a folder");
    let mut chromium = Command::new(CHROMIUM)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--proxy-bypass-list=<-loopback>",
            "--webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--force-webrtc-ip-handling-policy",
            "--remote-debugging-port=0",
        ])
        .arg(format!("--proxy-server=http://{proxy}"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://site.example:{}/", site.port()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{CHROMIUM}: {error}; apt-get install chromium"));
    let done = async {
        loop {
            let path = asked.recv().await.expect("the site runs");
            if path.starts_with("/done?") {
                return path;
            }
        }
    };
    let done = timeout(LONG, done).await;
    let done = done.unwrap_or_else(|_| panic!("no end of the page; {:?}", exit.refusals(0)));
    // What it may reach was reached.
    assert!(done.starts_with("/done?f"), "{done}");
    chromium.kill().await.expect("it is ours");
    match inside.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        came => panic!("something arrived: {came:?}"),
    }
    let refusals = exit.refusals(0);
    let of_inside = |cause| {
        let there = |refusal: &&usher_egress::Refusal| *refusal.host == *"inside.example";
        refusals
            .iter()
            .filter(there)
            .filter(|refusal| refusal.cause == cause)
            .count()
    };
    // Not all of them, for a browser may ask once for what it wants twice.
    assert!(of_inside(Cause::Address) >= 8, "{refusals:?}");
    assert!(exit.why("inside.example", Some(port)).is_some());
}

/// Where nothing may arrive.
fn inside() -> (StdListener, u16) {
    let listener = StdListener::bind("127.0.0.2:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// The site of the page. Tells the path of each request.
async fn site(inside: u16, told: mpsc::UnboundedSender<String>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, inside, told.clone()));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream, inside: u16, told: mpsc::UnboundedSender<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let (extra, body) = match &*path {
        "/" => {
            let page = PAGE.replace("INSIDE", &format!("http://inside.example:{inside}"));
            (String::new(), page.replace("PORT", &inside.to_string()))
        }
        "/redirect" => {
            let to = format!("Location: http://inside.example:{inside}/redirected\r\n");
            (to, String::new())
        }
        _ => (String::new(), "own".to_owned()),
    };
    let status = if extra.is_empty() {
        "200 OK"
    } else {
        "302 Found"
    };
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{extra}Connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = told.send(path);
}
