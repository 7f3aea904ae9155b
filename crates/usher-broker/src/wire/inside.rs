//! A browser asked in the client's name: its version, its pages.
//!
//! Browsers answer such questions over HTTP on a port of their own, which ours do not have. So each
//! is a command on the pipe, beside all connections, and what only that port could say is not told.

use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use usher_cdp::gate;
use usher_core::lease::SessionId;

use super::answer::{Fault, Said, json};
use super::{Caller, Front, parameter, session_id};

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
            _ => return Err(Fault::nowhere()),
        };
        if !expected.contains(method) {
            return Err(Fault::method());
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
                if !gate::may_navigate(&url) {
                    return Err(Fault::bad(gate::NAVIGATION));
                }
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
            "webSocketDebuggerUrl": caller.browser_url_once(session),
        })))
    }

    /// Asks the browser one thing.
    async fn ask(
        &self,
        caller: &Caller,
        session: SessionId,
        method: &'static str,
        params: Value,
    ) -> Result<Value, Fault> {
        let account = caller.account.id;
        let asked = self.sessions.ask(account, session, method, params);
        let mut answer = asked.await?;
        match answer["error"]["message"].as_str() {
            Some(text) => Err(Fault::bad(text)),
            None => Ok(answer["result"].take()),
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
