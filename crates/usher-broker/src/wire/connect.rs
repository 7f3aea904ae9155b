//! Clients joined to their browsers.
//!
//! Everything that can be refused is refused before the connection changes its protocol: most
//! clients never see the reason otherwise.

use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use usher_cdp::{Framing, Gate, Part};
use usher_core::lease::SessionId;

use super::answer::{Fault, Said, empty};
use super::{Caller, Front, guardrails, parameter, session_id, uuid};
use crate::broker::Offer;
use crate::sessions::Joined;

impl Front {
    /// One message of the browser's protocol is one text message.
    pub(super) async fn connect<B>(
        &self,
        caller: &Caller,
        id: &str,
        request: Request<B>,
    ) -> Result<Response<Said>, Fault> {
        let key = upgrade_key(request.headers())?;
        let session = session_id(id)?;
        let gate = Gate {
            readonly: guardrails::readonly(request.headers())?,
            ..Gate::default()
        };
        let joined = self.joined(caller, session, Part::Browser, gate).await?;
        Ok(self.switch(request, &key, joined, Framing::Text, None))
    }

    /// The same, of one page.
    pub(super) async fn connect_page<B>(
        &self,
        caller: &Caller,
        id: &str,
        target: &str,
        request: Request<B>,
    ) -> Result<Response<Said>, Fault> {
        let key = upgrade_key(request.headers())?;
        let session = session_id(id)?;
        let gate = Gate {
            readonly: guardrails::readonly(request.headers())?,
            ..Gate::default()
        };
        let part = Part::Page(target.to_owned());
        let joined = self.joined(caller, session, part, gate).await?;
        Ok(self.switch(request, &key, joined, Framing::Text, None))
    }

    /// For older clients, which cut messages into pieces and want to be alone.
    pub(super) async fn connect_older<B>(
        &self,
        caller: &Caller,
        request: Request<B>,
    ) -> Result<Response<Said>, Fault> {
        let id = parameter(request.uri().query(), "browser_session");
        let id = id.ok_or_else(|| Fault::bad("browser_session must be set"))?;
        let key = upgrade_key(request.headers())?;
        let (account, limit) = (caller.account.id, caller.message_max());
        let joined = self.sessions.join(
            account,
            session_id(&id)?,
            Part::Browser,
            Gate::default(),
            limit,
            true,
        );
        let joined = joined.await?;
        Ok(self.switch(request, &key, joined, Framing::Chunks, None))
    }

    /// A browser and a connection to it in one step.
    pub(super) async fn acquire_and_connect<B>(
        &self,
        caller: &Caller,
        request: Request<B>,
    ) -> Result<Response<Said>, Fault> {
        let key = upgrade_key(request.headers())?;
        let guardrails = guardrails::of_header(request.headers())?;
        let given = self.give(caller, request.uri(), guardrails).await?;
        let session = given.offer.picked.session;
        let joined = self
            .joined(caller, session, Part::Browser, Gate::default())
            .await?;
        let (told, offer) = given.told(empty(StatusCode::SWITCHING_PROTOCOLS));
        let mut response = self.switch(request, &key, joined, Framing::Text, Some(offer));
        response.headers_mut().extend(told.into_parts().0.headers);
        Ok(response)
    }

    async fn joined(
        &self,
        caller: &Caller,
        session: SessionId,
        part: Part,
        gate: Gate,
    ) -> Result<Joined, Fault> {
        let (account, limit) = (caller.account.id, caller.message_max());
        let joined = self
            .sessions
            .join(account, session, part, gate, limit, false);
        Ok(joined.await?)
    }

    /// Answers 101 and carries the connection from then on.
    fn switch<B>(
        &self,
        mut request: Request<B>,
        key: &[u8],
        joined: Joined,
        framing: Framing,
        offer: Option<Offer>,
    ) -> Response<Said> {
        let session = joined.session();
        let client = request.headers().get("cf-brapi-client").cloned();
        let client = client.as_ref().and_then(|value| value.to_str().ok());
        tracing::debug!(?session, client, "a client connects");
        let upgrading = hyper::upgrade::on(&mut request);
        let sessions = Arc::clone(&self.sessions);
        tokio::spawn(async move {
            let (line, left) = joined.split();
            match upgrading.await {
                Ok(upgraded) => {
                    let parted = line.serve(TokioIo::new(upgraded), framing).await;
                    // Whoever never said a word was gone before the answer reached it, and knows of
                    // no session: dropped, the offer gives the browser back.
                    if let Some(offer) = offer.filter(|_| parted.spoke) {
                        offer.written();
                    }
                }
                // It went away between two steps: its line has to hear of it all the same.
                Err(_) => {
                    let (near, _) = tokio::io::duplex(1);
                    line.serve(near, framing).await;
                }
            }
            sessions.left(left).await;
        });
        let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        let values = [
            ("sec-websocket-accept", derive_accept_key(key)),
            ("cf-browser-session-id", uuid(session.0)),
        ];
        for (name, value) in values {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// The key of a request for a WebSocket.
fn upgrade_key(headers: &HeaderMap) -> Result<Vec<u8>, Fault> {
    let lists = |name, word: &str| {
        let values = headers.get_all(name).into_iter();
        let mut words = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    if !lists(CONNECTION, "upgrade") || !lists(UPGRADE, "websocket") {
        let text = "a WebSocket is expected here";
        return Err(Fault::new(StatusCode::UPGRADE_REQUIRED, text));
    }
    let is_13 = |value: &HeaderValue| value.as_bytes() == b"13";
    if !headers.get("sec-websocket-version").is_some_and(is_13) {
        return Err(Fault::bad("sec-websocket-version: only 13 is spoken"));
    }
    let key = headers.get("sec-websocket-key");
    let key = key.filter(|key| key.len() == 24);
    key.map(|key| key.as_bytes().to_vec())
        .ok_or_else(|| Fault::bad("sec-websocket-key: 24 characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_request_for_a_websocket_is_one() {
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "enSxZFaS2fH5Ax9SEBvXbA=="),
        ];
        let headers = |without: usize| {
            let mut headers = HeaderMap::new();
            for (at, (name, value)) in whole.into_iter().enumerate() {
                if at != without {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            headers
        };
        let key = upgrade_key(&headers(9)).expect("whole");
        assert_eq!(derive_accept_key(&key), "AaJM2rIpskoAgE+GHv3BAqyCTwI=");
        for (without, status) in [(0, 426), (1, 426), (2, 400), (3, 400)] {
            let fault = upgrade_key(&headers(without)).expect_err("not whole");
            assert_eq!(fault.status, status, "without {}", whole[without].0);
        }
    }
}
