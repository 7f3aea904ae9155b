//! Every road by which a page, or whoever drives it, could get where nobody may: through the binding,
//! a real browser in its sandbox, and the proxy. Nothing arrives.
//!
//! Where the machine refuses namespaces these say so and do nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod served;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, UdpSocket};

use serde_json::json;
use served::{OTHER, PATIENCE, Page, Served};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// What a page has of its own. `INSIDE` is where nothing may arrive, by a name; `LITERAL` is its
/// address and port.
const PAGE: &str = r#"<!doctype html><title>page</title><body><script>
const inside = "http://INSIDE", literal = "LITERAL", port = literal.split(":")[1];
const quiet = {mode: "no-cors", cache: "no-store"};
const ends = (thing, good, bad = "error") => new Promise(done => {
  thing["on" + good] = () => done(good);
  thing["on" + bad] = () => { thing.close?.(); done(bad) };
});
const shown = (tag, values) => {
  const element = Object.assign(document.createElement(tag), values);
  document.body.append(element);
  return ends(element, "load");
};
const source = text => URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
const reply = `.then(() => postMessage(1), () => postMessage(2))`;
const spelled = [
  `INSIDE`, `LITERAL`, `2130706434:${port}`, `0x7f000002:${port}`, `0x7f.2:${port}`, `0177.0.0.02:${port}`,
  `127.2:${port}`, `127.0.0.2.:${port}`, `[::ffff:127.0.0.2]:${port}`, `[::ffff:7f00:2]:${port}`,
  `[::7f00:2]:${port}`, `[64:ff9b::7f00:2]:${port}`, `[2002:7f00:2::1]:${port}`, `INSIDE`.replace(":", ".:"),
  `both.usher.test:${port}`, `mapped.usher.test:${port}`, `\u{ff11}27.0.0.2:${port}`,
];
const tries = {
  ...Object.fromEntries(spelled.map(place => [place, fetch("http://" + place + "/spelled", quiet)])),
  tls: fetch("https://" + literal + "/tls", quiet),
  post: fetch(inside + "/post", {...quiet, method: "POST", body: "secret"}),
  alive: fetch(inside + "/alive", {...quiet, keepalive: true}),
  redirect: fetch("/redirect", quiet),
  xhr: new Promise(done => {
    const asked = new XMLHttpRequest();
    asked.onloadend = done;
    asked.open("PUT", inside + "/xhr");
    asked.send("secret");
  }),
  module: import(inside + "/module.js"),
  image: shown("img", {src: inside + "/image"}),
  style: shown("link", {rel: "stylesheet", href: inside + "/style"}),
  preload: shown("link", {rel: "preload", as: "fetch", href: inside + "/preload"}),
  script: shown("script", {src: inside + "/script"}),
  object: shown("object", {data: inside + "/object"}),
  embed: shown("embed", {src: inside + "/embed"}),
  video: ends(Object.assign(document.createElement("video"), {src: inside + "/video"}), "canplay"),
  frame: shown("iframe", {src: inside + "/frame"}),
  meta: shown("iframe", {srcdoc: `<meta http-equiv=refresh content="0;url=${inside}/meta">`}),
  moved: shown("iframe", {srcdoc: `<script>location = "${inside}/moved"<\/script>`}),
  form: shown("iframe", {srcdoc: `<form method=post action="${inside}/form"><input name=a></form><script>document.forms[0].submit()<\/script>`}),
  data: shown("iframe", {src: `data:text/html,<form method=post action="${inside}/data"><input name=a></form><script>document.forms[0].submit()<\/script>`}),
  redirected: shown("iframe", {src: "/redirect"}),
  socket: ends(new WebSocket("ws://INSIDE/socket"), "open"),
  sockets: ends(new WebSocket("wss://" + literal + "/sockets"), "open"),
  events: ends(new EventSource(inside + "/events"), "open"),
  worker: ends(new Worker(source(`fetch("${inside}/worker", {mode: "no-cors"})${reply}`)), "message"),
  imports: ends(new Worker(source(`try { importScripts("${inside}/imports") } catch {} postMessage(1)`)), "message"),
  service: navigator.serviceWorker.register("/service.js").then(() => navigator.serviceWorker.ready)
    .then(there => new Promise(done => {
      navigator.serviceWorker.onmessage = done;
      there.active.postMessage(inside + "/service");
    })),
};
const style = document.createElement("style");
style.textContent = `@import "${inside}/import"; @font-face {font-family: f; src: url(${inside}/font)} body {font-family: f; background: url(${inside}/background)}`;
document.head.append(style);
for (const rel of ["icon", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "prerender", "manifest"])
  shown("link", {rel, href: inside + "/" + rel});
