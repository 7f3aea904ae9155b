//! Programs of others: nginx as an endpoint, clients to be run to their end.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::config::HOST;
use crate::support::endpoint::origin_at;
use crate::support::{Usher, eventually};

/// The tree that nginx serves: real files of every size and kind, on every Debian.
pub const DOCUMENTS: &str = "/usr/share/doc";

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a program to its end; it must be there and must succeed.
pub fn run(program: impl AsRef<OsStr>, args: &[&str]) -> String {
    let output = try_run(&program, args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{} {args:?}: {}\n{stderr}",
        program.as_ref().display(),
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program to its end, however it ends.
pub fn try_run(program: impl AsRef<OsStr>, args: &[&str]) -> Output {
    let program = program.as_ref();
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| {
            panic!(
                "{}: {e} (scripts/setup test installs it)",
                program.display()
            )
        })
}

/// The Python of `scripts/setup`.
pub fn python() -> PathBuf {
    root().join(".tools/venv/bin/python")
}

/// A server that prints its address when it listens.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    pub fn start(program: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e} (scripts/setup test makes it)", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().parse();
        let address = address.unwrap_or_else(|_| panic!("no address: {line:?}"));
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// So many requests for `/small` by h2load, on a listener of this kind. Each must be answered with a
/// status of 200 to 299; its own summary of them.
pub fn h2load(usher: &Usher, kind: &str, count: u32, clients: &str, more: &[&str]) -> String {
    let (address, count) = (usher.address(kind), count.to_string());
    let to = address.to_string();
    let url = format!("{kind}://{HOST}:{}/small", address.port());
    let basis = [
        "--requests",
        &count,
        "--clients",
        clients,
        "--connect-to",
        &to,
    ];
    let args: Vec<&str> = basis
        .iter()
        .chain(more)
        .copied()
        .chain([url.as_str()])
        .collect();
    let report = run("h2load", &args);
    for whole in [
        format!("{count} succeeded, 0 failed, 0 errored, 0 timeout"),
        format!("status codes: {count} 2xx, 0 3xx, 0 4xx, 0 5xx"),
    ] {
        assert!(report.contains(&whole), "{kind} {more:?}: {report}");
    }
    let mut lines = report.lines();
    lines
        .find(|line| line.starts_with("requests:"))
        .expect("its summary")
        .to_owned()
}

/// nginx with a configuration of its own, serving [`DOCUMENTS`] under `/doc/`.
pub struct Nginx {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Nginx {
    pub fn start() -> Self {
        Self::start_on(free_address())
    }

    /// On an address where one was before.
    pub fn start_on(address: SocketAddr) -> Self {
        Self::launch(address, "", 100_000_000)
    }

    /// One that speaks HTTP/2, and ends a connection after so many requests.
    pub fn over_http2(requests: u32) -> Self {
        Self::launch(free_address(), " http2", requests)
    }

    fn launch(address: SocketAddr, protocol: &str, requests: u32) -> Self {
        let folder = TempDir::with_prefix("usher-nginx-").unwrap();
        let path = folder.path().display();
        let config = format!(
            "daemon off; worker_processes 1; pid {path}/pid; error_log stderr error;
            events {{ worker_connections 1024; }}
            http {{
                access_log off; keepalive_requests {requests}; server_tokens off;
                client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
                fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi;
                scgi_temp_path {path}/scgi;
                types {{ text/html html htm; text/plain txt; }} default_type text/plain;
                server {{
                    listen {address}{protocol}; root /usr/share;
                    location /doc/ {{ autoindex on; gzip on; gzip_types text/plain; }}
                    location = /healthz {{ return 200 \"healthy\\n\"; }}
                    location = /small {{ return 200 \"{address}\\n\"; }}
                }}
            }}"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).unwrap();
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"]
            .into_iter()
            .find(|p| Path::new(p).exists());
        let child = Command::new(program.expect("nginx (scripts/setup test installs it)"))
            .args([
                "-p".as_ref(),
                folder.path().as_os_str(),
                "-c".as_ref(),
                file.as_os_str(),
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self {
            child,
            address,
            folder,
        };
        eventually("nginx to listen", || TcpStream::connect(address).ok());
        nginx
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn origin(&self, name: &str) -> Value {
        origin_at(name, self.address)
    }

    /// Ends it as a crash would: no connection is finished.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // SIGTERM is nginx's fast way: workers drop what they have.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.end();
        let _ = self.folder.path(); // the folder goes after the process
    }
}

/// An address on which nothing listens, and which no connection of another test can take: each
/// server has a loopback address of its own, derived from this process and a counter.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = std::process::id().to_be_bytes();
    let host = NEXT.fetch_add(1, Ordering::SeqCst);
    let address = Ipv4Addr::new(127, process[2] | 1, process[3], host);
    TcpListener::bind((address, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}
