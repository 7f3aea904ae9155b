//! Reads whole connections through the codec, as a front would, and tells what it understood.
//! Used by the tests here and by the fuzz targets.

use super::http1::*;

/// A message as it was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Method, or status.
    pub(crate) start: Vec<u8>,
    /// Target, or reason.
    pub(crate) target: Vec<u8>,
    /// What an endpoint is asked for; empty in responses.
    pub(crate) path: Vec<u8>,
    pub(crate) http11: bool,
    pub(crate) authority: Vec<u8>,
    pub(crate) fields: Vec<Pair>,
    pub(crate) forwarded: Vec<Pair>,
    pub(crate) length: BodyLength,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<Pair>,
    pub(crate) keep_alive: bool,
}

pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// How the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Between two messages.
    Clean,
    /// Inside a head.
    Head,
    /// A message asked for it; what follows is not read.
    Closed,
    /// Another protocol follows.
    Switched,
    Fault(&'static str),
}

/// Everything that was understood, and how it ended.
pub(crate) type Transcript = (Vec<Message>, End);

/// Input that arrives in pieces of the given sizes, over and over; whole if there are none.
struct Wire<'a> {
    rest: &'a [u8],
    sizes: Vec<usize>,
    turn: usize,
    buf: Vec<u8>,
}

impl<'a> Wire<'a> {
    fn new(input: &'a [u8], sizes: &[usize]) -> Wire<'a> {
        Wire {
            rest: input,
            sizes: sizes.to_vec(),
            turn: 0,
            buf: Vec::new(),
        }
    }

    /// Whether there was more.
    fn receive(&mut self) -> bool {
        let size = match self.sizes.len() {
            0 => self.rest.len(),
            count => self.sizes[self.turn % count].clamp(1, self.rest.len().max(1)),
        };
        self.turn += 1;
        let (piece, rest) = self.rest.split_at(size.min(self.rest.len()));
        self.buf.extend_from_slice(piece);
        self.rest = rest;
        !piece.is_empty()
    }

    fn body(&mut self, decoder: &mut BodyDecoder) -> Result<Vec<u8>, BodyFault> {
        let mut body = Vec::new();
        loop {
            let (used, event) = decoder.decode(&self.buf)?;
            assert!(used <= self.buf.len());
            let ended = match event {
                BodyEvent::Data(range) => {
                    assert!(!range.is_empty() && range.end <= used);
                    body.extend_from_slice(&self.buf[range]);
                    false
                }
                BodyEvent::NeedMore => {
                    assert_eq!(used, self.buf.len());
                    self.buf.clear();
                    if !self.receive() {
                        decoder.eof()?;
                        return Ok(body);
                    }
                    continue;
                }
                BodyEvent::End => true,
            };
            self.buf.drain(..used);
            if ended {
                assert!(decoder.is_done());
                return Ok(body);
            }
        }
    }
}

/// Reads requests until the input, the connection or the patience of the codec ends.
pub(crate) fn requests(input: &[u8], sizes: &[usize]) -> Transcript {
    let limits = HeadLimits::default();
    let mut wire = Wire::new(input, sizes);
    let mut head = RequestHead::new();
    let mut messages = Vec::new();
    let end = loop {
        match parse_request(&wire.buf, &limits, &mut head) {
            Err(fault) => break End::Fault(fault.as_str()),
            Ok(Parsed::Partial) => {
                if !wire.receive() {
                    break if wire.buf.is_empty() {
                        End::Clean
                    } else {
                        End::Head
                    };
                }
                continue;
            }
            Ok(Parsed::Complete) => {}
        }
        let buf = &wire.buf;
        let mut message = Message {
            start: head.method_name.of(buf).to_vec(),
            target: head.target.of(buf).to_vec(),
            path: head.path(buf).to_vec(),
            http11: head.version == Version::Http11,
            authority: head.authority.of(buf).to_vec(),
            fields: pairs(buf, &head.fields, |_| true),
            forwarded: pairs(buf, &head.fields, |field| field.forwarded),
            length: head.body,
            body: Vec::new(),
            trailers: Vec::new(),
            keep_alive: head.keep_alive,
        };
        assert_ne!(head.body, BodyLength::UntilClose);
        wire.buf.drain(..head.len);
        let mut decoder = BodyDecoder::new(head.body, &limits);
        match wire.body(&mut decoder) {
            Ok(body) => message.body = body,
            Err(fault) => break End::Fault(fault.as_str()),
        }
        message.trailers = owned(decoder.trailers());
        messages.push(message);
        if !head.keep_alive {
            break End::Closed;
        }
    };
    (messages, end)
}

/// Reads responses, as if the same had been asked for each of them.
pub(crate) fn responses(input: &[u8], asked: Asked, sizes: &[usize]) -> Transcript {
    let limits = HeadLimits::default();
    let mut wire = Wire::new(input, sizes);
    let mut head = ResponseHead::new();
    let mut messages = Vec::new();
    let end = loop {
        match parse_response(&wire.buf, &limits, asked, &mut head) {
            Err(fault) => break End::Fault(fault.as_str()),
            Ok(Parsed::Partial) => {
                if !wire.receive() {
                    break if wire.buf.is_empty() {
                        End::Clean
                    } else {
                        End::Head
                    };
                }
                continue;
            }
            Ok(Parsed::Complete) => {}
        }
        let buf = &wire.buf;
        let mut message = Message {
            start: head.status.to_string().into_bytes(),
            target: head.reason.of(buf).to_vec(),
            path: Vec::new(),
            http11: head.version == Version::Http11,
            authority: Vec::new(),
            fields: pairs(buf, &head.fields, |_| true),
            forwarded: pairs(buf, &head.fields, |field| field.forwarded),
            length: head.body,
            body: Vec::new(),
            trailers: Vec::new(),
            keep_alive: head.keep_alive,
        };
        assert!(head.body != BodyLength::UntilClose || !head.keep_alive);
        wire.buf.drain(..head.len);
        let mut decoder = BodyDecoder::new(head.body, &limits);
        match wire.body(&mut decoder) {
            Ok(body) => message.body = body,
            Err(fault) => break End::Fault(fault.as_str()),
        }
        message.trailers = owned(decoder.trailers());
        messages.push(message);
        match head.kind {
            ResponseKind::Switching => break End::Switched,
            ResponseKind::Final if !head.keep_alive => break End::Closed,
            ResponseKind::Interim | ResponseKind::Final => {}
        }
    };
    (messages, end)
}

/// Reads a chunked body: data, trailers, and how many bytes it took.
pub(crate) fn chunked(
    input: &[u8],
    sizes: &[usize],
) -> Result<(Vec<u8>, Vec<Pair>, usize), BodyFault> {
    let mut wire = Wire::new(input, sizes);
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, &HeadLimits::default());
    let body = wire.body(&mut decoder)?;
    let consumed = input.len() - wire.rest.len() - wire.buf.len();
    Ok((body, owned(decoder.trailers()), consumed))
}