shown("script", {type: "speculationrules", textContent: JSON.stringify({prefetch: [{urls: [inside + "/rules"]}], prerender: [{urls: [inside + "/rules"]}]})});
navigator.sendBeacon(inside + "/beacon", "secret");
window.open(inside + "/window");
document.body.append(Object.assign(document.createElement("a"), {href: "/own", ping: inside + "/ping", target: "_blank", id: "a"}));
document.getElementById("a").click();
try {
  const servers = ["stun:" + literal, "turn:" + literal + "?transport=udp", "turn:" + literal + "?transport=tcp"];
  const peer = new RTCPeerConnection({iceServers: [{urls: servers, username: "u", credential: "c"}]});
  peer.createDataChannel("x");
  peer.createOffer().then(offer => peer.setLocalDescription(offer));
} catch {}
try { tries.quic = new WebTransport("https://" + literal + "/quic").ready } catch {}
window.done = Promise.allSettled(Object.values(tries)).then(() => "done");
</script>"#;

const SERVICE: &str = r#"onmessage = asked => fetch(asked.data, {mode: "no-cors"}).then(
  () => asked.source.postMessage(1), () => asked.source.postMessage(2));"#;

/// Where nothing may arrive, by TCP or UDP.
struct Inside {
    tcp: StdListener,
    udp: UdpSocket,
    address: SocketAddr,
}

impl Inside {
    fn open() -> Inside {
        // The port of one may be taken for the other.
        let (tcp, udp) = std::iter::repeat_with(|| {
            let tcp = StdListener::bind("127.0.0.2:0").unwrap();
            let udp = UdpSocket::bind(tcp.local_addr().unwrap());
            (tcp, udp)
        })
        .take(100)
        .find_map(|(tcp, udp)| Some((tcp, udp.ok()?)))
        .expect("a port that is free for both");
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        let address = tcp.local_addr().unwrap();
        Inside { tcp, udp, address }
    }

    fn is_untouched(&self, after: &str) {
        match self.tcp.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            came => panic!("{after}: a connection arrived: {came:?}"),
        }
        match self.udp.recv_from(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            came => panic!("{after}: a datagram arrived: {came:?}"),
        }
    }
}

/// The site that may be reached. Tells the first line of each request.
async fn site(inside: SocketAddr) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, inside, told.clone()));
        }
    });
    (address, asked)
}

async fn answer(mut stream: TcpStream, inside: SocketAddr, told: mpsc::UnboundedSender<String>) {
    let mut head = vec![0; 8192];
    let mut len = 0;
    while !head[..len].windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut head[len..]).await {
            Ok(count @ 1..) => len += count,
            // What is no request is told of too.
            _ => break,
        }
        if head[0] == 0x16 {
            break;
        }
    }
    let head = String::from_utf8_lossy(&head[..len]).into_owned();
    let line = head.lines().next().unwrap_or_default().to_owned();
    let path = line.split(' ').nth(1).unwrap_or_default();
    let by_name = format!("inside.usher.test:{}", inside.port());
    let page = || {
        PAGE.replace("INSIDE", &by_name)
            .replace("LITERAL", &inside.to_string())
    };
    let (status, extra, kind, body) = match path {
        "/page" => ("200 OK", String::new(), "text/html", page()),
        "/service.js" => (
            "200 OK",
            String::new(),
            "text/javascript",
            SERVICE.to_owned(),
        ),
        "/redirect" => (
            "302 Found",
            format!("Location: http://{by_name}/redirected\r\n"),
            "text/html",
            String::new(),
        ),
        "/to-file" => (
            "302 Found",
            "Location: file:///etc/passwd\r\n".to_owned(),
            "text/html",
            String::new(),
        ),
        "/refresh" => (
            "200 OK",
            format!("Refresh: 0;url=http://{by_name}/refreshed\r\n"),
            "text/html",
            "own".to_owned(),
        ),
        _ => ("200 OK", String::new(), "text/html", "own".to_owned()),
    };
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{extra}Connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = told.send(line);
}

