//! A tree of real files, fetched through usher by the clients that people use.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::programs::{DOCUMENTS, Nginx, run, try_run};
use crate::soak;
use crate::support::config::HOST;
use crate::support::process::Folder;
use crate::support::tls::Authority;
use crate::support::{Config, Usher, eventually};

struct Site {
    nginx: [Nginx; 2],
    folder: TempDir,
    usher: Usher,
}

/// Two endpoints with the same files behind one load balancer, plain and over TLS.
fn site() -> Site {
    let nginx = [Nginx::start(), Nginx::start()];
    let authority = Authority::new();
    let pair = authority.pair(&[HOST]);
    let files = Folder::new();
    files.write("shop.pem", &pair.certificate);
    files.write("shop.key", &pair.key);
    let config = Config::serving([nginx[0].origin("a"), nginx[1].origin("b")])
        .monitored("main")
        .set(&["listen", "https"], json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            json!([{"cert": "shop.pem", "key": "shop.key"}]),
        );
    files.write("usher.yaml", config.text());
    let usher = Usher::start_in(files);
    let folder = TempDir::with_prefix("usher-documents-").unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    Site {
        nginx,
        folder,
        usher,
    }
}

impl Site {
    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// curl's arguments for a URL of [`HOST`] that really goes to `address`.
    fn curl(&self, address: SocketAddr, scheme: &str, more: &[&str], path: &str) -> Vec<u8> {
        let port = address.port();
        let target = format!("{HOST}:{port}:{}", address.ip());
        let url = format!("{scheme}://{HOST}:{port}{path}");
        let ca = self.file("ca.pem");
        let basis = [
            "--silent",
            "--show-error",
            "--cacert",
            &ca,
            "--resolve",
            &target,
        ];
        let args: Vec<&str> = basis
            .iter()
            .chain(more)
            .copied()
            .chain([url.as_str()])
            .collect();
        let output = try_run("curl", &args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "curl {args:?}: {stderr}");
        output.stdout
    }

    fn direct(&self, more: &[&str], path: &str) -> Vec<u8> {
        self.curl(self.nginx[0].address(), "http", more, path)
    }
}

/// Some files of the tree, small and large, as paths of URLs.
fn documents(count: usize) -> Vec<String> {
    let mut files: Vec<(u64, PathBuf)> = Vec::new();
    collect(Path::new(DOCUMENTS), &mut files);
    files.sort();
    assert!(!files.is_empty(), "no files in {DOCUMENTS}");
    // Evenly over the sizes, the largest always among them.
    let step = files.len().div_ceil(count).max(1);
    files
        .iter()
        .rev()
        .step_by(step)
        .map(|(_, path)| path.strip_prefix("/usr/share").unwrap())
        .map(|path| format!("/{}", path.to_str().unwrap()))
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<(u64, PathBuf)>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        let path = entry.path();
        if kind.is_dir() {
            collect(&path, files);
        } else if kind.is_file() && path.to_str().is_some_and(is_plain) {
            files.push((entry.metadata().unwrap().len(), path));
        }
    }
}

/// A path that is the same in a URL.
fn is_plain(path: &str) -> bool {
    path.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
}

#[test]
fn curl_gets_every_byte() {
    let site = site();
    let (http, https) = (site.usher.address("http"), site.usher.address("https"));
    let files = documents(if soak() { 500 } else { 40 });
    let mut bytes = 0;
    for path in &files {
        let direct = site.direct(&[], path);
        bytes += direct.len();
        for (address, scheme, version) in [
            (http, "http", "--http1.1"),
            (http, "http", "--http1.0"),
            (http, "http", "--http2-prior-knowledge"),
            (https, "https", "--http1.1"),
            (https, "https", "--http2"),
        ] {
            let through = site.curl(address, scheme, &[version], path);
            assert!(through == direct, "{path} by {scheme} {version}");
        }
    }
    println!(
        "curl: {} files, {bytes} bytes, five ways, equal to a direct fetch",
        files.len()
    );
}

