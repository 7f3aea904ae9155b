//! Real clients of browsers, unmodified, each with only an address switched.
//!
//! The packages for Workers run inside a Worker, in the runtime from npm; the others on the Node that
//! they need, which npm carries too (`scripts/node-browsers`). What a client does and expects stands in
//! the script that runs it; here is what they find: a node, its accounts, and a site on this machine.
//!
//! Where the machine refuses namespaces these say so and do nothing.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::programs::{root, try_run};
use crate::support::api::result;
use crate::support::browsers::SECRET;
use crate::support::config::TOKEN;
use crate::support::endpoint::Visit;
use crate::support::{Config, Endpoint, Usher};

/// What the Workers of an account show that may have one browser.
const SMALL: &str = "binding-secret-of-the-small-one";
/// Browsers that the other one may have.
const CONCURRENT: u32 = 3;
/// For all that a client does here, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(180);

const PAGE: &str =
    "<!doctype html><html lang=en><meta charset=utf-8><title>Seen</title><h1>Seen</h1>";

#[test]
fn packages_for_workers_of_both_generations() {
    let Some(scene) = Scene::start() else { return };
    let workers = Workers::start(&scene.usher);
    let site = format!("site={}", scene.site_url());
    // One is left alone meanwhile, and has ended by itself in the end.
    let left = workers.play("leave", "");
    for story in [
        "puppeteer-1.4.0",
        "puppeteer-1.0.7",
        "playwright-1.3.6",
        "playwright-1.2.0",
        "refusals",
    ] {
        workers.play(story, &site);
    }
    let id = left["sessionId"].as_str().expect("a session");
    workers.play("left", &format!("id={id}"));
    let arrived = scene.site.arrived();
    assert!(arrived.iter().any(|request| request.target() == "/"));
    assert!(
        arrived
            .iter()
            .all(|request| request.target() != "/elsewhere")
    );
}

#[test]
fn programs_with_the_secret_of_a_binding() {
    let Some(scene) = Scene::start() else { return };
    let base = format!("http://{}/v1", scene.usher.address("binding"));
    scene.play(
        "programs",
        &json!({"base": base, "token": SECRET, "site": scene.site_url(), "lists": false}),
    );
}

#[test]
fn programs_the_command_line_and_an_agent_with_a_token() {
    let Some(scene) = Scene::start() else { return };
    let api = format!("http://{}/client/v4", scene.usher.address("api"));
    let accounts = result(&scene.usher.api_get("/client/v4/accounts"));
    let mut accounts = accounts.as_array().expect("a list").iter();
    let account = accounts.find(|account| account["name"] == "default");
    let account = account.expect("the first one")["id"]
        .as_str()
        .expect("an id");
    let reached = |prefix: &str| {
        json!({
            "base": format!("{api}/accounts/{account}/{prefix}"),
            "token": TOKEN,
            "site": scene.site_url(),
            "lists": true,
        })
    };
    scene.play("programs", &reached("browser-rendering"));
    let home = scene.home.path();
    scene.play(
        "wrangler",
        &json!({"api": api, "account": account, "token": TOKEN, "home": home}),
    );
    scene.play("agent", &reached("browser-run"));
}

/// A node with browsers, and a site for their pages.
struct Scene {
    usher: Usher,
    site: Endpoint,
    home: TempDir,
}

impl Scene {
    fn start() -> Option<Scene> {
        let limits = |concurrent: u32| json!({"concurrent_browsers": concurrent, "browsers_per_second": 50, "browsers_burst": 50});
        let config = Config::new()
            .browsers()
            .set(&["browsers", "pools", "WEU", "max"], json!(CONCURRENT))
            .set(&["accounts", "default", "limits"], limits(CONCURRENT))
            .set(
                &["accounts", "small"],
                json!({"binding_secret": SMALL, "limits": limits(1)}),
            );
        let usher = Usher::start(&config);
        let session = usher.acquire()?;
        let ended = usher.binding(&format!("DELETE /devtools/browser/{session}"));
        assert_eq!(ended.status(), 200, "{ended:?}");
        Some(Scene {
            usher,
            site: Endpoint::scripted(site),
            home: TempDir::with_prefix("usher-clients-").unwrap(),
        })
    }

    fn site_url(&self) -> String {
        format!("http://{}/", self.site.address())
    }

    /// Runs a story of `browsers_clients.cjs` to its end.
    fn play(&self, story: &str, scene: &Value) -> Value {
        let mut node = Command::new(node());
        node.arg(script("browsers_clients.cjs"))
            .args([story, &scene.to_string()])
            .env("NODE_PATH", modules())
            .env("HOME", self.home.path());
        let out = finished(story, node);
        let told = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{story}: {out}"));
        println!("{story}: {told}");
        told
    }
}

/// A page on every path.
fn site(visit: &mut Visit) {
    while visit.request().is_some() {
        visit.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{PAGE}",
            PAGE.len()
        ));
    }
}

/// The runtime of Workers with `browsers_worker.mjs`, its bindings led to a node.
struct Workers {
    child: Child,
    port: u64,
    printed: Arc<Mutex<String>>,
    _folder: TempDir,
}

