//! Real browsers: started, used, crashed, killed, and gone.
//!
//! Where the machine refuses namespaces the sandbox's tests say so and do nothing: that is what the
//! start-up check is for. Waiting is for other processes here, which tell nothing when they end.

#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

mod machine;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machine::{HostProcess, Machine, evaluate, eventually, processes_of};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::mpsc;
use usher_browsers::client::{Client, ClientFault, within};
use usher_browsers::exit::{Exit, Nowhere, Way};
use usher_browsers::host::CallerFault;
use usher_browsers::host::wire::{Ask, Held, Listed};
use usher_browsers::page::{self, Content, PageFault, Screenshot, Until};
use usher_browsers::png::pixel;
use usher_browsers::settings::Kind;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::{BrowserId, SessionId};
use usher_egress::{Deadlines, Egress};

const PATIENCE: Duration = Duration::from_secs(60);

fn html(text: &str) -> Screenshot {
    let mut order = Screenshot::of(Content::Html(text.to_owned()));
    order.visit.until = vec![Until::Load];
    order.action_ms = 20_000;
    (order.visit.viewport.width, order.visit.viewport.height) = (400, 300);
    order
}

#[tokio::test]
async fn a_browser_draws_and_leaves_nothing() {
    for kind in Kind::ALL {
        let _turn = machine::turn().await;
        let machine = Machine::new(kind);
        let Some(launcher) = machine.launcher(Box::new(Nowhere)).await else {
            continue;
        };
        let mut browser = launcher.start(BrowserId(1)).await.unwrap();
        assert!(browser.body.memory() > 0);
        let members = processes_of(browser.body.root());
        assert!(members.len() > 2, "{members:?}");
        for member in &members {
            if kind == Kind::Process || member.pid == browser.body.root() {
                continue;
            }
            for namespace in ["net", "pid", "mnt", "ipc", "uts", "user"] {
                let machines = machine::own_namespace(namespace);
                assert_ne!(
                    member.namespace(namespace),
                    machines,
                    "{namespace} of {member:?}"
                );
            }
            // The first process inside only waits for the browser.
            let filtered = member.status("Seccomp:") == "2" || member.parent == browser.body.root();
            assert!(filtered, "{member:?} may make any system call");
        }
        let page = "<body style='background:rgb(1,2,3)'><script>alert(1); confirm(2)</script>";
        let picture = page::screenshot(&mut browser.client, &html(page))
            .await
            .unwrap();
        assert_eq!(pixel(&picture, 10, 10), Ok([1, 2, 3]));
        browser.close().await.unwrap();
        machine.has_nothing_left(&launcher, &members).await;
    }
}

#[tokio::test]
async fn what_does_not_start_leaves_nothing() {
    for kind in Kind::ALL {
        let machine = Machine::new(kind);
        let none = Some("/usr/bin/false".into());
        let Some(launcher) = machine.launcher_of(none, Box::new(Nowhere)).await else {
            continue;
        };
        for id in 1..=3 {
            let fault = launcher.start(BrowserId(id)).await.unwrap_err();
            let said = fault.to_string();
            assert!(
                said.starts_with("a browser started but does not work"),
                "{said}"
            );
        }
        machine.has_nothing_left(&launcher, &[]).await;
    }
}

