//! The same bytes through hyper. hyper takes more than the codec does; but what the codec takes,
//! hyper must understand as the same messages, or a request could mean one thing here and another
//! behind us.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, Response, Uri};

use super::walk::{Message, Pair, requests, responses};

/// A peer that says everything at once, and listens to nothing but whether it was asked.
struct Said {
    rest: Vec<u8>,
    waits: bool,
}

impl Read for Said {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits {
            return Poll::Pending;
        }
        let len = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..len]);
        self.rest.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl Write for Said {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.waits = false;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A message as hyper understood it.
#[derive(Debug)]
struct Seen {
    start: String,
    target: Option<Uri>,
    fields: Vec<Pair>,
    body: Vec<u8>,
}

/// Requests that the codec takes are the same for hyper's server.
pub fn requests_as_hyper(input: &[u8]) {
    let (messages, _) = requests(input, &[]);
    // hyper refuses targets that `http::Uri` cannot hold, and gives CONNECT a body of its own.
    let comparable = |message: &&Message| message.start != b"CONNECT" && uri(message).is_some();
    let messages: Vec<_> = messages.iter().take_while(comparable).collect();
    if messages.is_empty() {
        return;
    }
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let log = log.clone();
        async move {
            let (parts, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                log.borrow_mut().push(Seen {
                    start: parts.method.to_string(),
                    target: Some(parts.uri),
                    fields: pairs(&parts.headers),
                    body: body.to_bytes().to_vec(),
                });
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let said = Said {
        rest: input.to_vec(),
        waits: false,
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .max_headers(200)
        .serve_connection(said, service);
    finish(connection);
    let seen = seen.borrow();
    for (index, message) in messages.iter().enumerate() {
        let Some(seen) = seen.get(index) else {
            panic!("hyper did not see {message:?}")
        };
        assert_eq!(
            (seen.start.as_bytes(), &seen.target, &seen.body),
            (&message.start[..], &uri(message), &message.body),
        );
        assert_eq!(seen.fields, sorted(&message.fields));
    }
}

/// A response that the codec takes is the same for hyper's client.
pub fn responses_as_hyper(input: &[u8]) {
    let (messages, _) = responses(input, super::laws::ASKED[0], &[]);
    let Some(message) = messages
        .iter()
        .find(|message| !message.start.starts_with(b"1"))
    else {
        return;
    };
    let said = Said {
        rest: input.to_vec(),
        waits: true,
    };
    let seen = pin!(async {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_headers(200)
            .handshake(said)
            .await?;
        let mut connection = pin!(connection);
        let mut answer = pin!(async {
            let (parts, body) = sender
                .send_request(Request::new(Empty::<Bytes>::new()))
                .await?
                .into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            hyper::Result::Ok(Seen {
                start: parts.status.as_str().to_owned(),
                target: None,
                fields: pairs(&parts.headers),
                body,
            })
        });
        std::future::poll_fn(|context| {
            let _ = connection.as_mut().poll(context);
            answer.as_mut().poll(context)
        })
        .await
    });
    match finish(seen) {
        Some(Ok(seen)) => {
            assert_eq!(
                (seen.start.as_bytes(), &seen.body),
                (&message.start[..], &message.body)
            );
            assert_eq!(seen.fields, sorted(&message.fields));
        }
        other => panic!("hyper did not see {message:?}: {other:?}"),
    }
}

/// The target as hyper holds it.
fn uri(message: &Message) -> Option<Uri> {
    Uri::try_from(&message.target[..]).ok()
}

/// All input is there, so a future that has not ended after a bounded number of turns never will.
fn finish<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..10_000).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

fn pairs(headers: &HeaderMap) -> Vec<Pair> {
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()));
    sorted(&pairs.collect::<Vec<_>>())
}

/// By lower-case name; the order of equal names is kept, that of others is lost in a map.
fn sorted(pairs: &[Pair]) -> Vec<Pair> {
    let mut pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs
}
