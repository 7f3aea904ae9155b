//! What holds for every input, well formed or not. A property test and a fuzz target call the
//! same laws; each panics when it is broken.

use super::http1::{Asked, BodyLength, Method};
use super::walk::{
    End, Message, Pair, chunked, encode_body, forward_request, forward_response, requests,
    responses,
};

/// What an endpoint may have been asked.
pub(crate) const ASKED: [Asked; 3] = [
    Asked {
        method: Method::Get,
        websocket: false,
    },
    Asked {
        method: Method::Head,
        websocket: false,
    },
    Asked {
        method: Method::Get,
        websocket: true,
    },
];

/// Requests mean the same however they arrive, their heads are what a naive reader sees, and what
/// is passed on is one message with the same meaning.
pub(crate) fn of_requests(input: &[u8], sizes: &[usize]) {
    let whole = requests(input, &[]);
    assert_eq!(whole, requests(input, sizes), "depends on how it arrives");
    assert_eq!(whole, requests(input, &[1]), "depends on how it arrives");
    if let Some(first) = whole.0.first() {
        let (line, fields) = naive_head(input);
        let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let version: &[u8] = if first.http11 {
            b"HTTP/1.1"
        } else {
            b"HTTP/1.0"
        };
        assert_eq!(parts, [&first.start[..], &first.target, version]);
        assert_eq!(fields, first.fields);
        naive_framing(first);
    }
    for message in &whole.0 {
        let (seen, end) = requests(&forward_request(message, sizes), sizes);
        assert_eq!(end, End::Clean, "what is passed on is not one message");
        let [seen] = &seen[..] else {
            panic!("what is passed on is not one message: {seen:?}")
        };
        assert_eq!(
            (
                &seen.start,
                &seen.path,
                &seen.forwarded,
                &seen.length,
                &seen.body,
                &seen.trailers
            ),
            (
                &message.start,
                &message.path,
                &message.forwarded,
                &message.length,
                &message.body,
                &message.trailers
            ),
        );
    }
}

/// The same for responses.
pub(crate) fn of_responses(input: &[u8], sizes: &[usize]) {
    for asked in ASKED {
        let whole = responses(input, asked, &[]);
        assert_eq!(
            whole,
            responses(input, asked, sizes),
            "depends on how it arrives"
        );
        assert_eq!(
            whole,
            responses(input, asked, &[1]),
            "depends on how it arrives"
        );
        if let Some(first) = whole.0.first() {
            let (line, fields) = naive_head(input);
            let version: &[u8] = if first.http11 {
                b"HTTP/1.1 "
            } else {
                b"HTTP/1.0 "
            };
            assert!(line.starts_with(&[version, &first.start].concat()));
            assert!(line.ends_with(&first.target));
            assert_eq!(fields, first.fields);
            naive_framing(first);
        }
        for message in &whole.0 {
            let status = String::from_utf8_lossy(&message.start)
                .parse()
                .expect("a status is a number");
            if status == 101 {
                continue; // its fields are this hop's
            }
            let (seen, end) = responses(&forward_response(message, status, sizes), asked, sizes);
            let expected = if message.length == BodyLength::UntilClose {
                End::Closed
            } else {
                End::Clean
            };
            assert_eq!(end, expected, "what is passed on is not one message");
            let [seen] = &seen[..] else {
                panic!("what is passed on is not one message: {seen:?}")
            };
            assert_eq!(
                (
                    &seen.start,
                    &seen.forwarded,
                    &seen.length,
                    &seen.body,
                    &seen.trailers
                ),
                (
                    &message.start,
                    &message.forwarded,
                    &message.length,
                    &message.body,
                    &message.trailers
                ),
            );
        }
    }
}

/// A chunked body means the same however it arrives, ends at the same byte, and what is written of
/// it reads as the same.
pub(crate) fn of_chunked(input: &[u8], sizes: &[usize]) {
    let whole = chunked(input, &[]);
    assert_eq!(whole, chunked(input, sizes), "depends on how it arrives");
    assert_eq!(whole, chunked(input, &[1]), "depends on how it arrives");
    if let Ok((body, trailers, consumed)) = whole {
        assert!(input[..consumed].ends_with(b"\r\n\r\n"));
        assert_eq!(
            chunked(&input[..consumed], &[]),
            Ok((body.clone(), trailers.clone(), consumed))
        );
        round_trip(&body, &trailers, sizes);
    }
}

/// A body and trailers that are allowed survive being written and read.
pub(crate) fn round_trip(body: &[u8], trailers: &[Pair], sizes: &[usize]) {
    let mut out = Vec::new();
    encode_body(BodyLength::Chunked, body, trailers, sizes, &mut out)
        .expect("chunks have no announced length");
    let len = out.len();
    out.extend_from_slice(b"GET / HTTP/1.1\r\n");
    let (seen, seen_trailers, consumed) =
        chunked(&out, sizes).expect("what is written can be read");
    assert_eq!(
        (&seen[..], &seen_trailers[..], consumed),
        (body, trailers, len)
    );

    let mut out = Vec::new();
    let length = BodyLength::Exactly(body.len() as u64);
    encode_body(length, body, &[], sizes, &mut out).expect("the length is its own");
    assert_eq!(out, body);
}

/// The start line and the fields, read without any care.
fn naive_head(input: &[u8]) -> (&[u8], Vec<Pair>) {
    let mut input = input;
    while let Some(rest) = input.strip_prefix(b"\r\n") {
        input = rest;
    }
    let end = input
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a head has an end");
    let mut lines = input[..end]
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let start = lines.next().expect("a head has a first line");
    let fields = lines
        .map(|line| {
            let colon = line
                .iter()
                .position(|&byte| byte == b':')
                .expect("a field has a colon");
            (
                line[..colon].to_vec(),
                line[colon + 1..].trim_ascii().to_vec(),
            )
        })
        .collect();
    (start, fields)
}

/// No accepted message has two lengths.
fn naive_framing(message: &Message) {
    let values = |wanted: &str| -> Vec<String> {
        let named = message
            .fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
        named
            .map(|(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase())
            .collect()
    };
    let (codings, lengths) = (values("transfer-encoding"), values("content-length"));
    assert!(codings.len() + lengths.len() <= 1);
    match message.length {
        BodyLength::Chunked => assert_eq!(codings, ["chunked"]),
        BodyLength::Exactly(bytes) => assert_eq!(lengths[0].parse(), Ok(bytes)),
        BodyLength::Empty | BodyLength::UntilClose => {}
    }
}
