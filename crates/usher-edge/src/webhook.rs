//! Messages of a node to those who want to be told: one JSON body, posted to one URL.
//!
//! Whoever may name a destination has this node connect to it. So the addresses of a name are
//! judged when they are known and the connection goes to the one that was judged: a name that is
//! first public and then private leads nowhere. No redirect is followed for the same reason.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use usher_core::address::is_open;

use crate::resolve::{Lookup, LookupError};
use crate::tls::{ClientConfigs, TrustProfile};

/// For one attempt, from the question for the address to the status of the answer.
pub const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries the secret of the destination, as the hosted service does.
const AUTH: HeaderName = HeaderName::from_static("cf-webhook-auth");

/// Carries `t=SECONDS,v1=HEX`: an HMAC-SHA256 with the secret over `SECONDS.BODY`.
const SIGNATURE: HeaderName = HeaderName::from_static("usher-signature");

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    /// Where to: `http` or `https`.
    pub url: String,
    /// What its receiver knows us by. Visible ASCII.
    pub secret: Option<Secret>,
    /// JSON.
    pub body: Bytes,
    /// Seconds since 1970, for the signature.
    pub at: u64,
}

/// Text that never reaches a log: its `Debug` shows dots.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

/// Why a message did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The URL cannot be called.
    #[error("its url cannot be called")]
    Url,
    /// The address is in a private network, and such are not allowed.
    #[error("its address {0} is private; notifications.allow_private allows such")]
    Private(IpAddr),
    /// Nobody knows the name.
    #[error("its name {} has no address", .0.host)]
    Lookup(#[from] LookupError),
    /// No connection.
    #[error("no connection: {0}")]
    Connect(io::Error),
    /// No authorities to check its certificate by.
    #[error("the system's authorities cannot be read")]
    Authorities,
    /// The connection broke, or what came back is not HTTP.
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
    /// It answered something else than a success.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// No answer in time.
    #[error("no answer within {} s", POST_TIMEOUT.as_secs())]
    Timeout,
}

/// Posts messages.
#[derive(Debug)]
pub struct Courier {
    lookup: Lookup,
    trust: OnceCell<Arc<ClientConfig>>,
}

impl Courier {
    /// Looks names up with `lookup`.
    #[must_use]
    pub fn new(lookup: Lookup) -> Courier {
        Courier {
            lookup,
            trust: OnceCell::new(),
        }
    }

    /// Posts once. A success is an answer 200 to 299; takes at most [`POST_TIMEOUT`].
    ///
    /// # Errors
    /// It did not arrive, or nobody said so.
    pub async fn post(&self, message: &Message, allow_private: bool) -> Result<(), PostError> {
        timeout(POST_TIMEOUT, self.attempt(message, allow_private))
            .await
            .unwrap_or(Err(PostError::Timeout))
    }

