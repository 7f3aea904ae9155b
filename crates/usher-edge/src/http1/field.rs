//! Fields of a head, which of them are for this hop only, and which `Connection` may not touch.
//!
//! A field is not passed on when it is hop-by-hop by definition (`Connection`, `Keep-Alive`,
//! `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade` and the `Proxy-*` family), when `Connection`
//! nominates it, or when we write it ourselves (`Host`, `Content-Length`). `TE: trailers` is
//! dropped as well: it speaks for this hop, and an endpoint may send trailers without it.
//!
//! Nominations are obeyed in both directions, but they are also a way to make a proxy drop what a
//! proxy before it, or an access check behind it, relies on. HAProxy and nginx ignore
//! nominations; Envoy refuses a request that nominates a forwarding field. We refuse a request
//! that nominates any field meant for everyone ([`FieldName::is_protected`]). An endpoint that
//! does it is believed to be clumsy rather than hostile: that nomination has no effect.
//!
//! A name with underscores reads like one with hyphens to many an application
//! (`HTTP_CONTENT_LENGTH`), so look-alikes of fields that we decide on are dropped too.

use super::Span;

/// Names that this proxy acts on. All others are [`FieldName::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each is the field of that name
pub enum FieldName {
    Accept,
    AcceptEncoding,
    Authorization,
    CacheControl,
    CfConnectingIp,
    Connection,
    ContentEncoding,
    ContentLength,
    ContentRange,
    ContentType,
    Cookie,
    Date,
    Expect,
    Forwarded,
    Host,
    Http2Settings,
    KeepAlive,
    Location,
    ProxyAuthenticate,
    ProxyAuthenticationInfo,
    ProxyAuthorization,
    ProxyConnection,
    Range,
    Server,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    TrueClientIp,
    UserAgent,
    Via,
    WwwAuthenticate,
    /// Any other `X-Forwarded-*`.
    XForwarded,
    XForwardedFor,
    XForwardedHost,
    XForwardedProto,
    XRealIp,
    /// None of the above.
    Other,
}

impl FieldName {
    /// The name that `name` spells, in any case.
    pub fn of(name: &[u8]) -> FieldName {
        use FieldName::*;
        let is = |candidates: &[(&str, FieldName)]| {
            // The first letter tells most of them apart for less than a comparison costs.
            let same = |spelling: &[u8]| {
                name[0] | 0x20 == spelling[0] && name.eq_ignore_ascii_case(spelling)
            };
            candidates
                .iter()
                .find(|(spelling, _)| same(spelling.as_bytes()))
                .map_or(Other, |&(_, field)| field)
        };
        // By length first: a head holds mostly names that share theirs with none or one of ours.
        let id = match name.len() {
            2 => is(&[("te", Te)]),
            3 => is(&[("via", Via)]),
            4 => is(&[("host", Host), ("date", Date)]),
            5 => is(&[("range", Range)]),
            6 => is(&[
                ("accept", Accept),
                ("cookie", Cookie),
                ("server", Server),
                ("expect", Expect),
            ]),
            7 => is(&[("upgrade", Upgrade), ("trailer", Trailer)]),
            8 => is(&[("location", Location)]),
            9 => is(&[("forwarded", Forwarded), ("x-real-ip", XRealIp)]),
            10 => is(&[
                ("connection", Connection),
                ("user-agent", UserAgent),
                ("keep-alive", KeepAlive),
                ("set-cookie", SetCookie),
            ]),
            12 => is(&[("content-type", ContentType)]),
            13 => is(&[
                ("cache-control", CacheControl),
                ("authorization", Authorization),
                ("content-range", ContentRange),
            ]),
            14 => is(&[
                ("content-length", ContentLength),
                ("http2-settings", Http2Settings),
            ]),
            15 => is(&[
                ("accept-encoding", AcceptEncoding),
                ("x-forwarded-for", XForwardedFor),
            ]),
            16 => is(&[
                ("content-encoding", ContentEncoding),
                ("x-forwarded-host", XForwardedHost),
                ("cf-connecting-ip", CfConnectingIp),
                ("proxy-connection", ProxyConnection),
                ("www-authenticate", WwwAuthenticate),
            ]),
            17 => is(&[
                ("transfer-encoding", TransferEncoding),
                ("x-forwarded-proto", XForwardedProto),
            ]),
            18 => is(&[("proxy-authenticate", ProxyAuthenticate)]),
            19 => is(&[("proxy-authorization", ProxyAuthorization)]),
            25 => is(&[("proxy-authentication-info", ProxyAuthenticationInfo)]),
            _ => Other,
        };
        let prefix = b"x-forwarded-";
        if id == Other
            && name.len() > prefix.len()
            && name[0] | 0x20 == b'x'
            && name[..prefix.len()].eq_ignore_ascii_case(prefix)
        {
            return XForwarded;
        }
        id
    }