impl Workers {
    fn start(usher: &Usher) -> Workers {
        let folder = TempDir::with_prefix("usher-workers-").unwrap();
        bundle(&folder.path().join("worker.js"));
        let address = usher.address("binding");
        let binding = |name: &str, secret: &str| {
            format!(
                r#"(name = "{name}", external = (address = "{address}", http = (
                    injectRequestHeaders = [(name = "usher-binding", value = "{secret}")])))"#
            )
        };
        // From 2026-03-17 on, older clients are given messages that they cannot read.
        let config = format!(
            r#"using Workerd = import "/workerd/workerd.capnp";
            const config :Workerd.Config = (
                services = [(name = "main", worker = .main), {}, {}],
                sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
            );
            const main :Workerd.Worker = (
                modules = [(name = "worker.js", esModule = embed "worker.js")],
                bindings = [(name = "BROWSER", service = "browser"), (name = "SMALL", service = "small")],
                compatibilityDate = "2026-03-10",
                compatibilityFlags = ["nodejs_compat"],
            );"#,
            binding("browser", SECRET),
            binding("small", SMALL),
        );
        let file = folder.path().join("workers.capnp");
        std::fs::write(&file, config).unwrap();
        let mut child = Command::new(packaged("@cloudflare/workerd-linux-{64}", "bin/workerd"))
            // It tells its port there.
            .args([
                "serve".as_ref(),
                file.as_os_str(),
                "--control-fd=1".as_ref(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("workerd: {e} (scripts/setup test installs it)"));
        let printed = Arc::new(Mutex::new(String::new()));
        let (listens, port) = mpsc::channel();
        drain(child.stderr.take().unwrap(), &printed, |_| ());
        drain(child.stdout.take().unwrap(), &printed, move |line| {
            let event = serde_json::from_str::<Value>(line).ok();
            if let Some(port) = event.and_then(|event| event["port"].as_u64()) {
                let _ = listens.send(port);
            }
        });
        let mut workers = Workers {
            child,
            port: 0,
            printed,
            _folder: folder,
        };
        // It ends, and this with it, when its configuration is not to its liking.
        workers.port = port
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("no Worker: {}", workers.printed()));
        workers
    }

    /// Plays one story, which must come to its end.
    fn play(&self, story: &str, query: &str) -> Value {
        let url = format!("http://127.0.0.1:{}/{story}?{query}", self.port);
        let patience = PATIENCE.as_secs().to_string();
        let told = try_run(
            "curl",
            &["-sS", "--fail-with-body", "--max-time", &patience, &url],
        );
        let said = String::from_utf8_lossy(&told.stdout);
        assert!(
            told.status.success(),
            "{said}\n{}\n{}",
            String::from_utf8_lossy(&told.stderr),
            self.printed()
        );
        println!("{said}");
        serde_json::from_str(&said).unwrap()
    }

    fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One file of the Worker and the packages in it, made as their users make it.
fn bundle(to: &Path) {
    let esbuild = packaged("@esbuild/linux-{x64}", "bin/esbuild");
    let mut esbuild = Command::new(esbuild);
    esbuild
        .arg(script("browsers_worker.mjs"))
        .args(["--bundle", "--format=esm", "--platform=browser"])
        .args(["--conditions=workerd,worker", "--log-level=warning"])
        .args(["--external:node:*", "--external:cloudflare:*"])
        .arg(format!("--outfile={}", to.display()))
        .env("NODE_PATH", modules());
    finished("esbuild", esbuild);
}

/// Runs a client to its end; what it printed. It must succeed, in its time.
fn finished(name: &str, client: Command) -> String {
    // Of a client that is late, whatever it started ends with it.
    let mut command = Command::new("timeout");
    command
        .arg("--kill-after=5")
        .arg(PATIENCE.as_secs().to_string())
        .arg(client.get_program())
        .args(client.get_args())
        .envs(
            client
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null());
    let ended = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ended.stdout).into_owned(),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert!(
        ended.status.success(),
        "{name}: {} (scripts/setup test installs it; 124: not within {PATIENCE:?})\n{out}\n{err}",
        ended.status
    );
    out
}

/// Keeps the lines of a stream, and shows each to `each`, until it ends.
fn drain(
    from: impl Read + Send + 'static,
    to: &Arc<Mutex<String>>,
    each: impl Fn(&str) + Send + 'static,
) {
    let to = Arc::clone(to);
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            each(&line);
            let mut to = to.lock().unwrap();
            to.push_str(&line);
            to.push('\n');
        }
    });
}

fn script(name: &str) -> PathBuf {
    root().join("crates/usher/tests/conformance").join(name)
}

/// What `scripts/setup` installs of `scripts/node-browsers`.
fn modules() -> PathBuf {
    root().join(".tools/node-browsers/node_modules")
}

/// The Node that these clients need: Debian's is older.
fn node() -> PathBuf {
    packaged("node-linux-{x64}", "bin/node")
}

/// A program of a package that is made for each kind of machine.
fn packaged(package: &str, program: &str) -> PathBuf {
    let package = match std::env::consts::ARCH {
        "aarch64" => package.replace("{64}", "arm64").replace("{x64}", "arm64"),
        _ => package.replace(['{', '}'], ""),
    };
    modules().join(package).join(program)
}