#[tokio::test]
async fn what_a_page_does_to_itself_is_told() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(launcher) = machine.launcher(Box::new(Nowhere)).await else {
        return;
    };
    let mut browser = launcher.start(BrowserId(1)).await.unwrap();
    let client = &mut browser.client;

    // Nothing of the machine's files is in there.
    let mut file = Screenshot::of(Content::Url("FILE:///etc/passwd".to_owned()));
    assert!(matches!(
        page::screenshot(client, &file).await,
        Err(PageFault::Scheme)
    ));
    file = html("<iframe src='file:///etc/passwd'></iframe>");
    page::screenshot(client, &file).await.unwrap();

    // Windows are closed as they are opened.
    let windows = "<script>open('about:blank'); open('about:blank')</script>";
    let before = targets(client).await;
    page::screenshot(client, &html(windows)).await.unwrap();
    let deadline = within(PATIENCE);
    while targets(client).await != before + 1 {
        assert!(tokio::time::Instant::now() < deadline, "windows stay open");
    }

    // A page that crashes is told at once, not when the time is over.
    let page = evaluate::page(client).await;
    client
        .ask(&page, "Inspector.enable", json!({}), within(PATIENCE))
        .await
        .unwrap();
    let crash = client
        .ask(&page, "Page.crash", json!({}), within(PATIENCE))
        .await;
    assert!(matches!(crash, Err(ClientFault::Crashed)), "{crash:?}");

    // So is the browser's own end.
    client.tell("", "Browser.crash", json!({})).await.unwrap();
    let clean = tokio::time::timeout(PATIENCE, browser.body.ended())
        .await
        .unwrap();
    assert!(!clean);
    browser.close().await.unwrap();

    let mut browser = launcher.start(BrowserId(2)).await.unwrap();
    // What never loads is over in time, and can be drawn as it is.
    let hangs = "<img src='http://example.com/never'><script>for (;;);</script>";
    let mut order = html(hangs);
    order.visit.load_ms = 300;
    let fault = page::screenshot(&mut browser.client, &order)
        .await
        .unwrap_err();
    assert_eq!(fault.to_string(), "Navigation timeout of 300 ms exceeded");
    browser.close().await.unwrap();

    // A page that goes on opening windows is stopped, however busy it keeps the browser.
    let mut browser = launcher.start(BrowserId(3)).await.unwrap();
    let windows = "<script>for (let i = 0; i < 1000; i++) open('about:blank')</script>";
    let fault = page::screenshot(&mut browser.client, &html(windows))
        .await
        .unwrap_err();
    assert_eq!(fault.to_string(), "pages opened more than 50 windows");
    let members = processes_of(browser.body.root());
    browser.close().await.unwrap();
    machine.has_nothing_left(&launcher, &members).await;
}

async fn targets(client: &mut Client) -> usize {
    let targets: Value = client
        .call("", "Target.getTargets", json!({}), within(PATIENCE))
        .await
        .unwrap();
    targets["targetInfos"].as_array().unwrap().len()
}

/// An exit that tells what comes to it and answers nothing.
#[derive(Clone)]
struct Told(mpsc::UnboundedSender<String>, Arc<AtomicBool>);

struct Cut(tokio::task::JoinHandle<()>, Arc<AtomicBool>);

impl Exit for Told {
    fn open(&self, _: BrowserId, listener: TcpListener) -> Box<dyn Way> {
        let told = self.0.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let len = stream.read(&mut head).await.unwrap_or(0);
                let first = String::from_utf8_lossy(&head[..len])
                    .lines()
                    .next()
                    .unwrap_or("")
                    .to_owned();
                let _ = told.send(first);
                let _ = stream
                    .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                    .await;
            }
        });
        Box::new(Cut(task, self.1.clone()))
    }
}

