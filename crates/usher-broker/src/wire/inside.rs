//! A browser asked in the client's name: its version, its pages.
//!
//! Browsers answer such questions over HTTP on a port of their own, which ours do not have. So each
//! is a command over a connection of its own, and what only that port could say is not told.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use usher_cdp::session::{Framing, websocket};
use usher_cdp::{Gate, Part};
use usher_core::lease::SessionId;

use super::answer::{Fault, Said, empty, json};
use super::{Caller, Front, parameter, session_id};
use crate::sessions::Missing;

/// For a browser to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Bytes of an answer: a list of many pages.
const MESSAGE_MAX: usize = 4 << 20;

/// What a browser lists and nobody opened: parts of its own surface.
const OWN_KINDS: [&str; 2] = ["browser_ui", "browser"];

impl Front {
    pub(super) async fn inside<B>(
        &self,
        caller: &Caller,
        id: &str,
        rest: &[&str],
        request: &Request<B>,
    ) -> Result<Response<Said>, Fault> {
        let method = request.method();
        let expected: &[Method] = match rest {
            ["new"] => &[Method::PUT],
            ["close", _] => &[Method::GET, Method::DELETE],
            [] | ["list" | "version" | "protocol"] | ["list" | "activate", _] => &[Method::GET],
            _ => return Ok(empty(StatusCode::NOT_FOUND)),
        };
        if !expected.contains(method) {
            return Ok(empty(StatusCode::METHOD_NOT_ALLOWED));
        }
        let session = session_id(id)?;
        match rest {
            [] | ["list"] => {
                let targets = self.targets(caller, session).await?;
                Ok(json(&Value::Array(targets)))
            }
            ["list", target] => {
                let target = self.target(caller, session, target).await?;
                Ok(json(&target))
            }
            ["version"] => self.version(caller, session).await,
            ["new"] => {
                let url = parameter(request.uri().query(), "url");
                let url = url.unwrap_or_else(|| "about:blank".to_owned());
                let made = self
                    .ask(caller, session, "Target.createTarget", json!({"url": url}))
                    .await?;
                let target = made["targetId"].as_str().unwrap_or_default().to_owned();
                let target = self.target(caller, session, &target).await?;
                Ok(json(&target))
            }
            ["activate", target] => {
                self.target(caller, session, target).await?;
                let params = json!({"targetId": target});
                self.ask(caller, session, "Target.activateTarget", params)
                    .await?;
                Ok(json(&json!({"message": "Target activated"})))
            }
            ["close", target] => {
                self.target(caller, session, target).await?;
                let params = json!({"targetId": target});
                self.ask(caller, session, "Target.closeTarget", params)
                    .await?;
                Ok(json(&json!({"message": "Target is closing"})))
            }
            _ => Err(Fault::unbuilt("the protocol's description")),
        }
    }

    /// What can be connected to in a browser.
    pub(super) async fn targets(
        &self,
        caller: &Caller,
        session: SessionId,
    ) -> Result<Vec<Value>, Fault> {
        let told = self
            .ask(caller, session, "Target.getTargets", json!({}))
            .await?;
        let base = caller.browser_url(session);
        let infos = told["targetInfos"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        Ok(infos.iter().filter_map(|info| shown(info, &base)).collect())
    }

    async fn target(
        &self,
        caller: &Caller,
        session: SessionId,
        target: &str,
    ) -> Result<Value, Fault> {
        let targets = self.targets(caller, session).await?.into_iter();
        let mut found = targets.filter(|shown| shown["id"] == target);
        let missing = || Fault::new(StatusCode::NOT_FOUND, "Target not found");
        found.next().ok_or_else(missing)
    }

    async fn version(&self, caller: &Caller, session: SessionId) -> Result<Response<Said>, Fault> {
        let told = self
            .ask(caller, session, "Browser.getVersion", json!({}))
            .await?;
        let revision = told["revision"].as_str().unwrap_or_default();
        Ok(json(&json!({
            "Browser": told["product"],
            "Protocol-Version": told["protocolVersion"],
            "User-Agent": told["userAgent"],
            "V8-Version": told["jsVersion"],
            "WebKit-Version": format!("537.36 ({revision})"),
            "webSocketDebuggerUrl": caller.browser_url(session),
        })))
    }

    /// Asks one thing, as a client that comes for it and goes.
    async fn ask(
        &self,
        caller: &Caller,
        session: SessionId,
        method: &str,
        params: Value,
    ) -> Result<Value, Fault> {
        let account = caller.account.id;
        let line = self
            .sessions
            .visit(
                account,
                session,
                Part::Browser,
                Gate::default(),
                MESSAGE_MAX,
            )
            .await?;
        let (near, far) = tokio::io::duplex(64 << 10);
        let settings = Some(websocket(MESSAGE_MAX));
        let ours = WebSocketStream::from_raw_socket(near, Role::Client, settings);
        let theirs = WebSocketStream::from_raw_socket(far, Role::Server, settings);
        let (mut ours, theirs) = (ours.await, theirs.await);
        let serving = tokio::spawn(line.serve(theirs, Framing::Text));
        let question = json!({"id": 1, "method": method, "params": params}).to_string();
        let asked = async {
            ours.send(Message::text(question)).await.ok()?;
            while let Some(Ok(message)) = ours.next().await {
                let answer = message.to_text().ok().and_then(|text| {
                    let answer: Value = serde_json::from_str(text).ok()?;
                    (answer["id"] == 1).then_some(answer)
                });
                if answer.is_some() {
                    return answer;
                }
            }
            None
        };
        let answer = timeout(ANSWER_MAX, asked).await;
        // The line ends by itself when it finds nobody there.
        drop((ours, serving));
        match answer {
            Ok(Some(mut answer)) => match answer["error"]["message"].as_str() {
                Some(text) => Err(Fault::bad(text)),
                None => Ok(answer["result"].take()),
            },
            Ok(None) => Err(Missing::Unknown.into()),
            Err(_) => {
                let text = "the browser does not answer";
                Err(Fault::new(StatusCode::GATEWAY_TIMEOUT, text))
            }
        }
    }
}

/// A target, as clients of the browser's own port know it. `None`: it is none of theirs.
fn shown(info: &Value, base: &str) -> Option<Value> {
    let id = info["targetId"].as_str()?;
    let (kind, url) = (info["type"].as_str()?, info["url"].as_str()?);
    if OWN_KINDS.contains(&kind) || url.starts_with("chrome:") || url.starts_with("chrome-") {
        return None;
    }
    Some(json!({
        "id": id,
        "type": kind,
        "url": url,
        "title": info["title"],
        "description": "",
        "webSocketDebuggerUrl": format!("{base}/page/{id}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_lead_to_us_and_the_browsers_own_are_left_out() {
        let info = |kind: &str, url: &str| json!({"targetId": "AB", "type": kind, "title": "t", "url": url});
        let target = shown(
            &info("page", "about:blank"),
            "ws://fake.host/v1/devtools/browser/X",
        );
        let target = target.expect("a page");
        assert_eq!(
            target["webSocketDebuggerUrl"],
            "ws://fake.host/v1/devtools/browser/X/page/AB"
        );
        for (kind, url) in [
            ("browser_ui", "chrome://omnibox-popup.top-chrome/"),
            ("page", "chrome://version"),
            ("page", "chrome-untrusted://new-tab-page"),
            ("browser", ""),
        ] {
            assert_eq!(shown(&info(kind, url), ""), None, "{url}");
        }
    }
}
