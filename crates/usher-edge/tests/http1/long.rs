//! Long bodies, by both ways that they can take through a front: chunked ones are copied piece by
//! piece, those of a known length go through a pipe in the kernel. Nobody outside may be able to
//! tell which it was, so every story is told twice.

use std::thread;

use usher_edge::http::{AccessLog, LogTarget};

use super::kit::{HOST, Origin, PATIENCE, Peer, SHORT, Setup, Usher, get, status};

const LENGTH: usize = 3 * 1024 * 1024;

/// Longer than what sockets, pipe and buffers hold together.
const ENDLESS: usize = 24 * 1024 * 1024;

/// Long enough for a pipe, and taken by the sockets on the way without anybody reading.
const HALF: usize = 300 * 1024;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunked,
}

use Framing::{Chunked, Length};

impl Framing {
    fn field(self, length: usize) -> String {
        match self {
            Length => format!("Content-Length: {length}\r\n\r\n"),
            Chunked => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        }
    }

    fn answer(self, length: usize) -> String {
        format!("HTTP/1.1 200 OK\r\n{}", self.field(length))
    }

    fn request(self, length: usize) -> String {
        format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{}", self.field(length))
    }

    /// One piece of body, and its end.
    fn piece(self, body: &[u8]) -> Vec<u8> {
        match self {
            Length => body.to_vec(),
            Chunked => [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat(),
        }
    }

    fn end(self) -> &'static str {
        match self {
            Length => "",
            Chunked => "0\r\n\r\n",
        }
    }
}

/// Bytes that show where they are.
fn body(length: usize) -> Vec<u8> {
    let numbers = 0..length.div_ceil(8);
    let mut body: Vec<u8> = numbers
        .flat_map(|number| (number as u64).to_le_bytes())
        .collect();
    body.truncate(length);
    body
}

/// Reads a body of `length` bytes that comes in that framing.
fn receive(peer: &mut Peer, framing: Framing, length: usize) -> Vec<u8> {
    match framing {
        Length => peer.exactly(length),
        Chunked => {
            let mut body = Vec::new();
            loop {
                let size = usize::from_str_radix(peer.until("\r\n").trim_end(), 16).expect("size");
                body.extend(peer.exactly(size));
                assert_eq!(peer.exactly(2), b"\r\n");
                if size == 0 {
                    return body;
                }
            }
        }
    }
}

/// Sends a whole body while somebody reads the answer.
fn send_beside(peer: &Peer, framing: Framing, body: &[u8]) -> thread::JoinHandle<()> {
    let mut writer = Peer::new(peer.socket().try_clone().expect("clone"));
    let bytes = [framing.piece(body), framing.end().into()].concat();
    // The other side may refuse the rest; its test says so.
    thread::spawn(move || {
        let _ = writer.try_send(bytes);
    })
}

fn both(story: impl Fn(Framing)) {
    [Length, Chunked].into_iter().for_each(story);
}

#[test]
fn it_arrives_unchanged_and_counted_and_its_connections_are_used_again() {
    both(|framing| {
        let origin = Origin::new(move |peer, number, report| {
            for round in 0..2 {
                let _ = report.send(format!("connection {number} round {round}"));
                peer.head();
                let body = receive(peer, framing, LENGTH);
                peer.send(framing.answer(LENGTH));
                peer.send([framing.piece(&body), framing.end().into()].concat());
            }
        });
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("access.log");
        let mut setup = Setup::to(&[origin.address]);
        setup.access_log = AccessLog::open(LogTarget::File(path.clone())).expect("log");
        let usher = setup.start();
        let mut client = usher.client();
        let sent = body(LENGTH);
        for round in 0..2 {
            client.send(framing.request(LENGTH));
            let writer = send_beside(&client, framing, &sent);
            client.head();
            assert!(receive(&mut client, framing, LENGTH) == sent, "{framing:?}");
            writer.join().expect("sent");
            assert_eq!(origin.said(), format!("connection 0 round {round}"));
        }
        drop(client);
        usher.front.stop();
        let log = std::fs::read_to_string(path).expect("log");
        let counted = format!("\"bytes_in\":{LENGTH},\"bytes_out\":{LENGTH},");
        assert_eq!(log.matches(&counted).count(), 2, "{log}");
    });
}

#[test]
fn what_came_before_a_break_is_passed_on() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, _| {
            peer.head();
            peer.send(framing.answer(LENGTH));
            peer.send(framing.piece(&body(HALF)));
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(get("/"));
        client.head();
        let came = match framing {
            Length => client.exactly(HALF),
            Chunked => chunks_to_the_end(&mut client),
        };
        assert!(came == body(HALF), "{framing:?}: {} bytes", came.len());
        client.ended();
    });
}

/// The bytes in chunks until the connection ends, which it does without a last chunk.
fn chunks_to_the_end(peer: &mut Peer) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < HALF {
        let size = usize::from_str_radix(peer.until("\r\n").trim_end(), 16).expect("size");
        body.extend(peer.exactly(size));
        assert_eq!(peer.exactly(2), b"\r\n");
    }
    body
}

#[test]
fn an_answer_that_stalls_is_cut() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, report| {
            peer.head();
            peer.send(framing.answer(LENGTH));
            peer.send(framing.piece(&body(HALF)));
            let _ = report.send(format!("{:?}", peer.rest()));
        });
        let mut setup = Setup::to(&[origin.address]);
        setup.settings.timeouts.body_idle = SHORT;
        let usher = setup.start();
        let mut client = usher.client();
        client.send(get("/"));
        client.head();
        assert!(client.exactly_or_end(LENGTH).is_none());
        assert_eq!(origin.said(), "(\"\", true)");
    });
}

