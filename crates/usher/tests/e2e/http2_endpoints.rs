//! HTTP/2 to endpoints: shared connections, and what is sent again when one breaks.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use serde_json::json;

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::http2::{self, Client, block_on};
use crate::support::http2_endpoint::{Call, Played, Served, serve, serve_tls};
use crate::support::process::Folder;
use crate::support::tls::Authority;
use crate::support::{Config, Endpoint, PATIENCE, Usher};

const SETTINGS_MAX_CONCURRENT_STREAMS: u8 = 3;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

/// Every connection is served by a well-behaved HTTP/2 server that does `handle` with each stream.
fn speaking(handle: impl Fn(Call) -> Served + Send + Sync + 'static) -> Endpoint {
    Endpoint::scripted(move |visit| serve(visit, &Builder::new(), &handle))
}

fn config(endpoint: &Endpoint) -> Config {
    Config::serving([endpoint.origin("a")]).set(&["pools", "main", "usher", "http2"], json!(true))
}

fn url(path: &str) -> String {
    format!("http://{HOST}{path}")
}

/// An endpoint that answers with its path, and the heads of the requests that reached it.
fn recording() -> (Endpoint, Receiver<Request<()>>) {
    let (arrivals, arrived) = channel();
    let arrivals = Arc::new(Mutex::new(arrivals));
    let endpoint = speaking(move |mut call| {
        let arrivals = Arc::clone(&arrivals);
        Box::pin(async move {
            let path = call.request.uri().path().to_owned();
            let head = std::mem::replace(&mut call.request, Request::new(()));
            let _ = arrivals.lock().unwrap().send(head);
            call.ok(path);
        })
    });
    (endpoint, arrived)
}

#[test]
fn a_request_of_http_1_becomes_one_of_http_2() {
    let (endpoint, arrived) = recording();
    let usher = Usher::start(&config(&endpoint));
    let mut wire = usher.connect();
    wire.send(format!(
        "GET /a?b HTTP/1.1\r\nHost: {HOST}\r\nTE: trailers\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Kept: 2\r\n\r\n"
    ));
    let answer = wire.response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "/a"));
    let head = arrived.recv_timeout(PATIENCE).unwrap();
    assert_eq!(head.uri().to_string(), format!("http://{HOST}/a?b"));
    assert_eq!(head.version(), Version::HTTP_2);
    assert_eq!(head.headers()["x-kept"], "2");
    assert_eq!(head.headers()["x-forwarded-for"], "127.0.0.1");
    for name in ["host", "te", "x-hop", "connection", "transfer-encoding"] {
        assert!(!head.headers().contains_key(name), "{name}");
    }
    assert_eq!(usher.access_log(1)[0]["status"], 200);
}

#[test]
fn requests_share_connections() {
    let (endpoint, _arrived) = recording();
    let usher = Usher::start(&config(&endpoint));
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        for _ in 0..5 {
            let requests = (0..20).map(|nth| {
                let mut client = Client(client.0.clone());
                tokio::spawn(async move {
                    let path = format!("/{nth}");
                    let answer = client.get(&url(&path)).await.unwrap();
                    assert_eq!(answer.body, path.as_bytes());
                })
            });
            for request in requests.collect::<Vec<_>>() {
                request.await.unwrap();
            }
        }
        client.get(&url("/end")).await.unwrap();
    });
    assert_eq!(endpoint.connections(), 1, "one client, one worker");
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    let endpoint = speaking(|mut call| {
        Box::pin(async move {
            let (body, trailers) = call.read().await.unwrap();
            assert_eq!(call.request.headers()["te"], "trailers");
            let mut send = call.head(Response::new(()));
            let said = format!("{} {:?}", body.len(), trailers["x-sum"]);
            send.send_data(said.into(), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            send.send_trailers(trailers).unwrap();
        })
    });
    let usher = Usher::start(&config(&endpoint));
    let answer = block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let request = Request::post(url("/")).header("te", "trailers");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        let body = Bytes::from(vec![7; 300_000]);
        let request = request.body(()).unwrap();
        client
            .exchange(request, Some(body), Some(trailers))
            .await
            .unwrap()
    });
    assert_eq!(answer.body, b"300000 \"42\"");
    assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
    // And from a client of HTTP/1.1.
    let mut wire = usher.connect();
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    ));
    // It did not say that it takes trailers, so the endpoint is not told so.
    assert_eq!(wire.response().status(), 520);
}

