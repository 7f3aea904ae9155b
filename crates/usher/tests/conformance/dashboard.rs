//! The dashboard, driven in a real Chromium as an operator would, against real endpoints.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::json;

use crate::programs::{Nginx, free_address, root};
use crate::support::config::{HOST, TOKEN};
use crate::support::process::Folder;
use crate::support::{Config, Usher, Wire, eventually};

const CHROMIUM: &str = "/usr/bin/chromium";

/// What the browser has done and what is done around it.
struct Scene {
    usher: Option<Usher>,
    folder: Option<Folder>,
    config: Config,
    endpoints: Vec<Option<Nginx>>,
    traffic: Option<Traffic>,
}

/// Requests to [`HOST`], one after the other, until it is dropped.
struct Traffic {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[test]
fn an_operator_does_a_days_work_in_the_browser() {
    let endpoints = [Nginx::start(), Nginx::start()];
    // An address of its own: the node comes back to it.
    let api = free_address();
    let config = Config::new()
        .set(&["api", "listen"], json!(api.to_string()))
        .set(&["store"], json!({"url": "sqlite:usher.db"}))
        .set(&["pid_file"], json!("usher.pid"))
        .browsers()
        .pool("eu", [endpoints[0].origin("a")])
        .pool("us", [endpoints[1].origin("b")])
        .monitored("eu")
        .monitored("us")
        .balancer(HOST, &["eu", "us"]);
    let mut scene = Scene {
        usher: Some(Usher::start(&config)),
        folder: None,
        config,
        endpoints: endpoints.map(Some).into(),
        traffic: None,
    };
    // As scripts/setup test installs it.
    let axe = root().join("dashboard/node_modules/axe-core/axe.min.js");
    let mut browser = Command::new(root().join(".tools/venv/bin/python"))
        .arg(root().join("crates/usher/tests/conformance/dashboard.py"))
        .args([CHROMIUM, &format!("http://{api}/"), TOKEN])
        .args(option("--axe", axe.exists().then_some(axe.as_os_str())))
        .args(option(
            "--shots",
            std::env::var_os("USHER_SHOTS").as_deref(),
        ))
        .args([
            "light", "watch", "explain", "change", "queue", "borrow", "shoot", "follow", "lose",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python (scripts/setup test installs it)");
    let mut answers = browser.stdin.take().expect("a pipe");
    for line in BufReader::new(browser.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        println!("{line}");
        if let Some(wish) = line.strip_prefix("do ") {
            let answer = scene.carry_out(wish);
            writeln!(answers, "done{answer}").expect("the browser listens");
        }
    }
    assert!(browser.wait().expect("a child").success());
}

fn option<'a>(name: &'a str, value: Option<&'a OsStr>) -> impl Iterator<Item = &'a OsStr> {
    value
        .into_iter()
        .flat_map(move |value| [OsStr::new(name), value])
}

impl Scene {
    fn usher(&self) -> &Usher {
        self.usher.as_ref().expect("runs")
    }

    /// Does what the browser asks for; what to say besides.
    fn carry_out(&mut self, wish: &str) -> String {
        match wish.split(' ').collect::<Vec<_>>()[..] {
            ["traffic"] => self.traffic = Some(Traffic::start(self.usher())),
            ["kill"] => self.endpoints[0].take().expect("runs").kill(),
            ["revive"] => {
                let address = self.address_of("eu");
                self.endpoints[0] = Some(Nginx::start_on(address.parse().expect("an address")));
            }
            ["endpoint"] => {
                let made = Nginx::start();
                let address = made.address();
                self.endpoints.push(Some(made));
                return format!("\n{} {}", address.ip(), address.port());
            }
            ["carries", host] => {
                let usher = self.usher();
                eventually("the new load balancer to carry traffic", || {
                    let mut wire = usher.connect();
                    let request = format!("GET /small HTTP/1.1\r\nHost: {host}\r\n\r\n");
                    (wire.exchange(request).status() == 200).then_some(())
                });
            }
            // Each is somebody new: nobody sends a cookie.
            ["visit", count] => {
                for _ in 0..count.parse().expect("a number") {
                    let mut wire = self.usher().connect();
                    let request = format!(
                        "GET /sale HTTP/1.1\r\nHost: {HOST}\r\nSec-Fetch-Dest: document\r\n\r\n"
                    );
                    wire.exchange(request);
                }
            }
            // A browser whose session lasts longer than its pictures take.
            ["borrow"] => {
                let keep_alive = std::time::Duration::from_secs(1_200);
                let session = self.usher().acquire_for(keep_alive);
                let session = session.unwrap_or_else(|| "none".to_owned());
                return format!("\n{session}");
            }
            ["follow"] => {
                let usher = self.usher.as_mut().expect("runs");
                usher.hand_over();
                // From then on the old process answers nobody.
                usher.wait_stderr("serves from now on");
            }
            ["stop"] => {
                self.traffic = None;
                let usher = self.usher.take().expect("runs");
                self.folder = Some(Folder::with(&self.config.text()));
                usher.signal(Signal::KILL);
            }
            ["start"] => {
                let folder = self.folder.take().expect("stopped");
                self.usher = Some(Usher::start_in(folder));
            }
            _ => panic!("what is {wish:?}?"),
        }
        String::new()
    }

    fn address_of(&self, pool: &str) -> String {
        let state = self.usher().state();
        let pools = state["pools"].as_array().expect("a list");
        let pool = pools
            .iter()
            .find(|found| found["name"] == pool)
            .expect("there");
        let endpoint = &pool["endpoints"][0];
        format!(
            "{}:{}",
            endpoint["address"].as_str().expect("text"),
            endpoint["port"]
        )
    }
}

impl Traffic {
    fn start(usher: &Usher) -> Traffic {
        let over = Arc::new(AtomicBool::new(false));
        let (told, address) = (Arc::clone(&over), usher.address("http"));
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let mut wire = Wire::connect(address);
                // Whatever the answer is: endpoints come and go.
                wire.exchange(format!("GET /small HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
                std::thread::park_timeout(std::time::Duration::from_millis(50));
            }
        });
        Traffic {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ended = thread.join();
        }
    }
}

/// What `cargo build` embeds is what the sources build to. Where node is not there, as on a machine
/// that only builds the product, there is nothing to compare with.
#[test]
fn the_page_is_built_from_its_sources() {
    let folder = root().join("dashboard");
    if !folder.join("node_modules").exists() {
        println!(
            "not compared: dashboard/node_modules is not there (scripts/setup test installs it)"
        );
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let built = Command::new("npx")
        .args(["vite", "build", "--logLevel", "error", "--outDir"])
        .arg(out.path())
        .current_dir(&folder)
        .status()
        .expect("npx");
    assert!(built.success());
    assert_eq!(files(out.path()), files(&folder.join("dist")));
    let tested = Command::new("node")
        .args(["--test", "lib.test.js"])
        .current_dir(&folder)
        .status()
        .expect("node");
    assert!(tested.success());
}

/// Every file below, with its content.
fn files(folder: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut all = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            let below = files(&path).into_iter();
            all.extend(below.map(|(file, content)| (format!("{name}/{file}"), content)));
        } else {
            all.insert(name, std::fs::read(&path).expect("readable"));
        }
    }
    all
}
