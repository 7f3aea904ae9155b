//! Messages that are nearly right.

use proptest::collection::vec;
use proptest::prelude::*;

use super::laws;

/// Lines that real messages are made of, and some that attacks are made of.
const LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a?b=c HTTP/1.1\r\n",
    "POST http://example.com/a HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "HEAD / HTTP/1.0\r\n",
    "GET /\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 100 Continue\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "Host: example.com\r\n",
    "Host: example.com\r\n",
    "host:example.com:80\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive, X-Hop\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "X-Hop: 1\r\n",
    "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
    "X-Space : 1\r\n",
    " folded\r\n",
    "Expect: 100-continue\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "hello",
    "5\r\nhello\r\n",
    "5;a=b\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nX-Sum: 1\r\n\r\n",
];

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(LINES).prop_map(|line| line.as_bytes().to_vec());
    let well_formed = prop::sample::select(
        &[
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello",
            "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ][..],
    )
    .prop_map(|text| text.as_bytes().to_vec());
    let parts = vec(
        prop_oneof![8 => line, 3 => well_formed, 1 => vec(any::<u8>(), 0..8)],
        1..16,
    );
    let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (parts, damage).prop_map(|(parts, damage)| {
        let mut bytes = parts.concat();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes
    })
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(0_usize..40, 1..6)
}

fn trailers() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let pair = ("x-[a-z]{1,8}", "([!-~]([ -~]{0,20}[!-~])?)?")
        .prop_map(|(name, value)| (name.into_bytes(), value.into_bytes()));
    vec(pair, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_keep_the_laws(input in messages(), sizes in sizes()) {
        laws::of_requests(&input, &sizes);
    }

    #[test]
    fn responses_keep_the_laws(input in messages(), sizes in sizes()) {
        laws::of_responses(&input, &sizes);
    }

    #[test]
    fn chunked_bodies_keep_the_laws(
        input in "(([0-9a-f]{1,2}|1|2)(;[a-z]{0,3})?\r\n[a-z]{0,3}\r\n){0,3}0\r\n(X: [a-z]{0,3}\r\n)?\r\n.{0,3}",
        sizes in sizes(),
    ) {
        laws::of_chunked(input.as_bytes(), &sizes);
    }

    #[test]
    fn bodies_survive_the_way(body in vec(any::<u8>(), 0..300), trailers in trailers(), sizes in sizes()) {
        laws::round_trip(&body, &trailers, &sizes);
    }
}
