//! The `http` and `https` monitors.
//!
//! One connection per hop, closed afterwards; address, `Host` and TLS name are set apart, because a
//! probe speaks to one endpoint in the name of the whole site. hyper parses: a probe has no need of
//! 1xx responses, upgrades or `splice`, and a second implementation keeps an endpoint from passing
//! only because it pleases the codec of the fronts.

use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, LOCATION,
    TRANSFER_ENCODING, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use usher_core::catalog::{Address, HttpCheck, MonitorKind};
use usher_core::health::FailureReason;
use usher_core::probe::{Probe, ProbeResult};

use super::connect::connect;
use super::redirect::Place;
use super::text::{Search, Sight};
use super::{Prober, fail, failure};
use crate::tls::TrustProfile;

/// Redirects followed in one probe; the response after the last one is judged.
pub const REDIRECTS_MAX: u32 = 10;
/// Bytes of a response head. A longer one is an invalid response, as it is for traffic.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of a response head. More make it an invalid response, as they do for traffic.
pub const FIELDS_MAX: usize = 128;

/// The profiles that [`ClientConfigs`] has to hold for a monitor of `kind` towards endpoints with
/// this `ca` and client certificate (PEM files): over TLS, and for those that follow redirects,
/// which may lead to TLS and to other servers. A probe that misses one fails with
/// [`FailureReason::MonitorConfig`].
///
/// [`ClientConfigs`]: crate::tls::ClientConfigs
#[must_use]
pub fn trust_profiles(
    kind: &MonitorKind,
    ca: Option<&str>,
    client_cert: Option<(&str, &str)>,
) -> Vec<TrustProfile> {
    let (verify, check, https) = match kind {
        MonitorKind::Tcp => return Vec::new(),
        MonitorKind::Http(check) => (true, check, false),
        MonitorKind::Https {
            check,
            allow_insecure,
        } => (!allow_insecure, check, true),
    };
    let mut profiles = Vec::new();
    if https || check.follow_redirects {
        profiles.push(profile(verify, ca, client_cert));
    }
    if check.follow_redirects && client_cert.is_some() {
        profiles.push(profile(verify, ca, None));
    }
    profiles
}

fn profile(verify: bool, ca: Option<&str>, client_cert: Option<(&str, &str)>) -> TrustProfile {
    TrustProfile {
        verify,
        ca: ca.map(PathBuf::from),
        client_cert: client_cert.map(|(cert, _)| PathBuf::from(cert)),
        client_key: client_cert.map(|(_, key)| PathBuf::from(key)),
    }
}

/// Makes one attempt. `verify`: whether a certificate on the way has to be valid.
pub(super) async fn probe(
    prober: &Prober,
    probe: &Probe,
    check: &HttpCheck,
    https: bool,
    verify: bool,
    deadline: Instant,
) -> ProbeResult {
    let Ok(mut hop) = Hop::first(probe, check, https) else {
        return fail(FailureReason::MonitorConfig, None, None);
    };
    let attempt = Attempt {
        prober,
        probe,
        check,
        own: hop.place.host.clone(),
        verify,
        deadline,
    };
    let (mut rtt, mut followed) = (None, 0);
    loop {
        let mut seen = Seen::default();
        let step = attempt.ask(&hop, followed < REDIRECTS_MAX, &mut seen).await;
        // A later hop may be another server: only the first one measures the endpoint.
        rtt = rtt.or_else(|| seen.rtt.get().copied());
        match step {
            Ok(Step::Follow(next)) => {
                hop = *next;
                followed += 1;
            }
            Ok(Step::Pass) => {
                return ProbeResult::Pass {
                    status: seen.status,
                    rtt: rtt.unwrap_or_default(),
                };
            }
            Err(reason) => return fail(reason, seen.status, rtt),
        }
    }
}

/// One request: where to connect, and what to ask for there.
#[derive(Debug, Clone)]
struct Hop {
    address: Address,
    port: u16,
    method: Method,
    /// What the request is for, in the words of the endpoint.
    place: Place,
    /// Name to ask for and to check; `None`: the address.
    sni: Option<String>,
    /// Whether this is the probed endpoint under its own name.
    home: bool,
    /// Whether the monitor's headers and the client certificate are shown. Both may be secrets:
    /// they stay at home, and what was meant for TLS is not sent in the clear.
    trusted: bool,
}

