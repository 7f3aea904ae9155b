//! Bytes that were received and not yet used.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Room that is made before reading.
const READ_SIZE: usize = 16 * 1024;

/// A buffer in front of a reader. It grows with a head, which is bounded, and never with a body.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: BytesMut,
}

impl Inbox {
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    /// Reads once. 0: the other side will send nothing more.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> io::Result<usize> {
        self.bytes.reserve(READ_SIZE);
        reader.read_buf(&mut self.bytes).await
    }

    /// Gives its memory back while nothing is in it: idle connections are many.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }
}