#[test]
fn a_long_answer_flows_as_the_client_reads() {
    const LENGTH: usize = 3_000_000;
    let endpoint = speaking(|mut call| {
        Box::pin(async move {
            let mut send = call.head(Response::new(()));
            let mut left = LENGTH;
            while left > 0 {
                send.reserve_capacity(left);
                let Some(Ok(room)) = std::future::poll_fn(|cx| send.poll_capacity(cx)).await else {
                    return;
                };
                let piece = room.min(left);
                left -= piece;
                send.send_data(vec![1; piece].into(), left == 0).unwrap();
            }
        })
    });
    let usher = Usher::start(&config(&endpoint));
    assert_eq!(usher.get("/").body.len(), LENGTH);
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        // One that does not read does not stop the others.
        let mut stuck = client.0.clone().ready().await.unwrap();
        let request = Request::get(url("/stuck")).body(()).unwrap();
        let (response, _) = stuck.send_request(request, true).unwrap();
        let _unread = response.await.unwrap();
        let mut other = Client::plain(usher.address("http")).await;
        assert_eq!(other.get(&url("/")).await.unwrap().body.len(), LENGTH);
    });
}

#[test]
fn interim_answers_are_passed_on() {
    let endpoint = speaking(|mut call| {
        Box::pin(async move {
            let hints = Response::builder().status(103).header("link", "</a>");
            call.respond
                .send_informational(hints.body(()).unwrap())
                .unwrap();
            call.ok("done");
        })
    });
    let usher = Usher::start(&config(&endpoint));
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    let hints = wire.response();
    assert_eq!((hints.status(), hints.field("link")), (103, Some("</a>")));
    assert_eq!(wire.response().text(), "done");
}

#[test]
fn an_answer_may_come_before_the_request_is_read() {
    let endpoint = speaking(|mut call| {
        Box::pin(async move {
            let answer = Response::builder().status(403).body(()).unwrap();
            call.respond.send_response(answer, true).unwrap();
        })
    });
    let usher = Usher::start(&config(&endpoint));
    let mut wire = usher.connect();
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000000\r\n\r\nabc"
    ));
    assert_eq!(wire.response().status(), 403);
}

#[test]
fn a_client_that_leaves_takes_its_stream_back() {
    let (said, resets) = channel();
    let said = Arc::new(Mutex::new(said));
    let endpoint = Endpoint::scripted(move |visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        let Some(frame) = played.next(http2::HEADERS) else {
            return;
        };
        visit_said(&said, 0);
        if let Some(reset) = played.next(http2::RST_STREAM) {
            assert_eq!(reset.stream, frame.stream);
            let code = u32::from_be_bytes(reset.payload[..4].try_into().unwrap());
            visit_said(&said, code);
        }
        played.next(http2::GOAWAY);
    });
    let usher = Usher::start(&config(&endpoint));
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    assert_eq!(resets.recv_timeout(PATIENCE).unwrap(), 0);
    drop(wire);
    assert_eq!(resets.recv_timeout(PATIENCE).unwrap(), CANCEL);
    assert_eq!(usher.access_log(1)[0]["status"], 499);
}

fn visit_said(said: &Mutex<std::sync::mpsc::Sender<u32>>, code: u32) {
    let _ = said.lock().unwrap().send(code);
}

/// A head of status 200 that ends the stream.
const OK_HEAD: [u8; 1] = [0x88];

fn answer(played: &mut Played, stream: u32) {
    let flags = http2::END_HEADERS | http2::END_STREAM;
    played.send(http2::HEADERS, flags, stream, &OK_HEAD);
}

/// Posts with a body, on a connection of its own.
fn post(usher: &Usher) -> u16 {
    let mut wire = usher.connect();
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc"
    ));
    wire.response().status()
}

#[test]
fn a_refused_stream_is_sent_again_whatever_it_asks() {
    let endpoint = Endpoint::scripted(|visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        let mut nth = 0;
        while let Some(frame) = played.next(http2::HEADERS) {
            nth += 1;
            if nth < 3 {
                let code = REFUSED_STREAM.to_be_bytes();
                played.send(http2::RST_STREAM, 0, frame.stream, &code);
            } else {
                let data = played.next(http2::DATA).unwrap();
                assert_eq!(data.payload, b"abc");
                answer(&mut played, frame.stream);
            }
        }
    });
    let usher = Usher::start(&config(&endpoint));
    assert_eq!(post(&usher), 200);
    let line = &usher.access_log(1)[0];
    assert_eq!(line["attempts"], 1, "this is no failover: {line}");
}