/// Goes there and waits for what comes of it: the words of the answer that a page shows.
async fn go(page: &mut Page, url: &str) -> String {
    let went = page.client.ask("Page.navigate", json!({"url": url})).await;
    if let Some(text) = went["error"]["message"].as_str() {
        return text.to_owned();
    }
    if let Some(text) = went["result"]["errorText"].as_str() {
        return text.to_owned();
    }
    let text = "new Promise(done => { const shown = () => done(document.documentElement.innerText); \
                document.readyState == 'complete' ? shown() : addEventListener('load', shown) })";
    page.value(text)
        .await
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

const DENIED: &str = "lies where pages must not reach";

#[tokio::test]
async fn nothing_arrives_by_any_road_that_a_page_has() {
    let Some(served) = Served::start().await else {
        return;
    };
    let inside = Inside::open();
    let (site, mut asked) = site(inside.address).await;
    let session = served.acquire("POST /devtools/browser").await;
    let mut page = Page::open(&served, &session).await;
    // Literal, so that it is where service workers may be.
    go(&mut page, &format!("http://{site}/page")).await;
    assert_eq!(page.value("window.done").await, "done");
    let controlled = page.value("navigator.serviceWorker.getRegistration().then(there => !!there)");
    assert_eq!(controlled.await, true);
    let mut reached = std::iter::from_fn(|| asked.try_recv().ok());
    assert!(reached.any(|line| line.starts_with("GET /service.js")));
    inside.is_untouched("the page");

    // Each step of a chain of redirects is a request of its own.
    for path in ["redirect", "refresh"] {
        go(&mut page, &format!("http://{site}/{path}")).await;
        inside.is_untouched(path);
    }
    // A name that changes its mind: what was judged is what is connected to.
    let port = inside.address.port();
    for _ in 0..4 {
        let shown = go(&mut page, &format!("http://rebind.usher.test:{port}/")).await;
        let refused = shown.contains(DENIED) || shown.contains("connection was refused");
        assert!(refused, "{shown}");
        inside.is_untouched("a name that changes");
    }
    served.stop().await;
}

#[tokio::test]
async fn nothing_arrives_by_any_road_that_a_client_has() {
    let Some(served) = Served::start().await else {
        return;
    };
    let inside = Inside::open();
    let (site, mut asked) = site(inside.address).await;
    let port = inside.address.port();
    let session = served.acquire("POST /devtools/browser").await;
    let path = format!("/devtools/browser/{session}");
    let mut page = Page::open(&served, &session).await;
    let mut browser = served.connect(&path).await.unwrap();
    let by_name = format!("http://inside.usher.test:{port}");

    for host in [
        "127.0.0.2",
        "2130706434",
        "0x7f000002",
        "0177.0.0.2",
        "127.2",
        "127.0.0.2.",
        "[::ffff:127.0.0.2]",
        "inside.usher.test",
        "INSIDE.usher.test.",
        "both.usher.test",
        "mapped.usher.test",
        "%69nside.usher.test",
    ] {
        let shown = go(&mut page, &format!("http://{host}:{port}/")).await;
        assert!(shown.contains(DENIED), "{host}: {shown}");
    }
    let shown = go(&mut page, &format!("https://127.0.0.2:{port}/")).await;
    assert!(
        shown.contains("net::ERR_TUNNEL_CONNECTION_FAILED"),
        "{shown}"
    );
    inside.is_untouched("Page.navigate");

    let create = json!({"url": format!("{by_name}/created")});
    assert!(browser.ask("Target.createTarget", create).await["result"]["targetId"].is_string());
    let url = format!("PUT {path}/json/new?url={by_name}/new");
    assert_eq!(served.ask(&url, "").await.0, 200);
    // A way out of one's own: it is taken away, and leads nowhere anyway.
    let proxied =
        json!({"proxyServer": format!("http://{}", inside.address), "proxyBypassList": "*"});
    let context = browser.ask("Target.createBrowserContext", proxied).await;
    let context = context["result"]["browserContextId"].as_str().unwrap();
    let create = json!({"url": format!("http://{site}/proxied"), "browserContextId": context});
    browser.ask("Target.createTarget", create).await;
    let came = async {
        while let Some(line) = asked.recv().await {
            if line.starts_with("GET /proxied") {
                return;
            }
        }
    };
    timeout(PATIENCE, came).await.expect("it goes by the proxy");

    // What a client may have a page fetch.
    go(&mut page, &format!("http://{site}/own")).await;
    let script = format!(
        "new Promise(done => {{ const tag = document.createElement('script'); tag.src = '{by_name}/tag'; \
         tag.onload = tag.onerror = () => done('over'); document.head.append(tag) }})"
    );
    assert_eq!(page.value(&script).await, "over");
    let frames = page.client.ask("Page.getFrameTree", json!({})).await;
    let frame = frames["result"]["frameTree"]["frame"]["id"].clone();
    for url in ["file:///etc/passwd", "chrome://version", "FILE:/etc/passwd"] {
        let load = json!({"frameId": frame, "url": url, "options": {"disableCache": true, "includeCredentials": true}});
        let told = page.client.ask("Network.loadNetworkResource", load).await;
        assert!(told["error"]["message"].is_string(), "{told}");
    }
    let load = json!({"frameId": frame, "url": format!("{by_name}/loaded"), "options": {"disableCache": true, "includeCredentials": true}});
    let told = page.client.ask("Network.loadNetworkResource", load).await;
    assert_ne!(told["result"]["resource"]["httpStatusCode"], 200, "{told}");
    let print = json!({"displayHeaderFooter": true, "headerTemplate": format!("<img src='{by_name}/header'>"), "footerTemplate": format!("<iframe src='{by_name}/footer'></iframe>")});
    assert!(page.client.ask("Page.printToPDF", print).await["result"]["data"].is_string());
    inside.is_untouched("what a client has pages fetch");

    // A request that is held up and let go elsewhere.
    page.client.ask("Fetch.enable", json!({})).await;
    for (url, refused) in [
        (format!("{by_name}/continued"), false),
        ("file:///etc/passwd".to_owned(), true),
        ("view-source:file:///etc/passwd".to_owned(), true),
    ] {
        let fetched = json!({"expression": "fetch('/held', {cache: 'no-store'}).then(answer => answer.text(), String)", "awaitPromise": true, "returnByValue": true});
        page.client.tell(1000, "Runtime.evaluate", fetched).await;
        let paused = page
            .client
            .until(|told| told["method"] == "Fetch.requestPaused")
            .await;
        let request = paused["params"]["requestId"].clone();
        let go_on = json!({"requestId": request, "url": url});
        let told = page.client.ask("Fetch.continueRequest", go_on).await;
        assert_eq!(told["error"].is_object(), refused, "{told}");
        if refused {
            page.client
                .ask(
                    "Fetch.failRequest",
                    json!({"requestId": request, "errorReason": "Aborted"}),
                )
                .await;
        }
        let got = page.client.until(|told| told["id"] == 1000).await;
        assert!(!got.to_string().contains("root:"), "{got}");
    }
    inside.is_untouched("Fetch.continueRequest");
    served.stop().await;
}

#[tokio::test]
async fn files_and_the_browsers_own_pages_stay_shut() {
    let Some(served) = Served::start().await else {
        return;
    };
    let inside = Inside::open();
    let (site, _asked) = site(inside.address).await;
    let session = served.acquire("POST /devtools/browser").await;
    let path = format!("/devtools/browser/{session}");
    let mut page = Page::open(&served, &session).await;
    let mut browser = served.connect(&path).await.unwrap();
    for url in [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
        "file:etc/passwd",
        "file://localhost/etc/passwd",
        "file:///etc/pass%77d",
        "\tfi\nle:///etc/passwd",
        " \u{1}file:///etc/passwd",
        "view-source:file:///etc/passwd",
        "View-Source:http://example.com/",
        "chrome://version",
        "chrome://net-export",
        "chrome-untrusted://x",
        "devtools://devtools/bundled/inspector.html",
        "chrome-extension://x/y",
        "filesystem:http://a/temporary/x",
        "javascript:alert(1)",
        "about:version",
        "about:flags",
    ] {
        let refused = "Cannot navigate to this URL";
        assert_eq!(go(&mut page, url).await, refused, "{url:?}");
        let told = browser
            .ask("Target.createTarget", json!({"url": url}))
            .await;
        assert_eq!(told["error"]["message"], refused, "{url:?}");
        let escaped: String = url.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let asked = served
            .ask(&format!("PUT {path}/json/new?url={escaped}"), "")
            .await;
        assert_eq!(asked, (400, refused.to_owned()), "{url:?}");
    }
    // By a redirect, from a page, and with all that a client may give a script.
    let shown = go(&mut page, &format!("http://{site}/to-file")).await;
    assert!(shown.contains("net::ERR_UNSAFE_REDIRECT"), "{shown}");
    go(&mut page, &format!("http://{site}/own")).await;
    let frames = page.client.ask("Page.getFrameTree", json!({})).await;
    let frame = frames["result"]["frameTree"]["frame"]["id"].clone();
    let world = json!({"frameId": frame, "grantUniveralAccess": true});
    let world = page.client.ask("Page.createIsolatedWorld", world).await;
    let context = world["result"]["executionContextId"].clone();
    let script = r#"(async () => {
      let seen = "";
      for (const url of ["file:///etc/passwd", "FILE://localhost/etc/passwd", "view-source:file:///etc/passwd", "chrome://version"]) {
        await fetch(url).then(async answer => seen += await answer.text(), () => {});
        const asked = new XMLHttpRequest();
        await new Promise(done => {
          asked.onloadend = done;
          try { asked.open("GET", url); asked.send() } catch { done() }
        });
        try { seen += asked.responseText } catch {}
        for (const tag of ["iframe", "object", "embed"]) {
          const framed = document.createElement(tag);
          const loaded = new Promise(done => { framed.onload = framed.onerror = done; setTimeout(done, 500) });
          framed[tag == "object" ? "data" : "src"] = url;
          document.body.append(framed);
          await loaded;
          try { seen += framed.contentDocument.documentElement.innerText } catch {}
        }
        const opened = window.open(url);
        try { seen += opened.document.documentElement.innerText } catch {}
        try { opened.location = url } catch {}
      }
      return "seen: " + seen;
    })()"#;
    let evaluate = json!({"expression": script, "contextId": context, "awaitPromise": true, "returnByValue": true});
    let seen = page.client.ask("Runtime.evaluate", evaluate).await;
    let seen = seen["result"]["result"]["value"]
        .as_str()
        .unwrap_or_else(|| panic!("{seen}"));
    assert!(
        seen.starts_with("seen: ") && !seen.contains("root:"),
        "{seen}"
    );
    let tree = page
        .client
        .ask("Page.getResourceTree", json!({}))
        .await
        .to_string();
    assert!(!tree.contains("\"file:"), "{tree}");
    let snapshot = page
        .client
        .ask("Page.captureSnapshot", json!({}))
        .await
        .to_string();
    assert!(!snapshot.contains("root:"), "{snapshot}");
    // Whatever was opened is at no such place, or gone.
    let targets = served.get(&format!("{path}/json/list")).await.to_string();
    for scheme in ["file:", "view-source:", "chrome:", "devtools:"] {
        assert!(!targets.contains(&format!("\"{scheme}")), "{targets}");
    }
    // What reaches out of a browser is not there.
    for (method, params) in [
        ("Browser.crash", json!({})),
        ("Target.openDevTools", json!({"targetId": page.target})),
        (
            "Target.exposeDevToolsProtocol",
            json!({"targetId": page.target}),
        ),
        ("Target.setRemoteLocations", json!({"locations": []})),
        ("Tethering.bind", json!({"port": 9000})),
        ("Extensions.loadUnpacked", json!({"path": "/"})),
        (
            "DOM.setFileInputFiles",
            json!({"files": ["/etc/passwd"], "nodeId": 1}),
        ),
    ] {
        let told = browser.ask(method, params).await;
        assert!(told["error"].is_object(), "{method}: {told}");
    }
    let told = browser
        .ask("Browser.getBrowserCommandLine", json!({}))
        .await;
    assert_eq!(told["result"], json!({"arguments": []}));
    served.stop().await;
}

