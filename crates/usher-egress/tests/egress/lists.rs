//! Lists of hosts from an address: what comes is used, and what does not come makes no session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use usher_egress::list::BYTES_MAX;
use usher_egress::{Deadlines, Egress, Lists, Policy};

use crate::world::{loopback, trap, until, untouched};

/// A server of lists, which counts its visitors, and who trusts it.
struct Shelf {
    address: SocketAddr,
    visits: Arc<AtomicU32>,
    lists: Lists,
    _folder: tempfile::TempDir,
}

async fn shelf(policy: Policy) -> Shelf {
    let made = rcgen::generate_simple_self_signed(["lists.example".to_owned()]);
    let made = made.expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).expect("a file");
    let key = made.signing_key.serialize_der().try_into().expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let visits = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&visits);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                counted.fetch_add(1, Ordering::Relaxed);
                let head = until(&mut stream, "\r\n\r\n").await;
                let path = head.split(' ').nth(1).unwrap_or_default();
                let _ = stream.write_all(&book(path)).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    let egress = Egress::with(Deadlines::default(), |host| async move {
        match &*host {
            "lists.example" | "other.example" => Ok(vec![[127, 0, 0, 1].into()]),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        }
    });
    Shelf {
        address,
        visits,
        lists: Lists::new(egress, policy, Some(ca)),
        _folder: folder,
    }
}

fn book(path: &str) -> Vec<u8> {
    let (head, body) = match path {
        "/good?v=1" => (
            "200 OK\r\nContent-Type: text/plain; charset=utf-8",
            "# ours\n\n a.example \r\n*.b.example\n".to_owned(),
        ),
        "/bad" => (
            "200 OK\r\nContent-Type: text/plain",
            "a.example\nhttps://b.example\n".to_owned(),
        ),
        "/page" => ("200 OK\r\nContent-Type: text/html", "a.example".to_owned()),
        "/moved" => ("302 Found\r\nLocation: /good?v=1", String::new()),
        "/long" => (
            "200 OK\r\nContent-Type: text/plain",
            "#".repeat(BYTES_MAX + 1),
        ),
        "/cut" => {
            return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\na"
                .to_vec();
        }
        _ => ("404 Not Found", String::new()),
    };
    let len = body.len();
    format!("HTTP/1.1 {head}\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn a_list_is_fetched_once_and_one_bad_line_spoils_it() {
    let shelf = shelf(loopback()).await;
    let port = shelf.address.port();
    let good = format!("https://lists.example:{port}/good?v=1");
    for _ in 0..3 {
        let list = shelf.lists.get(&good).await.expect("a list");
        let patterns: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(patterns, ["a.example", "*.b.example"]);
    }
    assert_eq!(shelf.visits.load(Ordering::Relaxed), 1);
    for (path, says) in [
        ("bad", "host pattern"),
        ("page", "text/plain"),
        ("moved", "it answers 302"),
        ("long", "longer than 1048576 bytes"),
        ("cut", "cannot be read"),
        ("none", "it answers 404"),
    ] {
        let address = format!("https://lists.example:{port}/{path}");
        let fault = shelf.lists.get(&address).await.expect_err(path).to_string();
        assert!(fault.contains(says), "{path}: {fault}");
    }
    // The name has to prove itself, and has to have an address.
    let other = format!("https://other.example:{port}/good?v=1");
    let fault = shelf.lists.get(&other).await.expect_err("no such name");
    assert_eq!(fault.to_string(), "no TLS with it");
    let nowhere = shelf.lists.get("https://nowhere.example/").await;
    let nowhere = nowhere.expect_err("no address").to_string();
    assert_eq!(nowhere, "not reached: name-not-resolved");
    for address in [
        "http://lists.example/",
        "https://u:p@lists.example/",
        "https://",
        "x",
    ] {
        let fault = shelf.lists.get(address).await.expect_err(address);
        assert!(
            fault.to_string().starts_with("an https:// address"),
            "{address}"
        );
    }
}

#[tokio::test]
async fn a_list_opens_nothing() {
    let shelf = shelf(Policy::default()).await;
    let (inside, port) = trap("127.0.0.2:0").expect("a port");
    for address in [
        format!("https://lists.example:{}/good?v=1", shelf.address.port()),
        format!("https://127.0.0.2:{port}/"),
        format!("https://2130706434:{port}/"),
        format!("https://[::ffff:127.0.0.2]:{port}/"),
        "https://169.254.169.254/".to_owned(),
    ] {
        let fault = shelf.lists.get(&address).await.expect_err("denied");
        assert_eq!(
            fault.to_string(),
            "not reached: denied-address",
            "{address}"
        );
    }
    untouched(&inside);
    assert_eq!(shelf.visits.load(Ordering::Relaxed), 0);
}