    async fn attempt(&self, message: &Message, allow_private: bool) -> Result<(), PostError> {
        let url: Uri = message.url.parse().map_err(|_| PostError::Url)?;
        let host = url.host().ok_or(PostError::Url)?;
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let tls = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(PostError::Url),
        };
        let port = url.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let request = request(&url, message)?;
        let stream = self.connect(&host, port, allow_private).await?;
        let status = if tls {
            let name = ServerName::try_from(host).map_err(|_| PostError::Url)?;
            let connector = TlsConnector::from(self.trust().await?);
            let stream = connector.connect(name, stream).await;
            exchange(stream.map_err(PostError::Connect)?, request).await?
        } else {
            exchange(stream, request).await?
        };
        match status.is_success() {
            true => Ok(()),
            false => Err(PostError::Status(status)),
        }
    }

    /// To the first address that accepts. One that is private ends it: names that have both kinds
    /// are not what they seem.
    async fn connect(
        &self,
        host: &str,
        port: u16,
        allow_private: bool,
    ) -> Result<TcpStream, PostError> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(ip) => Arc::<[IpAddr]>::from([ip]),
            Err(_) => self.lookup.addresses(host).await?,
        };
        let private = addresses.iter().find(|&&ip| !is_open(ip));
        if let (Some(&ip), false) = (private, allow_private) {
            return Err(PostError::Private(ip));
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for &ip in addresses.iter() {
            match TcpStream::connect((ip, port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(PostError::Connect(last))
    }

    /// Whom to trust, read when it is first needed: parsing the system's authorities takes a while.
    async fn trust(&self) -> Result<Arc<ClientConfig>, PostError> {
        let load = || async {
            let profile = TrustProfile {
                verify: true,
                ..TrustProfile::default()
            };
            let asked = profile.clone();
            let loaded = spawn_blocking(move || ClientConfigs::load([asked])).await;
            let loaded = loaded.ok().and_then(Result::ok);
            let config = loaded.and_then(|configs| configs.get(&profile).map(Arc::clone));
            config.ok_or(PostError::Authorities)
        };
        self.trust.get_or_try_init(load).await.map(Arc::clone)
    }
}

fn request(url: &Uri, message: &Message) -> Result<Request<Full<Bytes>>, PostError> {
    let authority = url.authority().ok_or(PostError::Url)?.as_str();
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("Usher/", env!("CARGO_PKG_VERSION")));
    if let Some(Secret(secret)) = &message.secret {
        let mut shown = HeaderValue::from_str(secret).map_err(|_| PostError::Url)?;
        shown.set_sensitive(true);
        request = request
            .header(AUTH, shown)
            .header(SIGNATURE, signature(secret, message.at, &message.body));
    }
    let body = Full::new(message.body.clone());
    request.body(body).map_err(|_| PostError::Url)
}

fn signature(secret: &str, at: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut signed = hmac::Context::with_key(&key);
    signed.update(format!("{at}.").as_bytes());
    signed.update(body);
    let tag = signed.sign();
    let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("t={at},v1={}", digits.collect::<String>())
}

async fn exchange<Io>(io: Io, request: Request<Full<Bytes>>) -> Result<StatusCode, PostError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    let answer = sender.send_request(request);
    tokio::pin!(connection, answer);
    // The connection moves only while it is polled, and ends when this returns.
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer?.status()),
            _ = &mut connection, if open => open = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(url: &str) -> Message {
        Message {
            url: url.to_owned(),
            secret: Some(Secret::new("key")),
            body: Bytes::from_static(b"{}"),
            at: 1_700_000_000,
        }
    }

    #[test]
    fn a_message_is_signed_and_its_secret_does_not_show() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac key
        let signed = signature("key", 1_700_000_000, b"{}");
        let (at, tag) = signed.split_once(",v1=").expect("both parts");
        assert_eq!((at, tag.len()), ("t=1700000000", 64));
        assert_eq!(tag, SIGNED);
        let url = "http://hooks.example.com/a?b=c".parse().expect("a url");
        let request = request(&url, &message("")).expect("a request");
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(request.headers()[HOST], "hooks.example.com");
        assert_eq!(request.headers()[AUTH], "key");
        assert!(!format!("{request:?}{:?}", message("")).contains("key\""));
    }

    const SIGNED: &str = "9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae";

    #[tokio::test]
    async fn what_is_private_is_not_called() {
        let names = |answer: &'static str| {
            Courier::new(Lookup::with(move |_| async move {
                let addresses = answer.split(' ').map(|ip| ip.parse().expect("an address"));
                Ok(addresses.collect())
            }))
        };
        for (answer, url) in [
            ("10.0.0.1", "http://hooks.example.com/"),
            ("192.0.2.1 169.254.169.254", "https://hooks.example.com/"),
            ("192.0.2.1", "http://127.0.0.1:1/"),
            ("192.0.2.1", "http://[::1]:1/"),
            ("192.0.2.1", "http://[::ffff:127.0.0.1]:1/"),
        ] {
            let refused = names(answer).post(&message(url), false).await;
            assert!(
                matches!(refused, Err(PostError::Private(_))),
                "{url}: {refused:?}"
            );
        }
        for url in [
            "",
            "/",
            "ftp://192.0.2.1/",
            "http://",
            "mailto:a@example.com",
        ] {
            let refused = names("192.0.2.1").post(&message(url), true).await;
            assert!(matches!(refused, Err(PostError::Url)), "{url}: {refused:?}");
        }
    }
}
