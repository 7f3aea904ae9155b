//! SIGUSR2: another process takes over, and no client notices.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::config::{HOST, TOKEN};
use crate::support::load::Client;
use crate::support::process::{Folder, Process};
use crate::support::tls::Authority;
use crate::support::websocket::{echo, echoes, open, open_at};
use crate::support::{Config, Endpoint, PATIENCE, Usher, Wire, eventually};

/// A configuration that can be handed over.
fn followed(config: Config) -> Config {
    config.set(&["pid_file"], json!("usher.pid"))
}

#[test]
fn no_request_fails_over_several_hand_overs() {
    let endpoint = Endpoint::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let authority = Arc::new(Authority::new());
    let pair = authority.pair(&[HOST]);
    let folder = Folder::new();
    folder.write("shop.pem", &pair.certificate);
    folder.write("shop.key", &pair.key);
    let config = Config::serving([endpoint.origin("a")])
        .set(&["listen", "https"], json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            json!([{"cert": "shop.pem", "key": "shop.key"}]),
        );
    folder.write("usher.yaml", followed(config).text());
    let mut usher = Usher::start_in(folder);
    let (http, https) = (usher.address("http"), usher.address("https"));
    let plain = move || Wire::connect(http);
    let secure = {
        let authority = Arc::clone(&authority);
        move || authority.connect(https, HOST)
    };
    let clients = [
        Client::fresh("fresh", plain),
        Client::kept("kept", plain),
        Client::fresh("fresh over TLS", secure.clone()),
        Client::kept("kept over TLS", secure),
        Client::streams("streams", None, http),
        Client::streams("streams over TLS", Some(authority), https),
    ];
    for round in 0..4 {
        let all = || clients.iter().for_each(|client| client.wait_answers(20));
        all();
        let before = usher.hand_over();
        all();
        // Every client has noticed that it was told to go, so nothing is left there.
        before.wait();
        assert!(!usher.serving().is_over(), "round {round}");
    }
    for client in clients {
        assert!(client.stop() > 100);
    }
    assert_eq!(usher.wait().code(), Some(0));
    let codes: Vec<i32> = usher.before()[1..].iter().map(Process::code).collect();
    assert_eq!(codes, [0, 0, 0]);
    let resets = usher.metric("usher_http_errors_total");
    assert_eq!(resets, 0.0, "{}", usher.metrics());
}

#[test]
fn the_grace_ends_what_the_process_before_still_carries() {
    let endpoint = Endpoint::scripted(echo);
    let config =
        Config::serving([endpoint.origin("a")]).set(&["shutdown", "handover_grace"], json!("1s"));
    let mut usher = Usher::start(&followed(config));
    let mut socket = open(&usher);
    echoes(&mut socket);
    let began = Instant::now();
    usher.hand_over();
    assert!(socket.read().is_err(), "cut when the grace ends");
    assert!(began.elapsed().as_millis() >= 1000, "the grace was given");
    assert_eq!(usher.wait().code(), Some(0));
    echoes(&mut open(&usher));
}

#[test]
fn hand_overs_in_a_row_leave_each_process_its_own() {
    let endpoint = Endpoint::scripted(echo);
    let mut usher = Usher::start(&followed(Config::serving([endpoint.origin("a")])));
    let mut sockets = Vec::new();
    for _ in 0..3 {
        sockets.push(open(&usher));
        usher.hand_over();
        sockets.iter_mut().for_each(echoes);
    }
    assert_eq!(usher.before().len(), 3);
    for (socket, process) in sockets.into_iter().zip(usher.before()) {
        assert!(!process.is_over());
        drop(socket);
        process.wait();
    }
}

#[test]
fn a_new_process_that_fails_changes_nothing() {
    let endpoint = Endpoint::named("a");
    let config = followed(Config::serving([endpoint.origin("a")]));
    let mut usher = Usher::start(&config);
    let pid = usher.pid();
    let mut kept = usher.connect();
    assert_eq!(kept.get(HOST, "/").status(), 200);
    // There is the folder, and nobody makes a file in it.
    let unwritable = config
        .clone()
        .set(&["access_log", "path"], json!("/proc/access.log"));
    for (text, code) in [("nonsense: true\n".to_owned(), 1), (unwritable.text(), 3)] {
        usher.folder().write("usher.yaml", text);
        usher.signal(Signal::USR2);
        usher.wait_stderr(&format!(
            "hand-over failed: the new process ended before it was ready: exit status: {code}; this"
        ));
        assert_eq!((usher.get("/").text().as_str(), usher.pid()), ("a", pid));
        let answer = kept.get(HOST, "/");
        assert!(!answer.names("connection", "close"), "{answer:?}");
        assert_eq!(usher.pid_file(), Some(pid));
    }
    usher.reload(&config);
    usher.hand_over();
    assert_eq!(usher.get("/").text(), "a");
}

