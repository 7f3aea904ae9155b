//! What an expression can ask about a request.

/// Of which kind a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A sequence of bytes.
    Text,
    /// 64-bit integer.
    Int,
    /// True or false.
    Bool,
    /// IPv4 or IPv6 address.
    Ip,
    /// An array of strings.
    List,
    /// A map from strings to arrays of strings.
    Map,
}

impl Kind {
    /// As it stands in a message.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Text => "a string",
            Kind::Int => "an integer",
            Kind::Bool => "a boolean",
            Kind::Ip => "an ip address",
            Kind::List => "an array of strings",
            Kind::Map => "a map of arrays of strings",
        }
    }
}

/// On which front a field has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrontKind {
    /// HTTP requests.
    Http,
    /// DNS queries.
    Dns,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $kind:ident, $front:expr;)*) => {
        /// A field of the rules language.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $($(#[$doc])* $variant,)*
        }

        impl Field {
            /// Every field.
            pub const ALL: &[Field] = &[$(Field::$variant,)*];

            /// The name in an expression.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Field::$variant => $name,)* }
            }

            /// The kind of its value.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Field::$variant => Kind::$kind,)* }
            }

            /// The only front that has it; none when both have.
            #[must_use]
            pub const fn front(self) -> Option<FrontKind> {
                match self { $(Field::$variant => $front,)* }
            }
        }
    };
}

const HTTP: Option<FrontKind> = Some(FrontKind::Http);
const DNS: Option<FrontKind> = Some(FrontKind::Dns);

fields! {
    /// Name of the load balancer.
    BalancerName = "cf.load_balancer.name", Text, None;
    /// Region code of this node.
    NodeRegion = "cf.load_balancer.region", Text, None;
    /// Code of this node.
    Node = "usher.node", Text, None;
    /// The visitor's address. DNS: that of the client subnet option, else of the resolver.
    Source = "ip.src", Ip, None;
    /// The visitor's country, two letters; missing when unknown.
    Country = "ip.geoip.country", Text, None;
    /// The newer name of [`Field::Country`].
    SourceCountry = "ip.src.country", Text, None;
    /// Whether the visitor came over TLS.
    Ssl = "ssl", Bool, HTTP;
    /// The whole `Cookie` header; empty without one.
    Cookie = "http.cookie", Text, HTTP;
    /// Host, lower case, without port.
    Host = "http.host", Text, HTTP;
    /// `Referer`; empty without one.
    Referer = "http.referer", Text, HTTP;
    /// `User-Agent`; empty without one.
    UserAgent = "http.user_agent", Text, HTTP;
    /// `X-Forwarded-For`; empty without one.
    ForwardedFor = "http.x_forwarded_for", Text, HTTP;
    /// Request headers by name in lower case.
    Headers = "http.request.headers", Map, HTTP;
    /// The names of [`Field::Headers`], one for each header line, in order.
    HeaderNames = "http.request.headers.names", List, HTTP;
    /// The values of [`Field::Headers`], in order.
    HeaderValues = "http.request.headers.values", List, HTTP;
    /// Cookies by name, not decoded.
    Cookies = "http.request.cookies", Map, HTTP;
    /// Method, upper case.
    Method = "http.request.method", Text, HTTP;
    /// When the request came, in seconds since 1970.
    TimestampSec = "http.request.timestamp.sec", Int, HTTP;
    /// Scheme, host, path and query.
    FullUri = "http.request.full_uri", Text, HTTP;
    /// Path and query, as received.
    Uri = "http.request.uri", Text, HTTP;
    /// Path, as received.
    Path = "http.request.uri.path", Text, HTTP;
    /// Query, without `?`, as received.
    Query = "http.request.uri.query", Text, HTTP;
    /// Arguments of the query by name, not decoded.
    Args = "http.request.uri.args", Map, HTTP;
    /// The names of [`Field::Args`], one for each argument, in order.
    ArgNames = "http.request.uri.args.names", List, HTTP;
    /// The values of [`Field::Args`], in order.
    ArgValues = "http.request.uri.args.values", List, HTTP;
    /// `HTTP/1.1`, `HTTP/2`, ...
    Version = "http.request.version", Text, HTTP;
    /// The name asked for, with a final dot.
    DnsName = "dns.qry.name", Text, DNS;
    /// Bytes of [`Field::DnsName`].
    DnsNameLen = "dns.qry.name.len", Int, DNS;
    /// The type asked for: 1 is A, 28 is AAAA.
    DnsType = "dns.qry.type", Int, DNS;
    /// The bit that asks for a unicast response (mDNS).
    DnsUnicast = "dns.qry.qu", Bool, DNS;
    /// Whether the query carries a client subnet.
    DnsClientSubnet = "dns.rr.opt.client", Bool, DNS;
    /// The address of that client subnet, as text.
    DnsClientAddress = "dns.rr.opt.client.addr", Text, DNS;
}

impl Field {
    /// The field with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Field> {
        Field::ALL
            .iter()
            .copied()
            .find(|field| field.name() == name)
    }
}
