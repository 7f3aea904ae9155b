//! What announces a body. Two announcements, or one that could be read in two ways, is a fault:
//! every smuggled request began as a message whose length two servers counted differently.

use super::{FieldName, Fields, FramingFault, Version};

/// What the two framing fields say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    Nothing,
    Length(u64),
    Chunked,
}

pub(super) fn announced(
    fields: &Fields,
    buf: &[u8],
    version: Version,
) -> Result<Announced, FramingFault> {
    let mut lengths = fields.all(FieldName::ContentLength);
    let mut codings = fields.all(FieldName::TransferEncoding);
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(Announced::Nothing),
        (Some(_), Some(_)) => Err(FramingFault::TeWithCl),
        (Some(_), None) if version == Version::Http10 => Err(FramingFault::TeInHttp10),
        (Some(coding), None) => {
            let chunked = coding.value.of(buf).eq_ignore_ascii_case(b"chunked");
            if chunked && codings.next().is_none() {
                Ok(Announced::Chunked)
            } else {
                Err(FramingFault::TeUnsupported)
            }
        }
        (None, Some(_)) if lengths.next().is_some() => Err(FramingFault::ClRepeated),
        (None, Some(length)) => number(length.value.of(buf))
            .map(Announced::Length)
            .ok_or(FramingFault::ClMalformed),
    }
}

/// Digits only. `str::parse` would take a plus sign.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