#[test]
fn the_pid_file_holds_the_process_that_serves() {
    let config = followed(Config::new());
    let folder = Folder::with(&config.text());
    folder.write("usher.pid", "1\n");
    let mut usher = Usher::start_in(folder);
    eventually("its own id", || {
        (usher.pid_file() == Some(usher.pid())).then_some(())
    });
    usher.hand_over();
    assert_eq!(usher.wait().code(), Some(0));
    assert_eq!(usher.pid_file(), Some(usher.pid()), "left alone by the end");
    let moved = config.clone().set(&["pid_file"], json!("other.pid"));
    usher.reload(&moved);
    assert_eq!(usher.pid_file(), None);
    usher.reload(&config);
    assert_eq!(usher.pid_file(), Some(usher.pid()));
    usher.signal(Signal::TERM);
    assert_eq!(usher.serving().code(), 0);
    assert_eq!(usher.pid_file(), None);
    let names = std::fs::read_dir(usher.folder().path()).unwrap();
    let left: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name != "other.pid"), "{left:?}");
}

#[test]
fn a_pid_file_that_cannot_be_written_stops_the_start() {
    // A missing folder is seen in the file; that nobody makes a file there, by trying.
    for (path, code) in [("missing/usher.pid", 1), ("/proc/usher.pid", 3)] {
        let config = Config::new().set(&["pid_file"], json!(path));
        let ended = Folder::with(&config.text()).run(&["run", "--config", "usher.yaml"]);
        assert_eq!(
            (ended.code, ended.stderr.lines().count()),
            (code, 1),
            "{ended:?}"
        );
        assert!(ended.stderr.contains(path), "{ended:?}");
    }
}

#[test]
fn verdicts_go_along() {
    let a = Endpoint::named("a");
    // Says once that it is down, and nothing ever after: no later probe could tell.
    let b = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            if visit.nth == 0 {
                visit.send("HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let config = Config::serving([a.origin("a"), b.origin("b")])
        .monitored("main")
        .set(&["monitors", "web", "interval"], json!(3600))
        .set(&["monitors", "web", "timeout"], json!(10))
        .set(&["health"], json!({"ready_timeout": "1s"}));
    let mut usher = Usher::start(&followed(config));
    let states = |usher: &Usher| ["main/a", "main/b"].map(|endpoint| usher.state_of(endpoint));
    eventually("the first verdicts", || {
        (states(&usher) == ["healthy", "critical"]).then_some(())
    });
    usher.hand_over();
    assert_eq!(states(&usher), ["healthy", "critical"]);
    let state = usher.state();
    assert!(
        state.to_string().contains("Response code mismatch error"),
        "the reason goes along: {state}"
    );
    for _ in 0..20 {
        assert_eq!(usher.get("/").text(), "a");
    }
}

#[test]
fn the_access_log_has_every_line_of_both_processes_also_when_it_is_moved_meanwhile() {
    const SOCKETS: &str = "sockets.example.com";
    let endpoint = Endpoint::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let echoing = Endpoint::scripted(echo);
    let config = Config::serving([endpoint.origin("a")])
        .pool("echo", [echoing.origin("e")])
        .balancer(SOCKETS, &["echo"]);
    let mut usher = Usher::start(&followed(config));
    let http = usher.address("http");
    let plain = move || Wire::connect(http);
    let mut socket = open_at(&usher, SOCKETS);
    let clients = [
        Client::fresh("fresh", plain),
        Client::kept("kept", plain),
        Client::streams("streams", None, http),
    ];
    let all = || clients.iter().for_each(|client| client.wait_answers(50));
    all();
    usher.hand_over();
    all();
    let (log, moved) = (usher.path("access.log"), usher.path("access.log.1"));
    std::fs::rename(&log, &moved).unwrap();
    let before = &usher.before()[0];
    [before, usher.serving()]
        .iter()
        .for_each(|process| process.signal(Signal::USR1));
    eventually("a new file", || log.exists().then_some(()));
    echoes(&mut socket);
    all();
    let answered: usize = clients.into_iter().map(Client::stop).sum();
    drop(socket);
    before.wait();
    let expected = answered + 1;
    let lines = eventually("every line", || {
        let texts = [&moved, &log].map(|path| std::fs::read_to_string(path).unwrap());
        let lines: Vec<String> = texts.concat().lines().map(str::to_owned).collect();
        (lines.len() >= expected).then_some(lines)
    });
    let ids: BTreeSet<String> = lines
        .iter()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            line["request_id"].to_string()
        })
        .collect();
    assert_eq!((lines.len(), ids.len()), (expected, expected));
}

