//! Bytes in and out of one stream, either side: flow control, and the stream as a tunnel.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::ReadBuf;

use crate::http::client::Answer;
use crate::http1::EncodeFault;

/// Bytes that are copied into one DATA frame at a time.
const PIECE_MAX: usize = 16 * 1024;

/// Fields of an ordinary request.
const FIELDS_USUAL: usize = 16;

/// The stream was reset, or its connection is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl From<Gone> for io::Error {
    fn from(Gone: Gone) -> io::Error {
        io::ErrorKind::ConnectionReset.into()
    }
}

/// Room for at most `wanted` bytes of body.
pub(crate) fn poll_room(
    send: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    wanted: usize,
) -> Poll<Result<usize, Gone>> {
    send.reserve_capacity(wanted.min(PIECE_MAX));
    while send.capacity() == 0 {
        match ready!(send.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Poll::Ready(Err(Gone)),
        }
    }
    Poll::Ready(Ok(send.capacity().min(wanted)))
}

/// Sends what there is room for of `bytes`: how much, at least one byte. The stream ends with the
/// last of `left` bytes, where that is known.
pub(crate) fn poll_send(
    send: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    bytes: &[u8],
    left: Option<u64>,
) -> Poll<Result<Bytes, Gone>> {
    let room = ready!(poll_room(send, cx, bytes.len()))?;
    let sent = Bytes::copy_from_slice(&bytes[..room]);
    let queued = send.send_data(sent.clone(), left == Some(room as u64));
    Poll::Ready(queued.map(|()| sent).map_err(|_| Gone))
}

/// Waits until there are bytes in `piece`. False: the body is over; trailers may follow.
pub(crate) fn poll_piece(
    receive: &mut RecvStream,
    piece: &mut Bytes,
    cx: &mut Context<'_>,
) -> Poll<Result<bool, h2::Error>> {
    while piece.is_empty() {
        match ready!(receive.poll_data(cx)) {
            Some(data) => *piece = data?,
            None => return Poll::Ready(Ok(false)),
        }
    }
    Poll::Ready(Ok(true))
}

/// `count` bytes of `piece` are used, and the other side may send as many more.
pub(crate) fn advance(receive: &mut RecvStream, piece: &mut Bytes, count: usize) {
    piece.advance(count);
    // Fails for a stream that is gone, which needs no more room.
    let _ = receive.flow_control().release_capacity(count);
}

/// Reads a tunnel.
pub(crate) fn poll_read(
    receive: &mut RecvStream,
    piece: &mut Bytes,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    match ready!(poll_piece(receive, piece, cx)) {
        Ok(true) => {
            let count = piece.len().min(buf.remaining());
            buf.put_slice(&piece[..count]);
            advance(receive, piece, count);
        }
        Ok(false) => {}
        // RFC 8441: where TCP would be reset, the stream is.
        Err(error) if error.reason() == Some(Reason::NO_ERROR) => {}
        Err(_) => return Poll::Ready(Err(Gone.into())),
    }
    Poll::Ready(Ok(()))
}

/// Writes to a tunnel.
pub(crate) fn poll_write(
    send: Option<&mut SendStream<Bytes>>,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    let sent = ready!(poll_send(send.ok_or(Gone)?, cx, bytes, None))?;
    Poll::Ready(Ok(sent.len()))
}

/// Ends one direction of a tunnel.
pub(crate) fn shutdown(send: Option<&mut SendStream<Bytes>>) -> io::Result<()> {
    let ended = send.ok_or(Gone)?.send_data(Bytes::new(), true);
    ended.map_err(|_| Gone.into())
}

/// The fields of an answer that go on to the client. One copy of the head holds all their values.
pub(crate) fn forwarded(answer: &Answer<'_>) -> Result<HeaderMap, EncodeFault> {
    let head = Bytes::copy_from_slice(&answer.bytes[..answer.head.len]);
    let fields = answer.head.fields.iter().filter(|field| field.forwarded);
    // And perhaps a length.
    let mut map = HeaderMap::with_capacity(answer.head.fields.iter().len() + 1);
    for field in fields {
        let name = HeaderName::from_bytes(field.name.of(&head));
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value.of(&head)));
        map.append(
            name.map_err(|_| EncodeFault::FieldName)?,
            value.map_err(|_| EncodeFault::FieldValue)?,
        );
    }
    Ok(map)
}

/// Fields as `h2` takes them.
pub(crate) fn headers<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<HeaderMap, EncodeFault> {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name).map_err(|_| EncodeFault::FieldName)?;
        let value = HeaderValue::from_bytes(value).map_err(|_| EncodeFault::FieldValue)?;
        map.append(name, value);
    }
    Ok(map)
}

/// The fields that `lines` hold in the form of HTTP/1.1. Those bytes hold all their values.
pub(crate) fn headers_of(lines: Vec<u8>) -> Result<HeaderMap, EncodeFault> {
    let lines = Bytes::from(lines);
    let mut map = HeaderMap::with_capacity(FIELDS_USUAL);
    let mut rest = &lines[..];
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (line, below) = rest.split_at(end + 1);
        rest = below;
        let line = line.trim_ascii_end();
        let colon = memchr::memchr(b':', line).ok_or(EncodeFault::FieldName)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii_start());
        let name = HeaderName::from_bytes(name).map_err(|_| EncodeFault::FieldName)?;
        let value = HeaderValue::from_maybe_shared(lines.slice_ref(value));
        map.append(name, value.map_err(|_| EncodeFault::FieldValue)?);
    }
    Ok(map)
}

/// The fields of a map, as bytes.
pub(crate) fn fields(map: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    map.iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}