#[tokio::test]
async fn what_nothing_opens_stays_shut_where_all_is_open() {
    let Some(served) = Served::start().await else {
        return;
    };
    let inside = Inside::open();
    let (site, _asked) = site(inside.address).await;
    let session = served.acquire_as(OTHER, "POST /devtools/browser", "").await;
    let mut page = Page::open_as(&served, OTHER, &session).await;
    // Everything is open to this account,
    assert_eq!(go(&mut page, &format!("http://{site}/own")).await, "own");
    // but where clouds keep what only machines should know, and where Usher itself listens.
    let port = served.address.rsplit_once(':').unwrap().1;
    for place in [
        "169.254.169.254/latest/meta-data/".to_owned(),
        "2852039166/".to_owned(),
        "0xa9fea9fe/".to_owned(),
        "[::ffff:169.254.169.254]/".to_owned(),
        "[fd00:ec2::254]/".to_owned(),
        "metadata.usher.test/".to_owned(),
        "169.254.170.2/".to_owned(),
        "100.100.100.200/".to_owned(),
        format!("127.0.0.1:{port}/v1/sessions"),
        format!("127.1.2.3:{port}/v1/sessions"),
        format!("localhost:{port}/v1/sessions"),
        format!("[::1]:{port}/v1/sessions"),
        format!("[::ffff:7f00:1]:{port}/v1/sessions"),
        format!("site.usher.test:{port}/v1/sessions"),
    ] {
        let shown = go(&mut page, &format!("http://{place}")).await;
        assert!(shown.contains(DENIED), "{place}: {shown}");
    }
    // Ports on which others take commands.
    for port in [22, 25, 2375, 5432, 6379, 9222] {
        let shown = go(&mut page, &format!("http://127.0.0.1:{port}/")).await;
        let refused = shown.contains("port is denied") || shown.contains("net::ERR_UNSAFE_PORT");
        assert!(refused, "{port}: {shown}");
    }
    served.stop().await;
}

