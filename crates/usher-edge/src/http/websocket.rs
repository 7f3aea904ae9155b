//! The start of a WebSocket over HTTP/1.1, for a client that came over HTTP/2 and has no part in it.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// RFC 6455, 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What we send, and what the endpoint must answer to prove that it understood.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// `Sec-WebSocket-Key`.
    pub(crate) key: String,
    /// `Sec-WebSocket-Accept`.
    pub(crate) accept: String,
}

impl Handshake {
    /// With 128 bits that no cache has seen; they keep no secret.
    pub(crate) fn new(high: u64, low: u64) -> Handshake {
        let nonce = u128::from(high) << 64 | u128::from(low);
        let key = STANDARD.encode(nonce.to_be_bytes());
        let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), GUID].concat());
        Handshake {
            accept: STANDARD.encode(proof),
            key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 6455, 1.3: the bytes 0x01 to 0x10.
        let handshake = Handshake::new(0x0102_0304_0506_0708, 0x090a_0b0c_0d0e_0f10);
        assert_eq!(handshake.key, "AQIDBAUGBwgJCgsMDQ4PEA==");
        assert_eq!(handshake.accept, "C/0nmHhBztSRGR1CwL6Tf4ZjwpY=");
    }
}