#[test]
fn signals_before_it_serves_do_not_end_it() {
    let config = Config::serving([Endpoint::named("a").origin("a")]);
    let folder = Folder::new();
    let fifo = folder.path().join("usher.yaml");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let command = folder.command(&["run", "--config", "usher.yaml"]);
    let usher = Usher::spawn_and(folder, command, |process| {
        // Done when it opens the file.
        let mut file = std::fs::File::options().write(true).open(&fifo).unwrap();
        for signal in [Signal::USR1, Signal::USR2, Signal::HUP] {
            process.signal(signal);
        }
        file.write_all(config.text().as_bytes()).unwrap();
    });
    assert_eq!(usher.stop().code(), Some(0));
}

#[test]
fn what_has_no_file_is_not_followed_and_goes_on() {
    let [listen, api, binding] = ["--listen", "--api", "--binding"].map(|of| [of, "127.0.0.1:0"]);
    let args = [&["demo"][..], &listen, &api, &binding].concat();
    let usher = Usher::start_command(Folder::new(), &args);
    usher.signal(Signal::USR1);
    usher.signal(Signal::USR2);
    usher.wait_stderr("hand-over refused: there is no configuration file");
    assert_eq!(usher.connect().get("localhost", "/").status(), 200);
}

/// A node whose next process waits long for a verdict.
fn slow_to_follow() -> (Usher, [Endpoint; 2]) {
    let [a, silent] = [Endpoint::named("a"), Endpoint::silent()];
    let config = followed(Config::serving([a.origin("a")]))
        .set(&["shutdown", "grace"], json!("1s"))
        .set(&["health"], json!({"ready_timeout": "10m"}));
    let usher = Usher::start(&config);
    let slow = config
        .pool("slow", [silent.origin("silent")])
        .monitored("slow")
        .set(&["monitors", "web", "interval"], json!(3600))
        .set(&["monitors", "web", "timeout"], json!(10))
        .set(&["monitors", "web", "retries"], json!(5));
    usher.reload(&slow);
    (usher, [a, silent])
}

#[test]
fn one_hand_over_at_a_time() {
    let (usher, _endpoints) = slow_to_follow();
    usher.signal(Signal::USR2);
    let follower = usher.wait_stderr("hand-over to process ");
    let follower = follower.strip_suffix(" begins").unwrap();
    usher.signal(Signal::USR2);
    usher.wait_stderr(&format!(
        "hand-over refused: process {follower} is coming up"
    ));
    assert_eq!(usher.get("/").text(), "a");
    let follower = Process::numbered(follower.parse().unwrap());
    follower.signal(Signal::KILL);
    usher.wait_stderr("hand-over failed: the new process ended before it was ready: signal: 9");
    assert_eq!(usher.get("/").text(), "a");
}

#[test]
fn a_stop_calls_a_hand_over_off() {
    let (usher, _endpoints) = slow_to_follow();
    usher.signal(Signal::USR2);
    let follower = usher.wait_stderr("hand-over to process ");
    let follower = follower.strip_suffix(" begins").unwrap();
    let follower = Process::numbered(follower.parse().unwrap());
    assert_eq!(usher.stop().code(), Some(0));
    follower.wait();
}

#[test]
fn a_stop_after_a_hand_over_shortens_the_grace() {
    let endpoint = Endpoint::scripted(echo);
    let config =
        Config::serving([endpoint.origin("a")]).set(&["shutdown", "grace"], json!("500ms"));
    let mut usher = Usher::start(&followed(config));
    let mut socket = open(&usher);
    echoes(&mut socket);
    usher.hand_over();
    let before = &usher.before()[0];
    before.signal(Signal::HUP);
    usher.wait_stderr("no reload: process");
    before.signal(Signal::USR2);
    usher.wait_stderr("hand-over refused: process");
    echoes(&mut socket);
    let began = Instant::now();
    before.signal(Signal::TERM);
    assert!(socket.read().is_err());
    assert!(began.elapsed().as_millis() >= 450, "the grace was given");
    assert_eq!(usher.wait().code(), Some(0));
    echoes(&mut open(&usher));
}

