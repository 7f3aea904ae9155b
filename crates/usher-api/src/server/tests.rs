//! Connections that become something else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use usher_core::id::{Id, Kind};

use super::*;
use crate::access::{Permission, Secret, Token};
use crate::browsers::{Answering, Asked};
use crate::here::{Here, nothing};
use crate::rest::Declared;

const PATIENCE: Duration = Duration::from_secs(30);

/// Says everything again to whoever connects.
struct Echo;

impl BrowserFront for Echo {
    fn accounts(&self) -> Vec<(Id, String)> {
        vec![(account(), "default".to_owned())]
    }

    fn answer(&self, mut asked: Asked) -> Answering {
        Box::pin(async move {
            let upgrading = hyper::upgrade::on(&mut asked.request);
            tokio::spawn(async move {
                let mut upgraded = TokioIo::new(upgrading.await.expect("upgraded"));
                let mut bytes = [0; 1024];
                while let Ok(read @ 1..) = upgraded.read(&mut bytes).await {
                    if upgraded.write_all(&bytes[..read]).await.is_err() {
                        return;
                    }
                }
            });
            let answer = http::Response::builder()
                .status(StatusCode::SWITCHING_PROTOCOLS)
                .header("connection", "upgrade")
                .header("upgrade", "websocket");
            Some(answer.body(Body::empty()).expect("an answer"))
        })
    }
}

fn account() -> Id {
    Id::derive("default", Kind::Account, "default")
}

async fn listening(places: usize) -> SocketAddr {
    let token = Token {
        name: "t".to_owned(),
        secret: Secret::new("secret"),
        permissions: vec![Permission::Admin],
        accounts: Vec::new(),
    };
    let control = Here {
        desired: Arc::new(Desired {
            declared: Arc::new(Declared::new(nothing(), &json!({}), "usher.yaml")),
            store: None,
        }),
        access: Arc::new(Access::new(&[token])),
        in_time: Arc::new(AtomicBool::new(true)),
        browsers: Some(Arc::new(Echo)),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    let control: Shared = Arc::new(control);
    let app = browser_calls(&Arc::new(App::new(Arc::clone(&control))))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(control);
    tokio::spawn(accept(listener, None, app, places, std::future::pending()));
    address
}

async fn says(stream: &mut TcpStream, end: &[u8]) -> String {
    let mut said = Vec::new();
    let read = async {
        while !said.ends_with(end) {
            said.push(stream.read_u8().await.expect("a byte"));
        }
    };
    timeout(PATIENCE, read).await.expect("an answer");
    String::from_utf8(said).expect("text")
}

#[tokio::test]
async fn what_became_a_websocket_takes_nobodys_place_and_is_read_as_it_is() {
    let address = listening(2).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = format!(
            "GET /client/v4/accounts/{}/browser-run/devtools/browser HTTP/1.1\r\nHost: a\r\n\
             Authorization: Bearer secret\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            account()
        );
        stream.write_all(head.as_bytes()).await.expect("taken");
        let said = says(&mut stream, b"\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 101 "), "{said}");
        assert!(said.contains("usher-request-id: "), "{said}");
        open.push(stream);
    }
    // An operator comes in.
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("taken");
    assert!(
        says(&mut stream, b"ok\n")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    // Nothing of it is taken for a request.
    let text = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for mut stream in open {
        stream.write_all(text.as_bytes()).await.expect("taken");
        assert_eq!(says(&mut stream, b"\r\n\r\n").await, text);
    }
}