/// Writes a request on towards an endpoint. The body goes in pieces of the given sizes.
pub(crate) fn forward_request(message: &Message, sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    write_request_line(&mut out, &message.start, &message.path)
        .expect("a parsed line can be written");
    let host = if message.authority.is_empty() {
        b"example.com"
    } else {
        &message.authority[..]
    };
    write_field(&mut out, b"host", host).expect("a parsed host can be written");
    finish(message, sizes, out)
}

/// Writes a response on towards a client, on a connection that then closes.
pub(crate) fn forward_response(message: &Message, status: u16, sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    write_status_line(&mut out, status, &message.target).expect("a parsed line can be written");
    finish(message, sizes, out)
}

fn finish(message: &Message, sizes: &[usize], mut out: Vec<u8>) -> Vec<u8> {
    for (name, value) in &message.forwarded {
        write_field(&mut out, name, value).expect("a parsed field can be written");
    }
    write_framing(&mut out, message.length);
    end_head(&mut out);
    encode_body(
        message.length,
        &message.body,
        &message.trailers,
        sizes,
        &mut out,
    )
    .expect("the length is its own");
    out
}

/// Appends a body in pieces of the given sizes.
pub(crate) fn encode_body(
    length: BodyLength,
    mut body: &[u8],
    trailers: &[Pair],
    sizes: &[usize],
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    let mut encoder = BodyEncoder::new(length);
    for turn in 0.. {
        let size = match sizes.len() {
            0 => body.len(),
            // Pieces of 0 bytes are among them, and must do no harm; but not only they.
            count => sizes[turn % count]
                .max(usize::from(turn % count == 0))
                .min(body.len()),
        };
        let (piece, rest) = body.split_at(size);
        let frame = encoder.frame(piece.len())?;
        out.extend_from_slice(frame.before());
        out.extend_from_slice(piece);
        out.extend_from_slice(frame.after());
        body = rest;
        if body.is_empty() {
            break;
        }
    }
    encoder.finish(
        trailers.iter().map(|(name, value)| (&name[..], &value[..])),
        out,
    )
}

fn pairs(buf: &[u8], fields: &Fields, keep: impl Fn(&Field) -> bool) -> Vec<Pair> {
    owned(
        fields
            .iter()
            .filter(|field| keep(field))
            .map(|field| (field.name.of(buf), field.value.of(buf))),
    )
}

fn owned<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Pair> {
    pairs
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}
