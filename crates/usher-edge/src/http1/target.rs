//! Request targets and authorities.

use super::{Form, Method, RequestFault};

/// A host and port, as offsets into what was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Authority {
    /// Bytes of the host, brackets of an IPv6 address included.
    pub(super) host_len: usize,
    pub(super) port: Option<u16>,
}

/// Longest host taken: the longest DNS name, and a dot.
const HOST_LEN_MAX: usize = 255;

/// Host and optional port; no user information. Names are held to what DNS and `/etc/hosts`
/// use (letters, digits, `-`, `.`, `_`): what else RFC 3986 allows in a name serves only to
/// confuse the next reader.
pub(super) fn authority(bytes: &[u8]) -> Option<Authority> {
    let host_len = if bytes.first() == Some(&b'[') {
        let end = memchr::memchr(b']', bytes)?;
        let address = std::str::from_utf8(&bytes[1..end]).ok()?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        end + 1
    } else {
        let end = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
        let valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if end == 0 || end > HOST_LEN_MAX || !bytes[..end].iter().all(valid) {
            return None;
        }
        end
    };
    let port = match &bytes[host_len..] {
        [] | [b':'] => None,
        [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            let number = digits
                .iter()
                .fold(0_u32, |number, byte| number * 10 + u32::from(byte - b'0'));
            Some(u16::try_from(number).ok()?)
        }
        _ => return None,
    };
    Some(Authority { host_len, port })
}

/// A target taken apart, as offsets into it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) form: Form,
    /// Where the authority stands; empty in the forms that have none.
    pub(super) authority: (usize, usize),
    /// Where path and query begin; they reach to the end.
    pub(super) path: usize,
    /// The port that the scheme means where none is written.
    pub(super) port: u16,
}

pub(super) fn target(bytes: &[u8], method: Method) -> Result<Target, RequestFault> {
    // Visible ASCII without `#`: fragments are never sent, and servers disagree on where a
    // path with one ends.
    if bytes.iter().fold(bytes.is_empty(), |bad, &byte| {
        bad | !(0x21..=0x7e).contains(&byte) | (byte == b'#')
    }) {
        return Err(RequestFault::Target);
    }
    let plain = |form| Target {
        form,
        authority: (0, 0),
        path: 0,
        port: 80,
    };
    if method == Method::Connect {
        let whole = authority(bytes)
            .filter(|authority| authority.port.is_some())
            .ok_or(RequestFault::Target)?;
        debug_assert!(whole.host_len < bytes.len());
        return Ok(Target {
            authority: (0, bytes.len()),
            path: bytes.len(),
            ..plain(Form::Authority)
        });
    }
    if bytes[0] == b'/' {
        return Ok(plain(Form::Origin));
    }
    if bytes == b"*" && method == Method::Options {
        return Ok(plain(Form::Asterisk));
    }
    let has_scheme = |scheme: &[u8]| {
        bytes
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let (start, port) = match () {
        () if has_scheme(b"http://") => (7, 80),
        () if has_scheme(b"https://") => (8, 443),
        () => return Err(RequestFault::Target),
    };
    let end = memchr::memchr2(b'/', b'?', &bytes[start..]).map_or(bytes.len(), |at| start + at);
    // A query straight behind the authority is legal and unheard of; to pass it on, the target
    // would have to be built anew.
    if bytes.get(end) == Some(&b'?') || authority(&bytes[start..end]).is_none() {
        return Err(RequestFault::Target);
    }
    Ok(Target {
        form: Form::Absolute,
        authority: (start, end),
        path: end,
        port,
    })
}
