//! The first words on a connection: the TLS handshake, and which HTTP it will be.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use rustls::ProtocolVersion;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::connection::{ConnInfo, TlsInfo};
use super::drain::Drain;
use super::forward::trusts;
use super::listen::Accepted;
use super::stream::{Prefixed, Stream};
use super::worker::Worker;
use super::{h1, h2};
use crate::tls::ServerConfigs;

/// Serves one connection until it is over.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    accepted: Accepted<TcpStream>,
    local: SocketAddr,
    tls: Option<ServerConfigs>,
    drain: Rc<Drain>,
) {
    let Accepted {
        socket,
        peer,
        seat: _seat,
    } = accepted;
    let trusted = trusts(&worker.view().settings.trusted_proxies, peer.ip());
    let mut conn = ConnInfo {
        peer,
        local,
        tls: None,
        trusted,
        drain,
    };
    let Some(tls) = tls else {
        return h1::serve(worker, Stream::Plain(socket), conn).await;
    };
    // Boxed: a handshake is short and large, and its size would be that of every connection.
    let Some((stream, info)) = Box::pin(shake(&worker, &tls, socket)).await else {
        worker.tally().handshake_failed();
        return;
    };
    let h2 = info.h2;
    conn.tls = Some(info);
    if h2 {
        h2::serve(worker, Prefixed::new(Bytes::new(), stream), conn).await;
    } else {
        h1::serve(worker, stream, conn).await;
    }
}

async fn shake(
    worker: &Worker,
    tls: &ServerConfigs,
    socket: TcpStream,
) -> Option<(Stream, TlsInfo)> {
    let within = worker.view().settings.timeouts.tls_handshake;
    let shaken = timeout(within, tls.acceptor().accept(socket)).await;
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(%error, "a TLS handshake failed");
            return None;
        }
        Err(_) => {
            debug!("a TLS handshake took too long");
            return None;
        }
    };
    let session = stream.get_ref().1;
    let version = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    let info = TlsInfo {
        version,
        sni: session
            .server_name()
            .map(|name| name.to_ascii_lowercase().into()),
        h2: session.alpn_protocol() == Some(b"h2"),
    };
    Some((Stream::Tls(Box::new(stream.into())), info))
}
