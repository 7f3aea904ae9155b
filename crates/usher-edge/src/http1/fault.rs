//! What can be wrong with a message. Each fault has a word for logs and metrics that does not
//! change, and requests a status; after any of them the connection is closed, because the place
//! where the next message starts is no longer certain.

/// A fault in the shape of a head or trailer section, whichever side sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// A line ends in LF without CR.
    #[error("line ends in a bare line feed")]
    BareLf,
    /// A CR without LF where a field begins. Inside a value it is [`HeadFault::FieldValue`].
    #[error("carriage return without line feed")]
    BareCr,
    /// A field continues on a line that starts with white space.
    #[error("field is folded over several lines")]
    ObsFold,
    /// No end within `head_bytes`.
    #[error("head is longer than the limit")]
    TooLarge,
    /// More fields than `fields`.
    #[error("more fields than the limit")]
    TooManyFields,
    /// Empty, not a token, followed by white space, or without a colon.
    #[error("field name is malformed")]
    FieldName,
    /// A control character.
    #[error("field value holds a control character")]
    FieldValue,
}

impl HeadFault {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            HeadFault::BareLf => "bare-lf",
            HeadFault::BareCr => "bare-cr",
            HeadFault::ObsFold => "obs-fold",
            HeadFault::TooLarge => "head-too-large",
            HeadFault::TooManyFields => "too-many-fields",
            HeadFault::FieldName => "field-name",
            HeadFault::FieldValue => "field-value",
        }
    }
}

/// A fault in what announces the body, whichever side sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingFault {
    /// Both `Transfer-Encoding` and `Content-Length`.
    #[error("transfer-encoding together with content-length")]
    TeWithCl,
    /// Anything but one field that says exactly `chunked`.
    #[error("transfer-encoding is not exactly chunked")]
    TeUnsupported,
    /// `Transfer-Encoding` in a message of HTTP/1.0.
    #[error("transfer-encoding in http/1.0")]
    TeInHttp10,
    /// More than one `Content-Length`, equal or not.
    #[error("content-length is repeated")]
    ClRepeated,
    /// Not only digits, or beyond 64 bits.
    #[error("content-length is not a number of bytes")]
    ClMalformed,
}

impl FramingFault {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            FramingFault::TeWithCl => "te-with-cl",
            FramingFault::TeUnsupported => "te-unsupported",
            FramingFault::TeInHttp10 => "te-in-http10",
            FramingFault::ClRepeated => "cl-repeated",
            FramingFault::ClMalformed => "cl-malformed",
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// The shape of the head.
    #[error(transparent)]
    Head(#[from] HeadFault),
    /// What announces the body.
    #[error(transparent)]
    Framing(#[from] FramingFault),
    /// `GET /` without a version: closed without an answer, which it could not understand.
    #[error("http/0.9 request")]
    Http09,
    /// The first line of the HTTP/2 preface. At the start of a connection the front hands the
    /// untouched buffer to HTTP/2; anywhere else it closes.
    #[error("http/2 connection preface")]
    Http2Preface,
    /// Not method, target, version with one space between, or too many empty lines before it.
    #[error("request line is malformed")]
    RequestLine,
    /// Not a token, or longer than 32 bytes.
    #[error("method is malformed")]
    Method,
    /// Bytes outside visible ASCII, a fragment, a form that the method does not allow, another
    /// scheme than http or https.
    #[error("request target is malformed")]
    Target,
    /// Longer than `target_bytes`.
    #[error("request target is longer than the limit")]
    TargetTooLong,
    /// Well formed, but neither 1.0 nor 1.1.
    #[error("http version is not supported")]
    Version,
    /// HTTP/1.1 without `Host`.
    #[error("host is missing")]
    HostMissing,
    /// More than one `Host`, equal or not.
    #[error("host is repeated")]
    HostRepeated,
    /// Empty, or not a name or address with an optional port.
    #[error("host is malformed")]
    HostMalformed,
    /// The target names another authority than `Host`.
    #[error("host contradicts the request target")]
    HostContradicts,
    /// Not a list of tokens, or more than 16 of them.
    #[error("connection options are malformed")]
    Connection,
    /// `Connection` names a field that is meant for everyone, such as `Host` or `Cookie`.
    #[error("connection nominates an end-to-end field")]
    ConnectionNominates,
    /// `Expect` with anything but `100-continue`.
    #[error("expectation is unknown")]
    Expectation,
}

impl RequestFault {
    /// The stable word for the access log and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestFault::Head(fault) => fault.as_str(),
            RequestFault::Framing(fault) => fault.as_str(),
            RequestFault::Http09 => "http09",
            RequestFault::Http2Preface => "http2-preface",
            RequestFault::RequestLine => "request-line",
            RequestFault::Method => "method",
            RequestFault::Target => "target",
            RequestFault::TargetTooLong => "target-too-long",
            RequestFault::Version => "version",
            RequestFault::HostMissing => "host-missing",
            RequestFault::HostRepeated => "host-repeated",
            RequestFault::HostMalformed => "host-malformed",
            RequestFault::HostContradicts => "host-contradicts",
            RequestFault::Connection => "connection",
            RequestFault::ConnectionNominates => "connection-nominates",
            RequestFault::Expectation => "expectation",
        }
    }