    /// Means something to this connection only.
    pub fn is_hop_by_hop(self) -> bool {
        use FieldName::*;
        matches!(
            self,
            Connection
                | Http2Settings
                | KeepAlive
                | ProxyAuthenticate
                | ProxyAuthenticationInfo
                | ProxyAuthorization
                | ProxyConnection
                | Te
                | Trailer
                | TransferEncoding
                | Upgrade
        )
    }

    /// Changes what the message means or who may send it: `Connection` cannot take it away, and a
    /// trailer cannot bring it.
    pub fn is_protected(self) -> bool {
        use FieldName::*;
        matches!(
            self,
            Authorization
                | CacheControl
                | CfConnectingIp
                | ContentEncoding
                | ContentLength
                | ContentRange
                | ContentType
                | Cookie
                | Expect
                | Forwarded
                | Host
                | Range
                | SetCookie
                | TrueClientIp
                | WwwAuthenticate
                | XForwarded
                | XForwardedFor
                | XForwardedHost
                | XForwardedProto
                | XRealIp
        )
    }

    /// Whether a field of this name may stand in a trailer section that is passed on.
    pub(super) fn allowed_in_trailers(name: &[u8]) -> bool {
        Field::new(Span::default(), Span::default(), FieldName::of(name), name).is_trailer()
    }

    /// Written anew by this proxy, never copied.
    fn is_ours(self) -> bool {
        matches!(self, FieldName::Host | FieldName::ContentLength)
    }

    /// The known name that `name` would be with hyphens for its underscores.
    fn look_alike(name: &[u8]) -> FieldName {
        let mut hyphened = [0; 32];
        match hyphened.get_mut(..name.len()) {
            Some(copy) if memchr::memchr(b'_', name).is_some() => {
                copy.copy_from_slice(name);
                copy.iter_mut()
                    .filter(|byte| **byte == b'_')
                    .for_each(|byte| *byte = b'-');
                FieldName::of(copy)
            }
            _ => FieldName::Other,
        }
    }
}

/// One field line.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// As received: a token.
    pub name: Span,
    /// Without white space around it. Holds no control character but tab; may hold bytes
    /// beyond ASCII.
    pub value: Span,
    /// Which name it is.
    pub id: FieldName,
    /// Whether it goes on to the other side. Look at it before everything else: `false` for
    /// hop-by-hop and nominated fields, for look-alikes, for `Host` and `Content-Length`.
    pub forwarded: bool,
}

impl Field {
    pub(super) fn new(name: Span, value: Span, id: FieldName, bytes: &[u8]) -> Field {
        let twin = if id == FieldName::Other {
            FieldName::look_alike(bytes)
        } else {
            FieldName::Other
        };
        let dropped =
            id.is_hop_by_hop() || id.is_ours() || twin.is_hop_by_hop() || twin.is_protected();
        Field {
            name,
            value,
            id,
            forwarded: !dropped,
        }
    }

    /// Whether it may stand in a trailer section that is passed on.
    pub(super) fn is_trailer(&self) -> bool {
        self.forwarded && !self.id.is_protected()
    }
}

/// The fields of a head, in order. Cleared for the next head, and its memory kept.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    list: Vec<Field>,
}

impl Fields {
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn push(&mut self, field: Field) {
        self.list.push(field);
    }

    /// All of them, also those that are not forwarded.
    pub fn iter(&self) -> std::slice::Iter<'_, Field> {
        self.list.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Those of one known name, in order.
    pub fn all(&self, id: FieldName) -> impl Iterator<Item = &Field> {
        self.list.iter().filter(move |field| field.id == id)
    }

