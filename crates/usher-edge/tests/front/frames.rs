//! A client of HTTP/2 that writes whatever frames it is told to.

use std::net::TcpStream;

use crate::kit::{HOST, Peer, Usher};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field in its plainest form: both texts, not compressed, not remembered.
fn text(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 127 {
        out.push(text.len() as u8);
    } else {
        let mut rest = text.len() - 127;
        out.push(127);
        while rest >= 128 {
            out.push(rest as u8 | 128);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        text(&mut out, name.as_bytes());
        text(&mut out, value.as_bytes());
    }
    out
}

/// The head of a GET, with more fields behind it.
pub(crate) fn get(more: &[(&str, &str)]) -> Vec<u8> {
    let head = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", HOST),
    ];
    block(&[&head[..], more].concat())
}

pub(crate) struct Client(pub(crate) Peer);

impl Client {
    /// Connects, and says the first words.
    pub(crate) fn new(usher: &Usher) -> Client {
        let mut client = Client(Peer::new(
            TcpStream::connect(usher.address).expect("connect"),
        ));
        client.0.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.0.send(frame(kind, flags, stream, payload));
    }

    /// The next frame; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let header = self.0.exactly_or_end(9)?;
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let payload = self.0.exactly_or_end(len)?;
        Some(Frame {
            kind: header[3],
            flags: header[4],
            stream,
            payload,
        })
    }

    /// Reads on to a frame of this kind; anything else goes by.
    pub(crate) fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self
                .next()
                .unwrap_or_else(|| panic!("the connection ended before a frame of kind {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The status of the next answer. Ours are answers with few fields, so the status comes first.
    pub(crate) fn status(&mut self) -> u16 {
        let frame = self.until(HEADERS);
        match frame.payload[0] {
            0x88 => 200,
            0x8c => 400,
            0x8d => 404,
            // A literal status, by the index of its name: the value has three digits, compressed
            // or not, so a decoder is asked.
            _ => decode_status(&frame.payload),
        }
    }

    /// The reason of the GOAWAY that ends the connection.
    pub(crate) fn goodbye(&mut self) -> u32 {
        let mut reason = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                let at = |place: usize| frame.payload[place];
                reason = Some(u32::from_be_bytes([at(4), at(5), at(6), at(7)]));
            }
        }
        reason.expect("the connection ended without GOAWAY")
    }
}

/// Digits in the Huffman code of RFC 7541, appendix B: 5 bits for 0..=2, 6 for the others.
fn decode_status(block: &[u8]) -> u16 {
    let (compressed, len) = (block[1] & 0x80 != 0, usize::from(block[1] & 0x7f));
    let value = &block[2..2 + len];
    if !compressed {
        return std::str::from_utf8(value)
            .expect("digits")
            .parse()
            .expect("a status");
    }
    let mut bits = value
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1)));
    let mut status = 0;
    for _ in 0..3 {
        let mut code = (0..5).fold(0, |code, _| code << 1 | bits.next().expect("a bit"));
        let digit = if code < 3 {
            code
        } else {
            code = code << 1 | bits.next().expect("a bit");
            code - 0x19 + 3
        };
        status = status * 10 + digit;
    }
    status
}