    /// The status to answer with before closing; `None`: close without a word.
    pub fn status(self) -> Option<u16> {
        match self {
            RequestFault::Http09 | RequestFault::Http2Preface => None,
            RequestFault::Head(HeadFault::TooLarge | HeadFault::TooManyFields) => Some(431),
            RequestFault::TargetTooLong => Some(414),
            RequestFault::Version => Some(505),
            RequestFault::Expectation => Some(417),
            RequestFault::Head(
                HeadFault::BareLf
                | HeadFault::BareCr
                | HeadFault::ObsFold
                | HeadFault::FieldName
                | HeadFault::FieldValue,
            )
            | RequestFault::Framing(_)
            | RequestFault::RequestLine
            | RequestFault::Method
            | RequestFault::Target
            | RequestFault::HostMissing
            | RequestFault::HostRepeated
            | RequestFault::HostMalformed
            | RequestFault::HostContradicts
            | RequestFault::Connection
            | RequestFault::ConnectionNominates => Some(400),
        }
    }
}

/// Why the answer of an endpoint is refused. The client gets 520 for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseFault {
    /// The shape of the head.
    #[error(transparent)]
    Head(#[from] HeadFault),
    /// What announces the body.
    #[error(transparent)]
    Framing(#[from] FramingFault),
    /// Not version, status, reason.
    #[error("status line is malformed")]
    StatusLine,
    /// Neither 1.0 nor 1.1.
    #[error("http version is not supported")]
    Version,
    /// Outside 100..=599.
    #[error("status is outside 100..=599")]
    Status,
    /// 1xx in HTTP/1.0, or with a body announced.
    #[error("interim response is malformed")]
    Interim,
    /// 101 that was not asked for, or that does not name what was asked for.
    #[error("switch of protocols that was not asked for")]
    Switching,
    /// More than 16 connection options.
    #[error("connection options are malformed")]
    Connection,
}

impl ResponseFault {
    /// The stable word for the access log and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ResponseFault::Head(fault) => fault.as_str(),
            ResponseFault::Framing(fault) => fault.as_str(),
            ResponseFault::StatusLine => "status-line",
            ResponseFault::Version => "version",
            ResponseFault::Status => "status",
            ResponseFault::Interim => "interim",
            ResponseFault::Switching => "switching",
            ResponseFault::Connection => "connection",
        }
    }
}

/// Why a body cannot be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// No hexadecimal digit where the size of a chunk stands, or something else behind it.
    #[error("chunk size is malformed")]
    ChunkSize,
    /// More than 16 digits.
    #[error("chunk size does not fit 64 bits")]
    ChunkSizeOverflow,
    /// A control character in an extension, or a size line beyond 1 KiB.
    #[error("chunk extension is malformed or too long")]
    ChunkExtension,
    /// Far more framing than data: somebody is wasting our time.
    #[error("chunks carry more framing than data")]
    ChunkOverhead,
    /// No CRLF behind a chunk.
    #[error("chunk does not end where its size says")]
    ChunkEnd,
    /// The trailer section is malformed or over the limits of a head.
    #[error("trailer section is malformed")]
    Trailer(#[source] HeadFault),
    /// The connection ended first.
    #[error("body ended before its announced end")]
    Truncated,
}

impl BodyFault {
    /// The stable word for the access log and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            BodyFault::ChunkSize => "chunk-size",
            BodyFault::ChunkSizeOverflow => "chunk-size-overflow",
            BodyFault::ChunkExtension => "chunk-extension",
            BodyFault::ChunkOverhead => "chunk-overhead",
            BodyFault::ChunkEnd => "chunk-end",
            BodyFault::Trailer(_) => "trailer",
            BodyFault::Truncated => "body-truncated",
        }
    }

    /// The status when a client sent it and no answer has begun.
    pub fn status(self) -> u16 {
        match self {
            BodyFault::Trailer(HeadFault::TooLarge | HeadFault::TooManyFields) => 431,
            BodyFault::Trailer(
                HeadFault::BareLf
                | HeadFault::BareCr
                | HeadFault::ObsFold
                | HeadFault::FieldName
                | HeadFault::FieldValue,
            )
            | BodyFault::ChunkSize
            | BodyFault::ChunkSizeOverflow
            | BodyFault::ChunkExtension
            | BodyFault::ChunkOverhead
            | BodyFault::ChunkEnd
            | BodyFault::Truncated => 400,
        }
    }
}