#[test]
fn a_client_that_does_not_read_is_cut_and_stops_the_endpoint_meanwhile() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, report| {
            peer.head();
            peer.send(framing.answer(ENDLESS));
            let sent =
                peer.try_send([framing.piece(&body(ENDLESS)), framing.end().into()].concat());
            let _ = report.send(format!("sent all: {sent}"));
        });
        let mut setup = Setup::to(&[origin.address]);
        setup.settings.timeouts.body_idle = SHORT;
        let usher = setup.start();
        let mut client = usher.client();
        client.send(get("/"));
        assert_eq!(origin.said(), "sent all: false", "{framing:?}");
        client.head();
        assert!(client.exactly_or_end(ENDLESS).is_none());
    });
}

#[test]
fn a_client_that_leaves_ends_the_answer() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, report| {
            peer.head();
            peer.send(framing.answer(ENDLESS));
            let sent =
                peer.try_send([framing.piece(&body(ENDLESS)), framing.end().into()].concat());
            let _ = report.send(format!("sent all: {sent}"));
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(get("/"));
        client.head();
        client.exactly(1);
        drop(client);
        assert_eq!(origin.said(), "sent all: false", "{framing:?}");
    });
}

#[test]
fn an_upload_that_stalls_is_408() {
    both(|framing| {
        let origin = Origin::new(|peer, _, report| drop(report.send(peer.rest().1.to_string())));
        let mut setup = Setup::to(&[origin.address]);
        setup.settings.timeouts.client_body_idle = SHORT;
        let usher = setup.start();
        let mut client = usher.client();
        client.send(framing.request(LENGTH));
        client.send(framing.piece(&body(HALF)));
        assert_eq!(status(&client.message().0), 408, "{framing:?}");
        origin.said();
    });
}

#[test]
fn an_upload_cut_short_cuts_the_request() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, report| {
            peer.head();
            let came = match framing {
                Length => peer.exactly(HALF),
                Chunked => chunks_to_the_end(peer),
            };
            let _ = report.send(format!("{} {:?}", came == body(HALF), peer.rest().0));
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(framing.request(LENGTH));
        client.send(framing.piece(&body(HALF)));
        client.shut();
        assert_eq!(origin.said(), "true \"\"", "{framing:?}");
        client.ended();
    });
}

#[test]
fn an_endpoint_that_does_not_read_is_524() {
    both(|framing| {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let origin = Origin::new(move |peer, _, _| {
            peer.head();
            // Until the test is over.
            let _ = wait.lock().expect("one connection").recv_timeout(PATIENCE);
        });
        let mut setup = Setup::to(&[origin.address]);
        setup.settings.timeouts.response_header = SHORT;
        let usher = setup.start();
        let mut client = usher.client();
        client.send(framing.request(ENDLESS));
        let writer = send_beside(&client, framing, &body(ENDLESS));
        assert_eq!(status(&client.message().0), 524, "{framing:?}");
        writer.join().expect("sent, or not");
        drop(done);
    });
}

#[test]
fn an_early_answer_is_passed_on_while_the_upload_flows() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, report| {
            peer.head();
            peer.send(framing.answer(LENGTH));
            peer.send(framing.piece(&body(LENGTH)[..HALF]));
            let came = receive(peer, framing, LENGTH);
            let _ = report.send((came == body(LENGTH)).to_string());
            peer.send([framing.piece(&body(LENGTH)[HALF..]), framing.end().into()].concat());
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(framing.request(LENGTH));
        client.send(framing.piece(&body(HALF)));
        client.head();
        client.send([framing.piece(&body(LENGTH)[HALF..]), framing.end().into()].concat());
        assert_eq!(origin.said(), "true", "{framing:?}");
        assert!(
            receive(&mut client, framing, LENGTH) == body(LENGTH),
            "{framing:?}"
        );
    });
}

#[test]
fn an_endpoint_that_answers_and_leaves_is_passed_on() {
    both(|framing| {
        let origin = Origin::new(move |peer, _, _| {
            peer.head();
            peer.exactly(HALF / 2);
            peer.answer("413 Content Too Large", "stop");
            peer.shut();
            peer.rest();
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(framing.request(LENGTH));
        client.send(framing.piece(&body(HALF)));
        let (head, said) = client.message();
        assert_eq!((status(&head), &*said), (413, "stop"), "{framing:?}");
    });
}

#[test]
fn an_answer_to_the_end_of_the_connection_is_whole_or_reset() {
    for whole in [true, false] {
        let origin = Origin::new(move |peer, _, _| {
            peer.head();
            if whole {
                peer.send("HTTP/1.1 200 OK\r\n\r\n");
            } else {
                peer.send(Length.answer(LENGTH + 1));
            }
            peer.send(body(LENGTH));
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n"));
        client.head();
        assert!(client.exactly(LENGTH) == body(LENGTH));
        assert_eq!(client.rest(), (String::new(), true));
    }
}

#[test]
fn a_tunnel_carries_much_and_little_both_ways() {
    let pieces = [1, HALF, 9, LENGTH, 100];
    let origin = Origin::new(move |peer, _, report| {
        peer.head();
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        for length in pieces {
            let came = peer.exactly(length);
            peer.send(came);
        }
        let _ = report.send(format!("{:?}", peer.rest()));
        peer.send("farewell");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ));
    client.head();
    for length in pieces {
        let writer = send_beside(&client, Length, &body(length));
        assert!(client.exactly(length) == body(length), "{length} bytes");
        writer.join().expect("sent");
    }
    client.shut();
    assert_eq!(origin.said(), "(\"\", true)");
    assert_eq!(client.rest(), ("farewell".to_owned(), true));
}