impl Hop {
    fn first(probe: &Probe, check: &HttpCheck, https: bool) -> Result<Hop, Malformed> {
        // An IPv6 address as Host needs brackets.
        let authority = match probe.host.parse::<Ipv6Addr>() {
            Ok(ip) => format!("[{ip}]"),
            Err(_) => probe.host.clone(),
        };
        let path = check.path.parse().map_err(|_| Malformed)?;
        let method = Method::from_bytes(check.method.as_bytes()).map_err(|_| Malformed)?;
        // After CONNECT there is no response, but a tunnel.
        if method == Method::CONNECT {
            return Err(Malformed);
        }
        Ok(Hop {
            address: probe.address.clone(),
            port: probe.port,
            method,
            place: Place::new(https, &authority, path).ok_or(Malformed)?,
            sni: probe.sni.clone(),
            home: true,
            trusted: true,
        })
    }

    /// The hop after this one, if `response` is a redirect to somewhere. `own`: the name under
    /// which the endpoint is probed.
    fn next(&self, probe: &Probe, own: &str, response: &Response<Incoming>) -> Option<Hop> {
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let place = self
            .place
            .follow(response.headers().get(LOCATION)?.to_str().ok()?)?;
        let method = match (status, &self.method) {
            (StatusCode::SEE_OTHER, method) if method != Method::HEAD => Method::GET,
            (StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND, &Method::POST) => Method::GET,
            (_, method) => method.clone(),
        };
        let home = place.host == own;
        let same_scheme = self.home && home && place.https == self.place.https;
        let named = match place.host.parse() {
            Ok(ip) => Address::Ip(ip),
            Err(_) => Address::Host(place.host.clone()),
        };
        let sni = match &named {
            _ if same_scheme => self.sni.clone(),
            _ if home && probe.sni.is_some() => probe.sni.clone(),
            Address::Host(host) => Some(host.clone()),
            Address::Ip(_) => None,
        };
        let port = match place.port {
            Some(port) => port,
            // It cannot know on which port we reach it, unless the Host header said so.
            None if same_scheme && self.place.port.is_none() => self.port,
            None if place.https => 443,
            None => 80,
        };
        // The endpoint speaks of itself under the site's name, which leads to the fronts and not
        // to this endpoint: stay at its address.
        let address = if home { probe.address.clone() } else { named };
        let trusted = self.trusted && home && (place.https || !self.place.https);
        Some(Hop {
            address,
            port,
            method,
            place,
            sni,
            home,
            trusted,
        })
    }

    fn request(
        &self,
        probe: &Probe,
        check: &HttpCheck,
    ) -> Result<Request<Empty<Bytes>>, Malformed> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from(self.place.path.clone());
        let headers = request.headers_mut();
        let given = if self.trusted {
            &check.headers[..]
        } else {
            &[]
        };
        for (name, values) in given {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Malformed)?;
            match name {
                HOST | USER_AGENT => continue,
                // The request has no body; these would promise one.
                CONTENT_LENGTH | TRANSFER_ENCODING => return Err(Malformed),
                _ => {}
            }
            for value in values {
                let value = HeaderValue::from_str(value).map_err(|_| Malformed)?;
                headers.append(&name, value);
            }
        }
        let host = self.place.authority();
        headers.insert(HOST, HeaderValue::from_str(&host).map_err(|_| Malformed)?);
        let agent = HeaderValue::from_str(&probe.user_agent).map_err(|_| Malformed)?;
        headers.insert(USER_AGENT, agent);
        headers
            .entry(ACCEPT)
            .or_insert(HeaderValue::from_static("*/*"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
            // Some servers answer 411 when a method that could have a body says nothing of it.
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Ok(request)
    }
}

/// The monitor asks for something that cannot be sent.
#[derive(Debug)]
struct Malformed;

impl From<Malformed> for FailureReason {
    fn from(_: Malformed) -> FailureReason {
        FailureReason::MonitorConfig
    }
}

/// What came back before the attempt ended, however it ended.
#[derive(Debug, Default)]
struct Seen {
    status: Option<u16>,
    rtt: Arc<OnceLock<Duration>>,
}

enum Step {
    Pass,
    Follow(Box<Hop>),
}

struct Attempt<'a> {
    prober: &'a Prober,
    probe: &'a Probe,
    check: &'a HttpCheck,
    /// The name under which the endpoint is probed.
    own: String,
    verify: bool,
    deadline: Instant,
}