#[test]
fn one_that_refuses_everything_is_left_alone_in_the_end() {
    let endpoint = Endpoint::scripted(|visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        while let Some(frame) = played.next(http2::HEADERS) {
            let code = REFUSED_STREAM.to_be_bytes();
            played.send(http2::RST_STREAM, 0, frame.stream, &code);
        }
    });
    let usher = Usher::start(&config(&endpoint));
    assert_eq!(post(&usher), 520);
    assert_eq!(usher.access_log(1)[0]["error"], "no-answer");
}

#[test]
fn after_goaway_what_was_not_looked_at_goes_to_a_new_connection() {
    let endpoint = Endpoint::scripted(|visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        while let Some(frame) = played.next(http2::HEADERS) {
            if visit.nth == 0 {
                // It looked at nothing.
                played.send(http2::GOAWAY, 0, 0, &[0; 8]);
                continue;
            }
            assert_eq!(played.next(http2::DATA).unwrap().payload, b"abc");
            answer(&mut played, frame.stream);
        }
    });
    let usher = Usher::start(&config(&endpoint));
    assert_eq!(post(&usher), 200);
    assert_eq!(endpoint.connections(), 2);
    assert_eq!(usher.access_log(1)[0]["attempts"], 1);
}

#[test]
fn after_goaway_what_was_looked_at_is_answered_and_nothing_new_begins() {
    let endpoint = Endpoint::scripted(|visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        while let Some(frame) = played.next(http2::HEADERS) {
            if visit.nth == 0 {
                let goaway = [&frame.stream.to_be_bytes()[..], &[0; 4]].concat();
                played.send(http2::GOAWAY, 0, 0, &goaway);
            }
            answer(&mut played, frame.stream);
        }
    });
    let usher = Usher::start(&config(&endpoint));
    let mut wire = usher.connect();
    for _ in 0..3 {
        assert_eq!(wire.get(HOST, "/").status(), 200);
    }
    assert_eq!(endpoint.connections(), 2);
}

#[test]
fn a_connection_that_dies_is_replaced_for_what_may_be_done_twice() {
    let endpoint = Endpoint::scripted(|visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        let mut nth = 0;
        while let Some(frame) = played.next(http2::HEADERS) {
            nth += 1;
            if nth == 2 {
                return; // the connection goes with the stream on it
            }
            answer(&mut played, frame.stream);
        }
    });
    let usher = Usher::start(&config(&endpoint));
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/1").status(), 200);
    assert_eq!(wire.get(HOST, "/2").status(), 200);
    assert_eq!(endpoint.connections(), 2);
    // A POST may have been carried out.
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc"
    ));
    assert_eq!(wire.response().status(), 520);
}

#[test]
fn more_streams_than_one_connection_takes_need_several() {
    let waiting = Arc::new(tokio::sync::Barrier::new(6));
    let endpoint = Endpoint::scripted(move |visit| {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(2);
        let waiting = Arc::clone(&waiting);
        serve(visit, &builder, move |mut call| {
            let waiting = Arc::clone(&waiting);
            Box::pin(async move {
                waiting.wait().await; // six are there at once, or nobody is answered
                call.ok("done");
            })
        });
    });
    let usher = Usher::start(&config(&endpoint));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let requests = (0..6).map(|_| {
            let mut client = Client(client.0.clone());
            tokio::spawn(async move { client.get(&url("/")).await.unwrap().status })
        });
        for request in requests.collect::<Vec<_>>() {
            assert_eq!(request.await.unwrap(), StatusCode::OK);
        }
    });
    assert!(endpoint.connections() >= 3, "{}", endpoint.connections());
}

#[test]
fn one_that_takes_no_stream_is_no_endpoint() {
    let endpoint = Endpoint::scripted(|visit| {
        let none = [0, SETTINGS_MAX_CONCURRENT_STREAMS, 0, 0, 0, 0];
        if let Some(mut played) = Played::on(visit, &none) {
            played.next(http2::GOAWAY);
        }
    });
    let usher = Usher::start(&config(&endpoint));
    assert_eq!(usher.get("/").status(), 520);
    assert_eq!(usher.access_log(1)[0]["error"], "no-http2");
}

