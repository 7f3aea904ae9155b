//! Lists of hosts that sessions name by an address.
//!
//! Whoever may have a session may name one, so it is fetched as a page would be: through this proxy,
//! under a policy that opens nothing, over TLS to a name that proves itself. A redirect is not
//! followed, for the address is what was agreed on. A list that does not come, or has one line that
//! is no pattern, makes no session; one that came is good for an hour.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use url::Url;
use usher_edge::http1::{
    Asked, BodyDecoder, BodyEvent, Method, Parsed, ResponseHead, ResponseKind, parse_response,
};
use usher_edge::tls::{ClientConfigs, TrustProfile};

use crate::client::LIMITS;
use crate::exit::Egress;
use crate::guardrails::{Guardrails, Pattern, PatternFault};
use crate::inbox::Inbox;
use crate::policy::Policy;

/// Bytes of a list.
pub const BYTES_MAX: usize = 1 << 20;
/// For all of it: name, connection, TLS, answer.
pub const WITHIN: Duration = Duration::from_secs(5);
/// How long one that came is used.
pub const KEPT_FOR: Duration = Duration::from_hours(1);
/// Lists that are kept.
const KEPT_MAX: usize = 256;
/// Bytes of an address.
const ADDRESS_MAX: usize = 2_048;
/// Lists that are fetched at one time; further ones wait.
const FETCHES_MAX: usize = 16;
/// Bytes of the proxy's answer before a tunnel.
const TUNNEL_HEAD_MAX: u64 = 8 << 10;
/// Bytes on their way to and from the proxy.
const UNDER_WAY: usize = 16 << 10;

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListFault {
    /// It is not where lists are.
    #[error("an https:// address of at most {ADDRESS_MAX} bytes, without a name or a secret in it")]
    Address,
    /// No authorities are known that could vouch for a name.
    #[error("no certificate authorities are known here")]
    Trust,
    /// The proxy does not reach it, by a word of [`crate::Cause`].
    #[error("not reached: {0}")]
    Unreached(&'static str),
    /// The name does not prove itself, or speaks no TLS.
    #[error("no TLS with it")]
    Tls(#[source] io::Error),
    /// It has something else to say.
    #[error("it answers {0}")]
    Status(u16),
    /// Not `text/plain`, or not UTF-8.
    #[error("it is not text/plain")]
    Kind,
    /// It broke off, or is no answer.
    #[error("its answer cannot be read")]
    Answer,
    /// Beyond [`BYTES_MAX`].
    #[error("it is longer than {BYTES_MAX} bytes")]
    Long,
    /// Beyond [`WITHIN`].
    #[error("it did not come within {} s", WITHIN.as_secs())]
    Late,
    /// A line of it is no pattern, or there are too many.
    #[error(transparent)]
    Pattern(#[from] PatternFault),
}

/// A list, and when it came.
type Kept = (Instant, Arc<[Pattern]>);

/// Lists, fetched and kept.
pub struct Lists {
    egress: Egress,
    policy: Policy,
    ca: Option<PathBuf>,
    trust: OnceLock<Option<Arc<ClientConfig>>>,
    kept: Mutex<HashMap<Box<str>, Kept>>,
    fetches: Semaphore,
}

impl std::fmt::Debug for Lists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lists").finish_non_exhaustive()
    }
}

impl Lists {
    /// Lists that `egress` reaches under `policy`, from names that the authorities in `ca` (a PEM
    /// file) vouch for; `None`: those that the system trusts.
    #[must_use]
    pub fn new(egress: Egress, policy: Policy, ca: Option<PathBuf>) -> Lists {
        Lists {
            egress,
            policy,
            ca,
            trust: OnceLock::new(),
            kept: Mutex::default(),
            fetches: Semaphore::new(FETCHES_MAX),
        }
    }

    /// The patterns of the list at `address`.
    ///
    /// # Errors
    /// See [`ListFault`].
    pub async fn get(&self, address: &str) -> Result<Arc<[Pattern]>, ListFault> {
        if let Some(known) = self.known(address) {
            return Ok(known);
        }
        let url = Url::parse(address).ok().filter(|url| {
            url.scheme() == "https"
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
        });
        let url = url.filter(|_| address.len() <= ADDRESS_MAX);
        let url = url.ok_or(ListFault::Address)?;
        let fetched = async {
            let _one_of = self.fetches.acquire().await;
            // Another may have fetched it meanwhile.
            match self.known(address) {
                Some(known) => Ok(known),
                None => self.fetch(&url).await,
            }
        };
        let patterns = timeout(WITHIN, fetched).await;
        let patterns = patterns.unwrap_or(Err(ListFault::Late))?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (from, _)| from.elapsed() < KEPT_FOR);
        }
        if kept.len() < KEPT_MAX {
            kept.entry(address.into())
                .or_insert_with(|| (Instant::now(), Arc::clone(&patterns)));
        }
        Ok(patterns)
    }

    fn known(&self, address: &str) -> Option<Arc<[Pattern]>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, patterns) = kept.get(address)?;
        if from.elapsed() < KEPT_FOR {
            return Some(Arc::clone(patterns));
        }
        kept.remove(address);
        None
    }

    async fn fetch(&self, url: &Url) -> Result<Arc<[Pattern]>, ListFault> {
        let host = url.host_str().ok_or(ListFault::Address)?;
        let authority = format!("{host}:{}", url.port().unwrap_or(443));
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|_| ListFault::Address)?;
        let trust = self.trust().ok_or(ListFault::Trust)?;
        let exit = self.egress.open();
        let _ = exit.admit(self.policy.clone());
        let (mut stream, theirs) = tokio::io::duplex(UNDER_WAY);
        // Dropped with this, and all of the connection with it.
        let mut serving = JoinSet::new();
        let guest = exit.clone();
        serving.spawn(async move { guest.welcome(theirs).await });
        if !tunnel(&mut stream, &authority).await? {
            let why = exit.why(host, None);
            let word = why.map_or("no answer", |refusal| refusal.cause.as_str());
            return Err(ListFault::Unreached(word));
        }
        let secured = TlsConnector::from(trust).connect(name, stream).await;
        let mut stream = secured.map_err(ListFault::Tls)?;
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let shown = url.port().map_or(host, |_| authority.as_str());
        let question = format!(
            "GET {path} HTTP/1.1\r\nHost: {shown}\r\nAccept: text/plain\r\nUser-Agent: usher\r\nConnection: close\r\n\r\n"
        );
        let asked = stream.write_all(question.as_bytes()).await;
        asked.map_err(ListFault::Tls)?;
        let text = answer(&mut stream).await?;
        let text = String::from_utf8(text).map_err(|_| ListFault::Kind)?;
        Ok(Guardrails::of_list(&text)?.patterns().into())
    }

    fn trust(&self) -> Option<Arc<ClientConfig>> {
        let made = self.trust.get_or_init(|| {
            let profile = TrustProfile {
                verify: true,
                ca: self.ca.clone(),
                ..TrustProfile::default()
            };
            let configs = ClientConfigs::load([profile.clone()]).ok()?;
            configs.get(&profile).cloned()
        });
        made.clone()
    }
}