impl Attempt<'_> {
    async fn ask(&self, hop: &Hop, follow: bool, seen: &mut Seen) -> Result<Step, FailureReason> {
        let request = hop.request(self.probe, self.check)?;
        let tls = if hop.place.https {
            Some(self.tls(hop)?)
        } else {
            None
        };
        let connected = connect(self.prober, &hop.address, hop.port, self.deadline).await?;
        let answer = async {
            let (started, rtt) = (connected.started, Arc::clone(&seen.rtt));
            let Some((connector, name)) = tls else {
                let io = Timed {
                    io: connected.stream,
                    started,
                    rtt,
                };
                return self.exchange(io, hop, request, follow, seen).await;
            };
            let handshake = connector.connect(name, connected.stream).await;
            let io = handshake.map_err(|error| failure::of_handshake(&error))?;
            self.exchange(Timed { io, started, rtt }, hop, request, follow, seen)
                .await
        };
        let answer = timeout_at(self.deadline, answer).await;
        answer.unwrap_or(Err(FailureReason::HttpTimeout))
    }

    fn tls(&self, hop: &Hop) -> Result<(TlsConnector, ServerName<'static>), FailureReason> {
        let client_cert = self.probe.client_cert.as_ref().filter(|_| hop.trusted);
        let client_cert = client_cert.map(|(cert, key)| (cert.as_str(), key.as_str()));
        let profile = profile(self.verify, self.probe.ca.as_deref(), client_cert);
        let clients = (self.prober.clients)();
        let shared = clients.get(&profile).ok_or(FailureReason::MonitorConfig)?;
        let mut config = ClientConfig::clone(shared);
        // A resumed session would not show the certificate again, and a probe is there to see it.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.enable_sni = hop.sni.is_some();
        let name = match (&hop.sni, &hop.address) {
            (Some(name), _) | (None, Address::Host(name)) => ServerName::try_from(name.clone()),
            (None, Address::Ip(ip)) => Ok(ServerName::from(*ip)),
        };
        let name = name.map_err(|_| FailureReason::MonitorConfig)?;
        Ok((TlsConnector::from(Arc::new(config)), name))
    }

    async fn exchange<Io>(
        &self,
        io: Io,
        hop: &Hop,
        request: Request<Empty<Bytes>>,
        follow: bool,
        seen: &mut Seen,
    ) -> Result<Step, FailureReason>
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut http = Builder::new();
        http.max_headers(FIELDS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = http
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| failure::of_exchange(&error))?;
        let mut answer = pin!(async {
            let response = sender.send_request(request).await?;
            self.judge(hop, response, follow, seen).await
        });
        let mut connection = pin!(connection);
        let mut open = true;
        // The connection moves only while it is polled. What breaks it comes out of the answer.
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                _ = &mut connection, if open => open = false,
            }
        };
        answer.unwrap_or_else(|error| Err(failure::of_exchange(&error)))
    }

    async fn judge(
        &self,
        hop: &Hop,
        mut response: Response<Incoming>,
        follow: bool,
        seen: &mut Seen,
    ) -> hyper::Result<Result<Step, FailureReason>> {
        if follow
            && self.check.follow_redirects
            && let Some(next) = hop.next(self.probe, &self.own, &response)
        {
            return Ok(Ok(Step::Follow(Box::new(next))));
        }
        let status = response.status().as_u16();
        seen.status = Some(status);
        if !self.check.expected_codes.contains(status) {
            return Ok(Err(FailureReason::CodeMismatch));
        }
        if self.check.expected_body.is_empty() {
            return Ok(Ok(Step::Pass));
        }
        let encoding = response
            .headers()
            .get(CONTENT_ENCODING)
            .map(HeaderValue::as_bytes);
        let mut search = Search::new(&self.check.expected_body, encoding);
        while let Some(frame) = response.frame().await {
            let Ok(piece) = frame?.into_data() else {
                continue;
            };
            match search.feed(&piece) {
                Sight::Found => return Ok(Ok(Step::Pass)),
                Sight::NotYet => {}
                Sight::Absent => break,
            }
        }
        Ok(Err(FailureReason::BodyMismatch))
    }
}

/// Notes when the first byte comes in.
struct Timed<Io> {
    io: Io,
    started: Instant,
    rtt: Arc<OnceLock<Duration>>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Timed<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.rtt.get_or_init(|| self.started.elapsed());
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Timed<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