#[test]
fn where_http_2_is_not_spoken_the_other_endpoint_is_asked() {
    let deaf = Endpoint::answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let usher = Usher::start(&config(&deaf));
    assert_eq!(usher.get("/").status(), 520);
    let (fluent, _arrived) = recording();
    let both = Config::serving([deaf.origin("a"), fluent.origin("b")])
        .set(&["pools", "main", "usher", "http2"], json!(true));
    let usher = Usher::start(&both);
    for _ in 0..8 {
        assert_eq!(usher.get("/").status(), 200);
    }
}

fn secure(endpoint: &Endpoint, authority: &Authority) -> Usher {
    let folder = Folder::new();
    folder.write("ca.pem", authority.pem());
    let usher = json!({"tls": "strict", "ca": "ca.pem", "http2": true});
    let config = config(endpoint).set(&["pools", "main", "usher"], usher);
    folder.write("usher.yaml", config.text());
    Usher::start_in(folder)
}

#[test]
fn under_tls_the_endpoint_chooses_http_2() {
    let authority = Authority::new();
    let server = authority.pair(&[HOST]).server(&["h2", "http/1.1"]);
    let endpoint = Endpoint::scripted(move |visit| {
        serve_tls(visit, Arc::clone(&server), &Builder::new(), |mut call| {
            Box::pin(async move {
                let scheme = call.request.uri().scheme_str().unwrap().to_owned();
                call.ok(scheme);
            })
        });
    });
    let usher = secure(&endpoint, &authority);
    let mut wire = usher.connect();
    for _ in 0..3 {
        assert_eq!(wire.get(HOST, "/").text(), "https");
    }
    assert_eq!(endpoint.connections(), 1);
}

#[test]
fn under_tls_the_endpoint_may_choose_http_1() {
    let authority = Authority::new();
    let pair = authority.pair(&[HOST]);
    let endpoint = Endpoint::scripted(move |visit| {
        let Some(mut wire) = pair.accept(visit.take_socket()) else {
            return;
        };
        while wire.request().is_some() {
            wire.send(ok("http/1.1"));
        }
    });
    let usher = secure(&endpoint, &authority);
    let mut wire = usher.connect();
    for _ in 0..3 {
        assert_eq!(wire.get(HOST, "/").text(), "http/1.1");
    }
    assert_eq!(endpoint.connections(), 1, "the first one is used");
}

#[test]
fn a_silent_stream_runs_into_its_deadline_and_the_others_do_not() {
    let endpoint = speaking(|mut call| {
        Box::pin(async move {
            if call.request.uri().path() == "/silent" {
                std::future::pending::<()>().await;
            }
            call.ok("done");
        })
    });
    let usher = Usher::start(&config(&endpoint).timeout("response_header", "3s"));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let mut silent = Client(client.0.clone());
        let silent = tokio::spawn(async move { silent.get(&url("/silent")).await });
        let mut other = Client(client.0.clone());
        assert_eq!(other.get(&url("/")).await.unwrap().body, b"done");
        let answer = silent.await.unwrap().unwrap();
        assert_eq!(answer.status.as_u16(), 524);
        assert_eq!(other.get(&url("/")).await.unwrap().body, b"done");
    });
    assert_eq!(endpoint.connections(), 1);
}

#[test]
fn an_idle_connection_is_closed_in_an_orderly_way() {
    let (said, goodbyes) = channel();
    let said = Arc::new(Mutex::new(said));
    let endpoint = Endpoint::scripted(move |visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        let frame = played.next(http2::HEADERS).unwrap();
        answer(&mut played, frame.stream);
        let goaway = played.next(http2::GOAWAY).unwrap();
        let code = u32::from_be_bytes(goaway.payload[4..8].try_into().unwrap());
        visit_said(&said, code);
    });
    let usher = Usher::start(&config(&endpoint).timeout("upstream_keep_alive", "1s"));
    assert_eq!(usher.get("/").status(), 200);
    assert_eq!(goodbyes.recv_timeout(PATIENCE).unwrap(), 0);
}

#[test]
fn a_reset_from_the_endpoint_is_its_fault() {
    let endpoint = Endpoint::scripted(|visit| {
        let Some(mut played) = Played::on(visit, &[]) else {
            return;
        };
        while let Some(frame) = played.next(http2::HEADERS) {
            let code = 2_u32.to_be_bytes();
            played.send(http2::RST_STREAM, 0, frame.stream, &code);
        }
    });
    let usher = Usher::start(&config(&endpoint));
    assert_eq!(usher.get("/").status(), 520);
    assert_eq!(usher.access_log(1)[0]["error"], "stream-reset");
}