#[tokio::test]
async fn guardrails_are_seen_by_pages_over_tls_too() {
    let Some(served) = Served::start().await else {
        return;
    };
    let inside = Inside::open();
    let (site, mut asked) = site(inside.address).await;
    let wish = r#"{"guardrails":{"allowedDomains":["127.0.0.1"]}}"#;
    let session = served.acquire_for("POST /devtools/browser", wish).await;
    let mut page = Page::open(&served, &session).await;
    let status = "performance.getEntriesByType('navigation')[0].responseStatus";
    for url in ["https://other.example/", "http://other.example/"] {
        go(&mut page, url).await;
        assert_eq!(page.value(status).await, 403, "{url}");
    }
    // As a page sees it that is of the place itself, with its fields.
    let seen = "fetch('/', {cache: 'no-store'}).then(answer => [answer.status, answer.headers.get('cf-mitigated'), answer.headers.get('cf-brapi-guardrails-reason'), answer.headers.get('content-type')].join())";
    let told = "403,guardrails,not-in-allowlist,text/plain; charset=utf-8";
    go(&mut page, "https://other.example/").await;
    assert_eq!(page.value(seen).await, told);
    // What is allowed goes its way: the site is no speaker of TLS, and hears it.
    while asked.try_recv().is_ok() {}
    go(&mut page, &format!("https://{site}/")).await;
    let heard = timeout(PATIENCE, asked.recv()).await.unwrap().unwrap();
    assert!(heard.starts_with('\u{16}'), "{heard:?}");

    // A client that intercepts by itself has its word first, and what it lets go is judged.
    page.client.ask("Fetch.enable", json!({})).await;
    for fulfilled in [true, false] {
        page.client
            .tell(
                1000,
                "Page.navigate",
                json!({"url": "https://other.example/x"}),
            )
            .await;
        let paused = page
            .client
            .until(|told| told["method"] == "Fetch.requestPaused")
            .await;
        let request = &paused["params"]["requestId"];
        if fulfilled {
            let own = json!({"requestId": request, "responseCode": 201, "body": "b3du"});
            page.client.ask("Fetch.fulfillRequest", own).await;
        } else {
            page.client
                .ask("Fetch.continueRequest", json!({"requestId": request}))
                .await;
        }
        page.client.until(|told| told["id"] == 1000).await;
        let expected = if fulfilled { 201 } else { 403 };
        assert_eq!(page.value(status).await, expected);
    }
    let (status, _) = served
        .ask(&format!("DELETE /devtools/browser/{session}"), "")
        .await;
    assert_eq!(status, 200);
    served.stop().await;
}