/// Whether the proxy makes a tunnel.
async fn tunnel(stream: &mut DuplexStream, authority: &str) -> Result<bool, ListFault> {
    let question = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    let asked = stream.write_all(question.as_bytes()).await;
    asked.map_err(|_| ListFault::Answer)?;
    let mut head = Vec::new();
    let mut bounded = stream.take(TUNNEL_HEAD_MAX);
    // Byte by byte: what follows belongs to somebody else.
    while !head.ends_with(b"\r\n\r\n") {
        let byte = bounded.read_u8().await;
        head.push(byte.map_err(|_| ListFault::Answer)?);
    }
    Ok(head.starts_with(b"HTTP/1.1 200 "))
}

/// Reads an answer that is a list.
async fn answer<S>(stream: &mut S) -> Result<Vec<u8>, ListFault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = Asked {
        method: Method::Get,
        websocket: false,
    };
    let mut inbox = Inbox::default();
    let mut head = ResponseHead::new();
    loop {
        match parse_response(inbox.filled(), &LIMITS, asked, &mut head) {
            Ok(Parsed::Complete) if head.kind == ResponseKind::Interim => inbox.consume(head.len),
            Ok(Parsed::Complete) => break,
            Ok(Parsed::Partial) => match inbox.fill(stream).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(ListFault::Answer),
            },
            Err(_) => return Err(ListFault::Answer),
        }
    }
    if head.status != 200 {
        return Err(ListFault::Status(head.status));
    }
    let is_text = head.fields.iter().any(|field| {
        let (name, value) = (
            field.name.of(inbox.filled()),
            field.value.of(inbox.filled()),
        );
        let kind = value.split(|&byte| byte == b';').next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"content-type")
            && kind.trim_ascii().eq_ignore_ascii_case(b"text/plain")
    });
    if !is_text {
        return Err(ListFault::Kind);
    }
    let mut decoder = BodyDecoder::new(head.body, &LIMITS);
    inbox.consume(head.len);
    let mut body = Vec::new();
    loop {
        let decoded = decoder.decode(inbox.filled());
        let (used, event) = decoded.map_err(|_| ListFault::Answer)?;
        match event {
            BodyEvent::Data(range) => {
                let data = &inbox.filled()[range];
                if body.len() + data.len() > BYTES_MAX {
                    return Err(ListFault::Long);
                }
                body.extend_from_slice(data);
                inbox.consume(used);
            }
            BodyEvent::NeedMore => {
                inbox.consume(used);
                match inbox.fill(stream).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => {
                        decoder.eof().map_err(|_| ListFault::Answer)?;
                        return Ok(body);
                    }
                }
            }
            BodyEvent::End => return Ok(body),
        }
    }
}