    /// The first of one known name.
    pub fn first(&self, id: FieldName) -> Option<&Field> {
        self.all(id).next()
    }

    /// The value of the first field called `name`, in any case.
    pub fn value<'a>(&self, buf: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        let field = self
            .list
            .iter()
            .find(|field| field.name.of(buf).eq_ignore_ascii_case(name))?;
        Some(field.value.of(buf))
    }

    /// Marks the fields of one known name as not forwarded.
    pub(super) fn withhold(&mut self, id: FieldName) {
        for field in self.list.iter_mut().filter(|field| field.id == id) {
            field.forwarded = false;
        }
    }

    /// Reads every `Connection` field and marks what they nominate as not forwarded.
    pub(super) fn connection(&mut self, buf: &[u8]) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        let mut count = 0;
        for index in 0..self.list.len() {
            if self.list[index].id != FieldName::Connection {
                continue;
            }
            for option in list_items(self.list[index].value.of(buf)) {
                count += 1;
                if count > OPTIONS_MAX {
                    options.too_many = true;
                    return options;
                }
                if option.eq_ignore_ascii_case(b"close") {
                    options.close = true;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    options.keep_alive = true;
                } else if option.eq_ignore_ascii_case(b"upgrade") {
                    options.upgrade = true;
                } else if !is_token(option) {
                    options.malformed = true;
                } else if FieldName::of(option).is_protected() {
                    options.nominates_protected = true;
                } else {
                    self.nominate(buf, option);
                }
            }
        }
        options
    }

    fn nominate(&mut self, buf: &[u8], name: &[u8]) {
        for field in &mut self.list {
            if field.name.of(buf).eq_ignore_ascii_case(name) {
                field.forwarded = false;
            }
        }
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Options read from `Connection`; each costs a walk over the fields.
const OPTIONS_MAX: usize = 16;

/// What `Connection` asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) nominates_protected: bool,
    pub(super) malformed: bool,
    pub(super) too_many: bool,
}

/// The field, if it is not repeated.
pub(super) fn only<'a>(mut fields: impl Iterator<Item = &'a Field>) -> Option<&'a Field> {
    fields.next().filter(|_| fields.next().is_none())
}

/// The items of a comma-separated list, without white space and without empty items.
pub(super) fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(trim)
        .filter(|item| !item.is_empty())
}

/// Without spaces and tabs at both ends: no other white space exists in a field.
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// RFC 9110 5.6.2, at least one character.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN[byte as usize])
}

/// Visible characters, space, tab and bytes beyond ASCII.
pub(super) fn is_value(bytes: &[u8]) -> bool {
    // No early return: the compiler then checks many bytes at once.
    !bytes.iter().fold(false, |bad, &byte| {
        bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f)
    })
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric()
            || matches!(
                character,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        for (spelling, name) in [
            ("te", FieldName::Te),
            ("HOST", FieldName::Host),
            ("Content-Length", FieldName::ContentLength),
            ("transfer-ENCODING", FieldName::TransferEncoding),
            ("x-Forwarded-For", FieldName::XForwardedFor),
            ("X-Forwarded-Port", FieldName::XForwarded),
            ("X-Forwarded", FieldName::Other),
            ("X-Forwarded-", FieldName::Other),
            ("Content_Length", FieldName::Other),
            ("", FieldName::Other),
        ] {
            assert_eq!(FieldName::of(spelling.as_bytes()), name, "{spelling}");
        }
    }

    #[test]
    fn tokens_and_values_are_what_the_rfc_says() {
        for byte in 0..=u8::MAX {
            let separator = b"\"(),/:;<=>?@[\\]{}".contains(&byte);
            assert_eq!(
                is_token(&[byte]),
                byte.is_ascii_graphic() && !separator,
                "{byte:#x}"
            );
            assert_eq!(
                is_value(&[byte]),
                byte == b'\t' || (byte >= b' ' && byte != 0x7f),
                "{byte:#x}"
            );
        }
        assert!(!is_token(b""));
        assert!(is_value(b""));
    }

    #[test]
    fn lists_are_split_at_commas() {
        let items: Vec<_> = list_items(b" a,b ,\t,, c d,").collect();
        assert_eq!(items, [&b"a"[..], b"b", b"c d"]);
    }
}
