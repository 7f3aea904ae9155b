//! Finds the lines of a head, once each, however slowly they arrive.
//!
//! `httparse` starts over on every call and takes a bare LF for a line end. So lines are found
//! here, with what is left of the last call remembered, and only a whole head is tokenised: a head
//! that trickles in byte by byte costs the same as one that comes at once, and limits strike
//! before its end is there.

use std::ops::Range;

use memchr::memchr;

use super::{Field, FieldName, Fields, HeadFault, HeadLimits, Span};

/// Empty lines taken before a request line. RFC 9112 2.2 asks for at least one, for clients
/// that send a CRLF too many behind a body.
pub(super) const EMPTY_LINES_MAX: u8 = 4;

/// How far the lines of a head are known.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    /// Where the line begins whose end is not found.
    line: usize,
    /// No line feed stands between `line` and here.
    seen: usize,
    /// Where the fields begin, once the start line ended.
    section: Option<usize>,
    fields: usize,
    empty_lines: u8,
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The line is not whole. See [`Scan::start`].
    Partial,
    /// The start line, without its CRLF.
    Start(Range<usize>),
    /// A field line that is not a fold.
    Field,
    /// The empty line; the head, empty lines before it included, has that many bytes.
    End { len: usize },
}

impl Scan {
    /// For a section without a start line: trailers.
    pub(super) fn trailers() -> Scan {
        Scan {
            section: Some(0),
            ..Scan::default()
        }
    }

    /// Where the fields begin. Only after [`Step::Start`].
    pub(super) fn section(&self) -> usize {
        self.section.unwrap_or_default()
    }

    /// How many field lines were found.
    pub(super) fn fields(&self) -> usize {
        self.fields
    }

    /// What there is of a start line whose end was not found, or was found to be no end: its
    /// faults come first, so that the same bytes are refused by the same name however they arrive.
    pub(super) fn start<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        (!self.started()).then(|| &buf[self.line..self.seen])
    }

    /// How far the bytes are known.
    #[cfg(test)]
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    fn started(&self) -> bool {
        self.section.is_some()
    }

    pub(super) fn step(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        empty_lines_max: u8,
    ) -> Result<Step, HeadFault> {
        let bytes_max = limits.head_bytes.min(HeadLimits::HEAD_BYTES_MAX);
        let window = &buf[..buf.len().min(bytes_max)];
        loop {
            if self.started() && matches!(window.get(self.line), Some(b' ' | b'\t')) {
                return Err(HeadFault::ObsFold);
            }
            let Some(at) = memchr(b'\n', &window[self.seen..]) else {
                self.seen = window.len();
                if window.len() >= bytes_max {
                    return Err(HeadFault::TooLarge);
                }
                return Ok(Step::Partial);
            };
            let feed = self.seen + at;
            if feed == self.line || window[feed - 1] != b'\r' {
                self.seen = feed;
                return Err(HeadFault::BareLf);
            }
            let line = self.line..feed - 1;
            self.line = feed + 1;
            self.seen = feed + 1;
            match (line.is_empty(), self.started()) {
                (true, true) => return Ok(Step::End { len: feed + 1 }),
                (true, false) => {
                    if self.empty_lines == empty_lines_max {
                        // An empty start line, for the caller to refuse by its own name.
                        return Ok(Step::Start(line));
                    }
                    self.empty_lines += 1;
                }
                (false, false) => {
                    self.section = Some(self.line);
                    return Ok(Step::Start(line));
                }
                (false, true) => {
                    self.fields += 1;
                    if self.fields > limits.fields.min(HeadLimits::FIELDS_MAX) {
                        return Err(HeadFault::TooManyFields);
                    }
                    return Ok(Step::Field);
                }
            }
        }
    }
}

/// Tokenises `section`, field lines and the empty line behind them, into `fields`. `count` is
/// how many lines [`Scan`] found; most heads have few, and need no large scratch space.
pub(super) fn tokenise(
    buf: &[u8],
    section: Range<usize>,
    count: usize,
    fields: &mut Fields,
) -> Result<(), HeadFault> {
    match count {
        0..=32 => tokenise_into::<32>(buf, section, fields),
        33..=128 => tokenise_into::<128>(buf, section, fields),
        _ => tokenise_into::<{ HeadLimits::FIELDS_MAX }>(buf, section, fields),
    }
}

fn tokenise_into<const N: usize>(
    buf: &[u8],
    section: Range<usize>,
    fields: &mut Fields,
) -> Result<(), HeadFault> {
    let mut scratch = [httparse::EMPTY_HEADER; N];
    let parsed = match httparse::parse_headers(&buf[section.clone()], &mut scratch) {
        Ok(httparse::Status::Complete((len, parsed))) if len == section.len() => parsed,
        // The lines were counted: an end elsewhere means that a line was not a field.
        Ok(_) => return Err(HeadFault::FieldName),
        Err(httparse::Error::HeaderValue) => return Err(HeadFault::FieldValue),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadFault::TooManyFields),
        Err(httparse::Error::NewLine) => return Err(HeadFault::BareCr),
        Err(
            httparse::Error::HeaderName
            | httparse::Error::Status
            | httparse::Error::Token
            | httparse::Error::Version,
        ) => return Err(HeadFault::FieldName),
    };
    let base = buf.as_ptr() as usize;
    let span = |bytes: &[u8]| {
        let start = bytes.as_ptr() as usize - base;
        Span::new(start, start + bytes.len())
    };
    for header in parsed.iter() {
        let name = header.name.as_bytes();
        let value = if header.value.is_empty() {
            Span::default()
        } else {
            span(header.value)
        };
        fields.push(Field::new(span(name), value, FieldName::of(name), name));
    }
    Ok(())
}
