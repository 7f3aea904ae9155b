//! What is seen to in every browser, whatever its clients look at.
//!
//! The gate judges what clients say, and a page goes where it likes afterwards. So the browser is
//! asked to tell of its targets on the pipe itself, beside what clients ask it to tell: a page whose
//! address turns into one that nobody may be sent to is closed, and so is one too many. Downloads
//! are denied in each context before a client could allow them.
//!
//! Where a session has guardrails, requests over TLS are held up for a look too. The proxy is what
//! keeps them in; but it can only refuse a tunnel, and a page would see a connection that failed
//! where it is to see a 403. The browser asks those who hold up requests in an order in which the
//! pipe itself comes last, so whatever a client intercepts, it has had its word before.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::gate::may_navigate;

/// Pages of one browser.
pub const PAGES_MAX: usize = 50;

/// Contexts that are remembered. Beyond them all are told again.
const CONTEXTS_MAX: usize = 1024;

/// The hosts that a session may reach.
#[derive(Clone)]
pub struct Reach(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Reach {
    /// Those for which `allows` is true. It is asked for hosts in lower case, without a dot at the
    /// end.
    pub fn new(allows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Reach {
        Reach(Arc::new(allows))
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reach")
    }
}

/// A method and its parameters.
pub(super) type Order = (&'static str, Value);

/// What is known of the browser.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pages: HashSet<Box<str>>,
    contexts: HashSet<Box<str>>,
    reach: Option<Reach>,
}

impl Watch {
    pub(super) fn new(reach: Option<Reach>) -> Watch {
        Watch {
            reach,
            ..Watch::default()
        }
    }

    /// What the browser is told before anybody else speaks.
    pub(super) fn begin(&self) -> Vec<Order> {
        let mut orders = vec![
            ("Target.setDiscoverTargets", json!({"discover": true})),
            ("Browser.setDownloadBehavior", json!({"behavior": "deny"})),
        ];
        if self.reach.is_some() {
            // What somebody before us held up, and did not live to let go, goes on by this.
            orders.push(("Fetch.disable", json!({})));
            let patterns = json!([{"urlPattern": "https://*"}]);
            orders.push(("Fetch.enable", json!({"patterns": patterns})));
        }
        orders
    }

    /// Whether there are as many pages as may be.
    pub(super) fn is_full(&self) -> bool {
        self.pages.len() >= PAGES_MAX
    }

    /// What is to be done about something that the browser tells on the pipe itself.
    pub(super) fn event(&mut self, method: &str, message: &[u8]) -> Option<Order> {
        let params = |message| {
            let mut event: Value = serde_json::from_slice(message).ok()?;
            Some(event["params"].take())
        };
        match method {
            "Target.targetCreated" | "Target.targetInfoChanged" => {
                self.target(&params(message)?["targetInfo"])
            }
            "Target.targetDestroyed" => {
                let params = params(message)?;
                self.pages.remove(params["targetId"].as_str()?);
                None
            }
            "Fetch.requestPaused" => {
                let params = params(message)?;
                let url = params["request"]["url"].as_str()?;
                Some(self.paused(&params["requestId"], url))
            }
            _ => None,
        }
    }

    fn target(&mut self, info: &Value) -> Option<Order> {
        let id = info["targetId"].as_str()?;
        let is_page = info["type"] == "page";
        let strays = info["url"].as_str().is_some_and(strays);
        if is_page && (strays || (self.is_full() && !self.pages.contains(id))) {
            return Some(("Target.closeTarget", json!({"targetId": id})));
        }
        if is_page {
            self.pages.insert(id.into());
        }
        let context = info["browserContextId"].as_str()?;
        if self.contexts.len() >= CONTEXTS_MAX {
            self.contexts.clear();
        }
        self.contexts.insert(context.into()).then(|| {
            let denied = json!({"behavior": "deny", "browserContextId": context});
            ("Browser.setDownloadBehavior", denied)
        })
    }

    /// A request over TLS waits for its fate.
    fn paused(&self, request: &Value, url: &str) -> Order {
        let allowed = match (&self.reach, host(url)) {
            (Some(Reach(allows)), Some(host)) => allows(&host),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if allowed {
            return ("Fetch.continueRequest", json!({"requestId": request}));
        }
        let header = |name: &str, value: &str| json!({"name": name, "value": value});
        let answer = json!({
            "requestId": request,
            "responseCode": 403,
            "responseHeaders": [
                header("content-type", "text/plain; charset=utf-8"),
                header("cache-control", "no-store"),
                header("cf-mitigated", "guardrails"),
                header("cf-brapi-guardrails-reason", "not-in-allowlist"),
            ],
        });
        ("Fetch.fulfillRequest", answer)
    }
}

/// Whether nobody is to be at this address. Where a page could not be loaded is none of these.
pub(super) fn strays(url: &str) -> bool {
    !may_navigate(url) && !url.starts_with("chrome-error:")
}

/// The host of an `https` address as the browser writes it.
fn host(url: &str) -> Option<String> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority
        .rsplit_once('@')
        .map_or(authority, |(_, place)| place);
    let host = match place.strip_prefix('[') {
        Some(literal) => literal.split(']').next()?,
        None => place.split(':').next()?,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(watch: &mut Watch, method: &str, params: Value) -> Option<Order> {
        let message = json!({"method": method, "params": params}).to_string();
        watch.event(method, message.as_bytes())
    }

    fn target(id: &str, kind: &str, url: &str) -> Value {
        json!({"targetInfo": {"targetId": id, "type": kind, "url": url}})
    }

    #[test]
    fn pages_that_stray_and_pages_too_many_are_closed() {
        let mut watch = Watch::default();
        let closed = |id: &str| Some(("Target.closeTarget", json!({"targetId": id})));
        let created = "Target.targetCreated";
        for n in 0..PAGES_MAX {
            let page = target(&n.to_string(), "page", "about:blank");
            assert_eq!(told(&mut watch, created, page.clone()), None);
            // Told of twice it counts once.
            assert_eq!(told(&mut watch, "Target.targetInfoChanged", page), None);
        }
        assert!(watch.is_full());
        let page = target("x", "page", "");
        assert_eq!(told(&mut watch, created, page.clone()), closed("x"));
        let worker = target("w", "worker", "blob:http://a/1");
        assert_eq!(told(&mut watch, created, worker), None);
        told(
            &mut watch,
            "Target.targetDestroyed",
            json!({"targetId": "7"}),
        );
        assert_eq!(told(&mut watch, created, page), None);
        for (url, stays) in [
            ("https://example.com/", true),
            ("chrome-error://chromewebdata/", true),
            ("about:srcdoc", true),
            ("file:///etc/passwd", false),
            ("view-source:https://example.com/", false),
            ("chrome://version/", false),
            ("devtools://devtools/bundled/inspector.html", false),
        ] {
            let page = target("x", "page", url);
            let order = told(&mut watch, "Target.targetInfoChanged", page);
            assert_eq!(order.is_none(), stays, "{url}: {order:?}");
            // The browser's own surface is not ours to close.
            let own = target("y", "browser_ui", url);
            assert_eq!(told(&mut watch, "Target.targetInfoChanged", own), None);
        }
    }

    #[test]
    fn each_context_is_denied_downloads_once() {
        let mut watch = Watch::default();
        let mut page = target("1", "page", "");
        page["targetInfo"]["browserContextId"] = "C".into();
        let denied = json!({"behavior": "deny", "browserContextId": "C"});
        let denied = Some(("Browser.setDownloadBehavior", denied));
        assert_eq!(
            told(&mut watch, "Target.targetCreated", page.clone()),
            denied
        );
        assert_eq!(told(&mut watch, "Target.targetInfoChanged", page), None);
    }

    #[test]
    fn a_request_that_guardrails_forbid_is_answered() {
        let reach = Reach::new(|host| host == "example.com");
        let mut watch = Watch::new(Some(reach));
        assert_eq!(watch.begin().len(), 4);
        for (url, passes) in [
            ("https://example.com/", true),
            ("https://EXAMPLE.com.:8443?x", true),
            ("https://user:secret@example.com", true),
            ("https://example.com@evil.example/", false),
            ("https://www.example.com/", false),
            ("https://[2001:db8::1]/", false),
            ("https://", false),
            ("wss://example.com/", false),
        ] {
            let paused = json!({"requestId": "i.1", "request": {"url": url}});
            let order = told(&mut watch, "Fetch.requestPaused", paused).expect(url);
            let expected = if passes {
                "Fetch.continueRequest"
            } else {
                "Fetch.fulfillRequest"
            };
            assert_eq!(order.0, expected, "{url}");
            assert_eq!(order.1["requestId"], "i.1");
        }
        assert_eq!(Watch::default().begin().len(), 2);
    }
}