impl Way for Cut {
    fn lend(&mut self, _: SessionId, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn cause(&self, _: &str, _: Duration) -> Option<String> {
        None
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.abort();
        self.1.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn the_exit_is_all_of_the_network() {
    for kind in Kind::ALL {
        let _turn = machine::turn().await;
        let machine = Machine::new(kind);
        let (told, mut heard) = mpsc::unbounded_channel();
        let dropped = Arc::new(AtomicBool::new(false));
        let exit = Box::new(Told(told, dropped.clone()));
        let Some(launcher) = machine.launcher(exit).await else {
            continue;
        };
        let beside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = beside.local_addr().unwrap();
        let mut browser = launcher.start(BrowserId(1)).await.unwrap();
        // The machine's own loopback is not the browser's, and is asked of the exit like any other.
        for url in [
            format!("http://{address}/x"),
            format!("http://localhost:{}/x", address.port()),
        ] {
            let order = Screenshot::of(Content::Url(url.clone()));
            let _ = page::screenshot(&mut browser.client, &order).await;
            hear(&mut heard, &format!("GET {url} HTTP/1.1")).await;
        }
        let order = Screenshot::of(Content::Url(format!("https://{address}/x")));
        let fault = page::screenshot(&mut browser.client, &order)
            .await
            .unwrap_err();
        assert!(fault.to_string().starts_with("net::ERR_"), "{fault}");
        hear(&mut heard, &format!("CONNECT {address} HTTP/1.1")).await;
        browser.close().await.unwrap();
        assert!(
            dropped.load(Ordering::Relaxed),
            "{kind:?}: the way out is still open"
        );
        let direct = tokio::time::timeout(Duration::from_millis(1), beside.accept()).await;
        assert!(direct.is_err(), "{kind:?}: somebody came by another way");
    }
}

/// A site that answers every request with a page of one colour.
async fn site() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let _ = stream.read(&mut head).await;
            let page = "<body style='background:rgb(4,5,6)'>";
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn through_the_proxy_a_page_reaches_what_its_lease_allows() {
    for kind in Kind::ALL {
        let _turn = machine::turn().await;
        let machine = Machine::new(kind);
        let egress = Egress::new(Deadlines::default());
        let Some(launcher) = machine.launcher(Box::new(egress.clone())).await else {
            continue;
        };
        let site = site().await;
        let inside = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
        inside.set_nonblocking(true).unwrap();
        let mut browser = launcher.start(BrowserId(1)).await.unwrap();
        let guardrails = r#"{"allow_private":["127.0.0.1/32"]}"#;
        let way = browser.body.way().expect("a way out");
        assert!(way.lend(SessionId(1), r#"{"what":1}"#).is_err());
        way.lend(SessionId(1), guardrails).unwrap();
        assert!(way.lend(SessionId(1), "{}").is_err());

        let mut order = Screenshot::of(Content::Url(format!("http://{site}/")));
        (order.visit.viewport.width, order.visit.viewport.height) = (400, 300);
        let picture = page::screenshot(&mut browser.client, &order).await.unwrap();
        assert_eq!(pixel(&picture, 10, 10), Ok([4, 5, 6]));
        // Over a tunnel, so that the browser itself only knows that there is none.
        let denied = inside.local_addr().unwrap();
        for (url, host, cause) in [
            (
                format!("https://{denied}/"),
                "127.0.0.2",
                "net::ERR_BLOCKED_BY_ADMINISTRATOR",
            ),
            (
                format!("https://[::ffff:127.0.0.2]:{}/", denied.port()),
                "[::ffff:127.0.0.2]",
                "net::ERR_BLOCKED_BY_ADMINISTRATOR",
            ),
            (
                "https://127.0.0.1:6379/".to_owned(),
                "127.0.0.1",
                "net::ERR_BLOCKED_BY_ADMINISTRATOR",
            ),
        ] {
            let order = Screenshot::of(Content::Url(url.clone()));
            let fault = page::screenshot(&mut browser.client, &order).await;
            let fault = fault.unwrap_err().to_string();
            assert!(fault.starts_with("net::ERR_"), "{url}: {fault}");
            let told = browser.body.way().unwrap().cause(host, PATIENCE);
            assert_eq!(told.as_deref(), Some(cause), "{url}");
        }
        let arrived = inside.accept();
        assert!(arrived.is_err(), "{kind:?}: {arrived:?}");
        browser.close().await.unwrap();
    }
}

/// Waits for what a page asks for; the browser may ask for more.
async fn hear(heard: &mut mpsc::UnboundedReceiver<String>, wanted: &str) {
    let found = async {
        loop {
            let line = heard.recv().await.expect("the exit is gone");
            if line == wanted {
                return;
            }
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, found).await.is_ok(),
        "nobody asked {wanted}"
    );
}

/// An exit that is the web: it answers what is asked of it, and keeps what that was.
#[derive(Clone)]
struct Web(mpsc::UnboundedSender<String>);

const PAGE: &str = "<!doctype html><title>p</title><body style='margin:0;background:rgb(9,9,9)'>\
    <div id=box style='position:absolute;left:5px;top:900px;width:30px;height:20px;background:rgb(1,2,3)'></div>\
    <script>setTimeout(() => document.body.append(document.createElement('late-one')), 200)</script>";

impl Exit for Web {
    fn open(&self, _: BrowserId, listener: TcpListener) -> Box<dyn Way> {
        let told = self.0.clone();
        let task = tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 8192];
                let len = stream.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..len]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let path = path.trim_start_matches("http://example.com").to_owned();
                let (status, body) = match path.as_str() {
                    "/image" => ("200 OK", String::new()),
                    "/with-image" => ("200 OK", "<img src=/image>".to_owned()),
                    "/with-silence" => ("200 OK", "<p>x<img src=/silence>".to_owned()),
                    "/silence" => {
                        silent.push(stream);
                        let _ = told.send(head);
                        continue;
                    }
                    "/secret" if !head.contains("Authorization: Basic dTpw") => {
                        ("401 No\r\nWWW-Authenticate: Basic realm=x", String::new())
                    }
                    _ => ("200 OK", PAGE.to_owned()),
                };
                let len = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len}\r\n\
                     Connection: close\r\n\r\n{body}"
                );
                let _ = told.send(head);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Box::new(Cut(task, Arc::new(AtomicBool::new(false))))
    }
}

/// A picture's width and height.
fn size(png: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[tokio::test]
async fn an_order_is_carried_out_as_it_was_given() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let (told, mut heard) = mpsc::unbounded_channel();
    let Some(launcher) = machine.launcher(Box::new(Web(told))).await else {
        return;
    };
    let mut browser = launcher.start(BrowserId(1)).await.unwrap();
    let client = &mut browser.client;
    let of = |path: &str| {
        let mut order = html("");
        order.visit.content = Content::Url(format!("http://example.com{path}"));
        order
    };
    let mut asked = move |path: &str| {
        let mut last = None;
        while let Ok(head) = heard.try_recv() {
            if head.starts_with(&format!("GET http://example.com{path} ")) {
                last = Some(head);
            }
        }
        last
    };

    // What is sent with it, and a part of the page that lies beyond the window.
    let mut order = of("/page");
    order
        .visit
        .headers
        .insert("x-order".to_owned(), "7".to_owned());
    order.visit.user_agent = Some("Order/1".to_owned());
    let cookie = json!({"name": "c", "value": "v", "url": "http://example.com/"});
    order.visit.cookies.push(cookie);
    order.visit.referer = Some("http://example.com/from".to_owned());
    order.selector = Some("#box".to_owned());
    let picture = page::screenshot(client, &order).await.unwrap();
    assert_eq!(size(&picture), (30, 20));
    assert_eq!(pixel(&picture, 3, 3), Ok([1, 2, 3]));
    let head = asked("/page").unwrap();
    for line in [
        "x-order: 7",
        "User-Agent: Order/1",
        "Cookie: c=v",
        "Referer: http://example.com/",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    order.selector = Some("#none".to_owned());
    let fault = page::screenshot(client, &order).await.unwrap_err();
    assert_eq!(fault.code(), "no_element");

    // The whole page, and a script of ours in it.
    let mut order = of("/page");
    order.full_page = true;
    let content = Some("document.body.style.background = 'rgb(4,5,6)'".to_owned());
    let mut tag = page::Tag {
        url: None,
        content,
        r#type: None,
        id: None,
    };
    order.visit.scripts.push(tag.clone());
    let picture = page::screenshot(client, &order).await.unwrap();
    assert_eq!(size(&picture), (400, 920));
    assert_eq!(pixel(&picture, 1, 1), Ok([4, 5, 6]));
    tag.content = Some("body { background: rgb(7,7,7) !important }".to_owned());
    order.visit.styles.push(tag);
    (order.full_page, order.scroll) = (false, true);
    let picture = page::screenshot(client, &order).await.unwrap();
    assert_eq!(
        (size(&picture), pixel(&picture, 1, 1)),
        ((400, 300), Ok([7, 7, 7]))
    );

    // Something that comes later is waited for, and no longer than it was said.
    let mut order = of("/page");
    let selector = "late-one".to_owned();
    let wanted = page::Selector {
        selector,
        visible: false,
        hidden: false,
        timeout_ms: 60_000,
    };
    order.visit.wait_for = Some(wanted.clone());
    page::screenshot(client, &order).await.unwrap();
    let never = page::Selector {
        selector: "never".to_owned(),
        timeout_ms: 200,
        ..wanted.clone()
    };
    order.visit.wait_for = Some(never);
    let fault = page::screenshot(client, &order).await.unwrap_err();
    assert_eq!(fault.to_string(), "Waiting failed: 200 ms exceeded");
    order.visit.best_attempt = true;
    page::screenshot(client, &order).await.unwrap();
    order.visit.best_attempt = false;
    order.visit.wait_for = Some(page::Selector {
        selector: "]".to_owned(),
        ..wanted
    });
    let fault = page::screenshot(client, &order).await.unwrap_err();
    assert_eq!(fault.code(), "script", "{fault}");

    // Kinds of requests that are not wanted are not made.
    let mut order = of("/with-image");
    page::screenshot(client, &order).await.unwrap();
    assert!(asked("/image").is_some());
    order.visit.reject_types = vec!["image".to_owned()];
    page::screenshot(client, &order).await.unwrap();
    order.visit.reject_types.clear();
    order.visit.allow_types = vec!["script".to_owned()];
    page::screenshot(client, &order).await.unwrap();
    assert!(asked("/image").is_none());

    // A name and a password, when they are asked for.
    let mut order = of("/secret");
    let known = |password: &str| page::Credentials {
        username: "u".to_owned(),
        password: password.to_owned(),
    };
    order.visit.authenticate = Some(known("p"));
    let picture = page::screenshot(client, &order).await.unwrap();
    assert_eq!(pixel(&picture, 1, 1), Ok([9, 9, 9]));

    // One image that never answers fails what waits for it, unless the best is good enough.
    let mut order = of("/with-silence");
    order.visit.load_ms = 300;
    let fault = page::screenshot(client, &order).await.unwrap_err();
    assert_eq!(fault.to_string(), "Navigation timeout of 300 ms exceeded");
    order.visit.best_attempt = true;
    page::screenshot(client, &order).await.unwrap();
    browser.close().await.unwrap();
    machine.has_nothing_left(&launcher, &[]).await;
}

async fn lease(host: &HostProcess, session: u128) -> Held {
    let browser = host.ready().await;
    let held = Held {
        browser,
        epoch: 1,
        session,
    };
    let ask = Ask::Prepare {
        held,
        keep_alive_ms: 60_000,
        guardrails: None,
    };
    let () = host.caller().await.ask(&ask).await.unwrap();
    held
}

fn refused<T: std::fmt::Debug>(result: Result<T, CallerFault>) -> String {
    match result {
        Err(CallerFault::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_session_from_prepare_to_close() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(host) = HostProcess::start(&machine, &[]).await else {
        return;
    };
    let held = lease(&host, 7).await;

    // Another session, and an older lease, have nothing to say.
    let other = Held { session: 8, ..held };
    let prepare = |held| Ask::Prepare {
        held,
        keep_alive_ms: 1,
        guardrails: None,
    };
    assert_eq!(
        refused(host.caller().await.ask::<()>(&prepare(other)).await),
        "not_free"
    );
    assert_eq!(refused(host.caller().await.pipe(other).await), "not_yours");
    let older = Ask::Close {
        browser: held.browser,
        epoch: 0,
        reason: "NormalClosure".to_owned(),
    };
    assert_eq!(refused(host.caller().await.ask::<()>(&older).await), "old");

    // The pipe is the browser's, and a newer connection takes it over amid a message.
    let mut first = host.caller().await.pipe(held).await.unwrap().0;
    first
        .write_all(b"{\"id\":1,\"method\":\"Browser.getVersion\"}\0{\"id\":2,\"meth")
        .await
        .unwrap();
    assert_eq!(answer(&mut first).await["id"], 1);
    let mut second = Client::new(host.caller().await.pipe(held).await.unwrap().0);
    let six = evaluate::number(&mut second, "2*3").await;
    assert_eq!(six, 6);
    let rest = tokio::time::timeout(PATIENCE, first.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok(), "the older connection goes on");

    // A reply of many bytes goes through whole.
    let page = evaluate::page(&mut second).await;
    let large = evaluate::text(&mut second, &page, "'\u{e9}'.repeat(3 << 20)").await;
    assert_eq!(large.chars().count(), 3 << 20);

    // A browser that closes itself ends the session as it should.
    let mut watching = host.caller().await.watch().await.unwrap();
    second.tell("", "Browser.close", json!({})).await.unwrap();
    let dead = host.dead(&mut watching, held.browser).await;
    assert_eq!(
        (dead.phase, dead.reason),
        (Phase::Dead, CloseReason::NormalClosure)
    );
    assert_eq!(refused(host.caller().await.pipe(held).await), "not_yours");
    host.quit().await;
    machine.is_empty();
}

/// The next answer; events may come before it.
async fn answer(from: &mut UnixStream) -> Value {
    let mut bytes = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, from.read_u8())
            .await
            .unwrap()
            .unwrap()
        {
            0 => {
                let message: Value = serde_json::from_slice(&bytes).unwrap();
                if message.get("id").is_some() {
                    return message;
                }
                bytes.clear();
            }
            byte => bytes.push(byte),
        }
    }
}

#[tokio::test]
async fn a_browser_that_is_killed_is_told_and_replaced() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(host) = HostProcess::start(&machine, &[]).await else {
        return;
    };
    let held = lease(&host, 7).await;
    let mut watching = host.caller().await.watch().await.unwrap();
    let mut pipe = Client::new(host.caller().await.pipe(held).await.unwrap().0);
    assert_eq!(evaluate::number(&mut pipe, "1").await, 1);
    // One of its own processes, as the kernel's OOM killer would choose it.
    host.main_process().kill();
    let dead = host.dead(&mut watching, held.browser).await;
    assert_eq!(dead.reason, CloseReason::ChromiumCrashed);
    let fault = pipe
        .ask("", "Browser.getVersion", json!({}), within(PATIENCE))
        .await;
    assert!(fault.is_err(), "{fault:?}");
    // The host goes on, and a picture comes of the next one.
    let held = lease(&host, 9).await;
    let picture = host
        .caller()
        .await
        .screenshot(held, html("<p>x"))
        .await
        .unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    host.dead(&mut watching, held.browser).await;
    // Whoever gives an order up leaves a browser that ends.
    let held = lease(&host, 10).await;
    let mut order = html("<script>for (;;);</script>");
    order.visit.load_ms = 60_000;
    let waiting = host.caller().await;
    let given_up =
        tokio::time::timeout(Duration::from_millis(1), waiting.screenshot(held, order)).await;
    assert!(given_up.is_err());
    host.dead(&mut watching, held.browser).await;
    host.quit().await;
    machine.is_empty();
}

#[tokio::test]
async fn a_ready_browser_that_stands_still_is_not_lent() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(host) = HostProcess::start(&machine, &[]).await else {
        return;
    };
    let mut watching = host.caller().await.watch().await.unwrap();
    let browser = host.ready().await;
    host.main_process().stop();
    let held = Held {
        browser,
        epoch: 1,
        session: 7,
    };
    let ask = Ask::Prepare {
        held,
        keep_alive_ms: 60_000,
        guardrails: None,
    };
    assert_eq!(refused(host.caller().await.ask::<()>(&ask).await), "gone");
    host.dead(&mut watching, browser).await;
    // The next one is well.
    lease(&host, 8).await;
    host.quit().await;
    machine.is_empty();
}