#[test]
fn listeners_may_differ_between_the_two() {
    let endpoint = Endpoint::named("a");
    let config = followed(Config::serving([endpoint.origin("a")]));
    let two = config
        .clone()
        .set(&["listen", "http"], json!(["127.0.0.1:0", "127.0.0.2:0"]));
    let usher = Usher::start(&two);
    let (first, api) = (usher.address("http"), usher.address("api"));
    let gone = usher.listeners("http")[1];
    let third = config.set(&["listen", "http"], json!(["127.0.0.3:0", "127.0.0.1:0"]));
    usher.folder().write("usher.yaml", third.text());
    usher.signal(Signal::USR2);
    usher.wait_stderr("serves from now on");
    eventually("the end of the one before", || {
        (usher.pid_file() != Some(usher.pid())).then_some(())
    });
    usher.serving().wait();
    let follower = Process::numbered(usher.pid_file().unwrap());
    assert_eq!(Wire::connect(first).get(HOST, "/").text(), "a");
    assert!(std::net::TcpStream::connect(gone).is_err());
    assert!(std::net::TcpStream::connect(api).is_ok());
    follower.signal(Signal::TERM);
    follower.wait();
}

#[test]
fn a_connection_to_the_api_ends_with_an_answer() {
    let endpoint = Endpoint::scripted(echo);
    let mut usher = Usher::start(&followed(Config::serving([endpoint.origin("a")])));
    let mut api = Wire::connect(usher.address("api"));
    assert_eq!(api.get("x", "/readyz").status(), 200);
    let mut socket = open(&usher);
    usher.hand_over();
    echoes(&mut socket);
    let last = api.get("x", "/readyz");
    assert_eq!(last.status(), 503, "the one before is not ready any more");
    assert!(last.names("connection", "close"), "{last:?}");
    api.expect_end();
    let mut api = Wire::connect(usher.address("api"));
    assert_eq!(api.get("x", "/readyz").status(), 200);
}

/// A service manager, and its ear.
struct Manager(UnixDatagram);

impl Manager {
    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn hears(&self) -> String {
        let mut bytes = [0; 512];
        let count = self.0.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }
}

#[test]
fn a_service_manager_is_told_everything() {
    let config = followed(Config::new());
    let folder = Folder::with(&config.text());
    let path = folder.path().join("notify");
    let manager = Manager::of(UnixDatagram::bind(&path).unwrap());
    let mut command = folder.command(&["run", "--config", "usher.yaml"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut usher = Usher::spawn(folder, command);
    assert_eq!(manager.hears(), "READY=1");
    usher.signal(Signal::HUP);
    let reloading = manager.hears();
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(
        micros.is_some_and(|micros| micros.parse::<u64>().is_ok()),
        "{reloading}"
    );
    assert_eq!(manager.hears(), "READY=1");
    usher.hand_over();
    assert_eq!(manager.hears(), format!("MAINPID={}", usher.pid()));
    assert_eq!(manager.hears(), "READY=1");
    usher.before()[0].wait();
    usher.signal(Signal::TERM);
    assert_eq!(
        manager.hears(),
        "STOPPING=1",
        "and nothing of the one before"
    );
}

#[test]
fn a_service_manager_may_have_an_abstract_name() {
    let folder = Folder::with(&Config::new().text());
    let name = format!("usher-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Manager::of(UnixDatagram::bind_addr(&address).unwrap());
    let mut command = folder.command(&["run", "--config", "usher.yaml"]);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let _usher = Usher::spawn(folder, command);
    assert_eq!(manager.hears(), "READY=1");
}

#[test]
fn people_stay_signed_in() {
    let endpoint = Endpoint::named("a");
    let mut usher = Usher::start(&followed(Config::serving([endpoint.origin("a")])));
    let api = usher.address("api");
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    let length = body.len();
    let signed_in = Wire::connect(api).exchange(format!(
        "POST /session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    assert_eq!(signed_in.status(), 200);
    let cookie = signed_in.field("set-cookie").expect("a session");
    let cookie = cookie.split(';').next().expect("its value").to_owned();
    let show = || {
        let mut wire = Wire::connect(api);
        let request = format!("GET /session HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
        let answer: Value = serde_json::from_str(&wire.exchange(request).text()).expect("JSON");
        answer["result"]["csrf"].clone()
    };
    let word = show();
    assert!(word.is_string());
    // So that nobody but the new process can answer.
    usher.hand_over().wait();
    assert_eq!(show(), word);
}