#[tokio::test]
async fn a_download_without_end_leaves_nothing() {
    let Some(served) = Served::start().await else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                            Content-Disposition: attachment; filename=big\r\nContent-Length: 10737418240\r\n\r\n";
                let mut left = head.as_bytes().to_vec();
                while stream.write_all(&left).await.is_ok() {
                    left = vec![b'x'; 64 << 10];
                }
            });
        }
    });
    let session = served.acquire("POST /devtools/browser").await;
    let mut page = Page::open(&served, &session).await;
    let wish = json!({"behavior": "allow", "downloadPath": "/etc", "eventsEnabled": true});
    let told = page.client.ask("Browser.setDownloadBehavior", wish).await;
    assert_eq!(told["result"], json!({}));
    let url = format!("http://{address}/");
    page.client
        .tell(1000, "Page.navigate", json!({"url": url}))
        .await;
    let ended = page
        .client
        .until(|told| {
            told["method"] == "Browser.downloadProgress" && told["params"]["state"] != "inProgress"
        })
        .await;
    assert_eq!(ended["params"]["state"], "canceled", "{ended}");
    assert_eq!(ended["params"]["receivedBytes"], 0.0, "{ended}");
    assert_eq!(page.value("6 * 7").await, 42);
    served.stop().await;
}