#[tokio::test]
async fn an_idle_session_ends() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Process);
    let Some(host) = HostProcess::start(&machine, &[]).await else {
        return;
    };
    let mut watching = host.caller().await.watch().await.unwrap();
    let browser = host.ready().await;
    let held = Held {
        browser,
        epoch: 1,
        session: 1,
    };
    let ask = Ask::Prepare {
        held,
        keep_alive_ms: 3_000,
        guardrails: None,
    };
    let () = host.caller().await.ask(&ask).await.unwrap();
    let mut pipe = Client::new(host.caller().await.pipe(held).await.unwrap().0);
    // A command under way holds it, for longer than it may be idle.
    let page = evaluate::page(&mut pipe).await;
    let params =
        json!({"expression": "new Promise(done => setTimeout(done, 3500))", "awaitPromise": true});
    pipe.ask(&page, "Runtime.evaluate", params, within(PATIENCE))
        .await
        .unwrap();
    let dead = host.dead(&mut watching, browser).await;
    assert_eq!(dead.reason, CloseReason::BrowserIdle);
    host.quit().await;
    machine.is_empty();
}

#[tokio::test]
async fn kill_9_of_the_host_leaves_nothing() {
    for kind in Kind::ALL {
        let _turn = machine::turn().await;
        let machine = Machine::new(kind);
        let Some(mut host) = HostProcess::start(&machine, &[]).await else {
            continue;
        };
        let held = lease(&host, 7).await;
        let mut pipe = Client::new(host.caller().await.pipe(held).await.unwrap().0);
        assert_eq!(evaluate::number(&mut pipe, "1").await, 1);
        let members = processes_of(host.pid());
        assert!(members.len() > 3, "{members:?}");
        host.kill().await;
        eventually("processes of a killed host", || {
            members
                .iter()
                .all(|member| member.is_gone())
                .then_some(())
                .ok_or_else(|| {
                    let left: Vec<_> = members.iter().filter(|member| !member.is_gone()).collect();
                    format!("{left:?}")
                })
        })
        .await;
        // The next host on the folder starts as if nothing had been.
        let next = HostProcess::start(&machine, &[]).await.unwrap();
        let listed: Listed = next.caller().await.ask(&Ask::List).await.unwrap();
        assert!(
            listed
                .browsers
                .iter()
                .all(|browser| browser.browser != held.browser)
        );
        next.quit().await;
        machine.is_empty();
    }
}