#[test]
fn curl_gets_parts_heads_and_what_has_not_changed() {
    let site = site();
    let http = site.usher.address("http");
    let path = &documents(20)[0];
    let both = |more: &[&str]| (site.curl(http, "http", more, path), site.direct(more, path));
    for more in [
        &["--range", "10-99"][..],
        &["--range", "-50"],
        &["--compressed"],
        &["--tr-encoding"],
    ] {
        let (through, direct) = both(more);
        assert!(through == direct, "{more:?}");
    }
    // Heads: equal but for what belongs to the connection or the moment.
    let head = |raw: Vec<u8>| -> Vec<String> {
        let mut lines: Vec<String> = String::from_utf8(raw)
            .unwrap()
            .lines()
            .map(str::to_ascii_lowercase)
            .filter(|line| {
                !["date:", "connection:", "keep-alive:"]
                    .iter()
                    .any(|name| line.starts_with(name))
            })
            .collect();
        lines.sort();
        lines
    };
    let (through, direct) = both(&["--head"]);
    let (through, direct) = (head(through), head(direct));
    assert_eq!(through, direct);
    let tag = direct
        .iter()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    let unchanged = format!("If-None-Match: {tag}");
    let code = ["--header", &unchanged, "--write-out", "%{http_code}"];
    let (through, direct) = both(&code);
    assert_eq!(
        (through.as_slice(), direct.as_slice()),
        (&b"304"[..], &b"304"[..])
    );
}

#[test]
fn wget_mirrors_a_part_of_the_tree() {
    let site = site();
    let part = mirrored_part();
    let fetch = |address: SocketAddr, name: &str| {
        let into = site.file(name);
        // Exit 8 is "a server answered an error": links out of the tree do, on both ways alike.
        let output = try_run(
            "wget",
            &[
                "--quiet",
                "--recursive",
                "--level=4",
                "--no-parent",
                "--no-host-directories",
                "--execute",
                "robots=off",
                "--header",
                &format!("Host: {HOST}"),
                "--directory-prefix",
                &into,
                &format!("http://{address}{part}"),
            ],
        );
        assert!(matches!(output.status.code(), Some(0 | 8)), "{output:?}");
        into
    };
    let direct = fetch(site.nginx[0].address(), "direct");
    let through = fetch(site.usher.address("http"), "through");
    run("diff", &["--recursive", &direct, &through]);
    let mut files = Vec::new();
    collect(Path::new(&through), &mut files);
    assert!(files.len() > 3, "{part}: {} files", files.len());
    println!("wget: {} files of {part}, no difference", files.len());
}

/// A folder with some dozens of files.
fn mirrored_part() -> String {
    let mut folders: Vec<(usize, PathBuf)> = std::fs::read_dir(DOCUMENTS)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| {
            let mut files = Vec::new();
            collect(&entry.path(), &mut files);
            (files.len(), entry.path())
        })
        .filter(|(count, path)| *count <= 200 && path.to_str().is_some_and(is_plain))
        .collect();
    folders.sort();
    let (_, folder) = folders.pop().expect("a folder");
    format!(
        "/{}/",
        folder.strip_prefix("/usr/share").unwrap().to_str().unwrap()
    )
}

#[test]
fn chromium_sees_the_same_page() {
    let site = site();
    let seen = |address: SocketAddr, scheme: &str, name: &str| {
        let profile = site.file(&format!("profile-{name}"));
        let map = format!("--host-resolver-rules=MAP {HOST} {address}");
        let url = format!("{scheme}://{HOST}/doc/");
        run(
            "chromium",
            &[
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--ignore-certificate-errors",
                "--virtual-time-budget=5000",
                &format!("--user-data-dir={profile}"),
                &map,
                "--dump-dom",
                &url,
            ],
        )
    };
    let direct = seen(site.nginx[0].address(), "http", "direct");
    assert!(direct.contains("Index of /doc/"), "{direct}");
    assert!(
        seen(site.usher.address("http"), "http", "plain") == direct,
        "over HTTP/1.1"
    );
    assert!(
        seen(site.usher.address("https"), "https", "tls") == direct,
        "over TLS, HTTP/2"
    );
    // The browser asks for more than the page, so no number of lines says that this one is there.
    eventually("a page over HTTP/2 in the access log", || {
        let log = site.usher.access_log(1);
        log.iter()
            .any(|line| line["protocol"] == "HTTP/2" && line["path"] == "/doc/")
            .then_some(())
    });
    println!(
        "chromium: the listing of /doc/, {} bytes of DOM, equal over http and https",
        direct.len()
    );
}