#[tokio::test]
async fn a_page_that_eats_memory_takes_its_browser_along_and_nothing_else() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(host) = HostProcess::start(&machine, &["memory=400000000"]).await else {
        return;
    };
    a_page_eats_memory(&host).await;
    host.quit().await;
    machine.is_empty();
}

/// Its browser ends, the host goes on.
async fn a_page_eats_memory(host: &HostProcess) {
    let held = lease(host, 7).await;
    let mut watching = host.caller().await.watch().await.unwrap();
    let mut client = Client::new(host.caller().await.pipe(held).await.unwrap().0);
    let page = evaluate::page(&mut client).await;
    let eats = "const kept = []; const eat = () => { \
                for (let i = 0; i < 8; i++) kept.push(new Uint8Array(4 << 20).fill(i + 1)); \
                setTimeout(eat, 1) }; eat()";
    // Whether it answers before it ends is nobody's business.
    client
        .tell(&page, "Runtime.evaluate", json!({"expression": eats}))
        .await
        .unwrap();
    let dead = host.dead(&mut watching, held.browser).await;
    assert_eq!(dead.reason, CloseReason::ChromiumCrashed);
    lease(host, 8).await;
}

#[tokio::test]
async fn thirty_leases_in_a_row_leave_the_host_as_it_was() {
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(host) = HostProcess::start(&machine, &[]).await else {
        return;
    };
    let mut watching = host.caller().await.watch().await.unwrap();
    let first = lease(&host, 1).await;
    close(&host, first).await;
    host.dead(&mut watching, first.browser).await;
    host.ready().await;
    let base = host.standing();
    let mut seen = std::collections::BTreeSet::from([first.browser]);
    for session in 2..32 {
        let held = lease(&host, session).await;
        assert!(
            seen.insert(held.browser),
            "browser {:x} was given twice",
            held.browser
        );
        if session % 2 == 0 {
            host.caller()
                .await
                .screenshot(held, html("<p>x"))
                .await
                .unwrap();
        } else {
            let mut client = Client::new(host.caller().await.pipe(held).await.unwrap().0);
            assert_eq!(evaluate::number(&mut client, "1").await, 1);
            close(&host, held).await;
        }
        host.dead(&mut watching, held.browser).await;
    }
    host.ready().await;
    eventually("the host as it was", || {
        let now = host.standing();
        let no_more = now.processes <= base.processes && now.files <= base.files;
        if no_more && now.groups == base.groups {
            Ok(())
        } else {
            Err(format!("{now:?}, not {base:?}"))
        }
    })
    .await;
    host.quit().await;
    machine.is_empty();
}

fn close(host: &HostProcess, held: Held) -> impl Future<Output = ()> {
    let reason = "NormalClosure".to_owned();
    let ask = Ask::Close {
        browser: held.browser,
        epoch: held.epoch,
        reason,
    };
    async move {
        let () = host.caller().await.ask(&ask).await.unwrap();
    }
}

#[tokio::test]
async fn somebody_without_rights_runs_browsers_too() {
    if !rustix::process::geteuid().is_root() {
        // Then all the other tests have shown it.
        return;
    }
    let _turn = machine::turn().await;
    let machine = Machine::new(Kind::Sandbox);
    let Some(host) = HostProcess::start_as_nobody(&machine, &["memory=400000000"]).await else {
        return;
    };
    let mut watching = host.caller().await.watch().await.unwrap();
    let held = lease(&host, 1).await;
    let picture = host
        .caller()
        .await
        .screenshot(held, html("<p>x"))
        .await
        .unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    host.dead(&mut watching, held.browser).await;
    // Without a control group its memory is looked at.
    a_page_eats_memory(&host).await;
    host.quit().await;
    machine.is_empty();
}
