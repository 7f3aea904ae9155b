//! One page, from its address to a picture: what quick actions have in common.
//!
//! The whole sequence runs here, next to the browser, from one order: nobody far away waits for each
//! message. Every step has a deadline, and a fault says which one it was. The browser ends after it,
//! whatever came of it, so nothing is put back as it was.
//!
//! Source: browser specification 6.1, 6.3, 6.4.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

mod order;
mod pattern;
mod within;

pub use order::{
    Clip, Content, Credentials, Format, Screenshot, Selector, Tag, Until, Viewport, Visit,
};

pub use pattern::{PATTERN_MAX, Pattern, PatternFault, STEPS_MAX};

use usher_egress::Cause;

use crate::canary::open_page;
use crate::client::{Client, ClientFault, Judging, within};
use within::ScriptFault;

/// How long a page may be prepared before it is loaded.
const PREPARE_MAX: Duration = Duration::from_secs(10);

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PageFault {
    /// An address that pages of strangers may not be loaded from.
    #[error("Cannot navigate to this URL")]
    Scheme,
    /// The browser does not take a part of the order.
    #[error("{field}: {message}")]
    Refused {
        /// Which, as it is called in the order.
        field: String,
        /// The browser's words.
        message: String,
    },
    /// The browser could not load it, in its own words.
    #[error("{error}")]
    Net {
        /// A name that begins with `net::`.
        error: String,
        /// The host that was asked last, if that is known.
        host: Option<String>,
    },
    /// Loading took too long.
    #[error("Navigation timeout of {0} ms exceeded")]
    LoadLate(u64),
    /// Something that the page has to have did not come.
    #[error("Waiting failed: {0} ms exceeded")]
    WaitLate(u64),
    /// A script of the order failed in the page, in its own words.
    #[error("{0}")]
    Script(String),
    /// The page has no such element.
    #[error("no element matches selector {0:?}")]
    NoElement(String),
    /// The picture took too long.
    #[error("Waiting failed: {0} ms exceeded")]
    ActionLate(u64),
    /// The page has crashed.
    #[error("Page crashed!")]
    Crashed,
    /// The page has eaten all memory that its browser may use.
    #[error("TargetCloseError")]
    Memory,
    /// The page has closed itself.
    #[error("TargetCloseError")]
    Closed,
    /// The picture could not be made, in the browser's words.
    #[error("{0}")]
    Capture(String),
    /// The browser itself failed.
    #[error(transparent)]
    Browser(ClientFault),
}

impl PageFault {
    /// A word for it that programs can rely on.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            PageFault::Scheme => "scheme",
            PageFault::Refused { .. } => "refused",
            PageFault::Net { .. } => "net",
            PageFault::LoadLate(_) => "load_late",
            PageFault::ActionLate(_) => "action_late",
            PageFault::WaitLate(_) => "wait_late",
            PageFault::Script(_) => "script",
            PageFault::NoElement(_) => "no_element",
            PageFault::Crashed => "crashed",
            PageFault::Memory => "memory",
            PageFault::Closed => "closed",
            PageFault::Capture(_) => "capture",
            PageFault::Browser(ClientFault::Late { .. }) => "browser_late",
            PageFault::Browser(_) => "browser",
        }
    }
}

impl From<ClientFault> for PageFault {
    fn from(fault: ClientFault) -> PageFault {
        match fault {
            ClientFault::Crashed => PageFault::Crashed,
            ClientFault::Detached => PageFault::Closed,
            fault @ ClientFault::Windows => PageFault::Capture(fault.to_string()),
            other => PageFault::Browser(other),
        }
    }
}

#[derive(Deserialize)]
struct Picture {
    data: String,
}

/// Makes the picture `wanted` in a browser that nobody has used.
///
/// # Errors
/// See [`PageFault`].
pub async fn screenshot(client: &mut Client, wanted: &Screenshot) -> Result<Vec<u8>, PageFault> {
    let page = visit(client, &wanted.visit).await?;
    let deadline = within(Duration::from_millis(wanted.action_ms));
    capture(client, &page, wanted, deadline).await
}

/// Goes to a page and does what is to be done there before the action itself; the session that
/// speaks to it.
async fn visit(client: &mut Client, wanted: &Visit) -> Result<String, PageFault> {
    if let Content::Url(url) = &wanted.content
        && !is_web(url)
    {
        return Err(PageFault::Scheme);
    }
    let deadline = within(PREPARE_MAX);
    let (frame, session) = open_page(client, deadline).await?;
    for (method, params) in preparations(wanted) {
        client.ask(&session, method, params, deadline).await?;
    }
    for (field, method, params) in wishes(wanted) {
        let done = client.ask(&session, method, params, deadline).await;
        done.map_err(|fault| refused(field, fault))?;
    }
    cookies(client, &session, wanted, deadline).await?;
    // So that windows that the page opens are seen, and closed.
    let discover = json!({"discover": true});
    client
        .ask("", "Target.setDiscoverTargets", discover, deadline)
        .await?;
    let deny = json!({"behavior": "deny"});
    client
        .ask("", "Browser.setDownloadBehavior", deny, deadline)
        .await?;
    let mut of_parts = of_parts(wanted);
    if let Some(judging) = judging(wanted, &frame)? {
        let params = json!({
            "patterns": [{"urlPattern": "*"}],
            "handleAuthRequests": wanted.authenticate.is_some(),
        });
        of_parts.push(("Fetch.enable", params.clone()));
        client.judge(judging);
        client
            .ask(&session, "Fetch.enable", params, deadline)
            .await?;
    }
    if !of_parts.is_empty() {
        // Frames of other sites and workers are parts with settings of their own.
        client.tell_parts(of_parts);
        let params = crate::client::attach_parts();
        client
            .ask(&session, "Target.setAutoAttach", params, deadline)
            .await?;
    }
    let load_deadline = within(Duration::from_millis(wanted.load_ms));
    let loaded = load(client, &session, &frame, wanted, load_deadline).await;
    tolerated(loaded, wanted.best_attempt)?;
    let tagged = tags(client, &session, wanted, load_deadline).await;
    tolerated(tagged, wanted.best_attempt)?;
    if let Some(selector) = &wanted.wait_for {
        let deadline = within(Duration::from_millis(selector.timeout_ms));
        let found = within::await_selector(client, &session, selector, deadline).await;
        let found = found.map_err(|fault| script(fault, PageFault::WaitLate(selector.timeout_ms)));
        tolerated(found, wanted.best_attempt)?;
    }
    if wanted.wait_ms > 0 {
        let deadline = within(Duration::from_millis(wanted.wait_ms));
        // Listening, so that dialogs and held requests do not stop the page meanwhile.
        let nothing = client
            .event(&session, "nothing", deadline, |_| Ok(None::<()>))
            .await;
        match nothing {
            Ok(()) | Err(ClientFault::Late { .. }) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(session)
}

/// What a best attempt puts up with: things that did not come, not a page that is gone.
fn tolerated(result: Result<(), PageFault>, best_attempt: bool) -> Result<(), PageFault> {
    match result {
        Err(
            PageFault::LoadLate(_)
            | PageFault::Net { .. }
            | PageFault::WaitLate(_)
            | PageFault::Script(_),
        ) if best_attempt => Ok(()),
        result => result,
    }
}

fn script(fault: ScriptFault, late: PageFault) -> PageFault {
    match fault {
        ScriptFault::Client(ClientFault::Late { .. }) => late,
        ScriptFault::Client(ClientFault::Refused { message, .. }) => PageFault::Script(message),
        ScriptFault::Client(other) => other.into(),
        ScriptFault::Threw(text) => PageFault::Script(text),
    }
}

async fn tags(
    client: &mut Client,
    page: &str,
    wanted: &Visit,
    deadline: Instant,
) -> Result<(), PageFault> {
    // A page without scripts has no use for more of them.
    let scripts = wanted.scripts.iter().filter(|_| !wanted.scripts_off);
    let scripts = scripts.map(|tag| ("script", tag));
    for (kind, tag) in scripts.chain(wanted.styles.iter().map(|tag| ("style", tag))) {
        let inserted = within::insert(client, page, kind, tag, deadline).await;
        inserted.map_err(|fault| script(fault, PageFault::LoadLate(wanted.load_ms)))?;
    }
    Ok(())
}

fn judging(wanted: &Visit, frame: &str) -> Result<Option<Judging>, PageFault> {
    let lists = [
        &wanted.reject_types,
        &wanted.allow_types,
        &wanted.reject_patterns,
        &wanted.allow_patterns,
    ];
    if wanted.authenticate.is_none() && lists.iter().all(|list| list.is_empty()) {
        return Ok(None);
    }
    let patterns = |texts: &[String]| {
        let read = texts.iter().map(|text| Pattern::parse(text));
        let read = read.collect::<Result<Vec<_>, _>>();
        read.map_err(|fault| PageFault::Script(fault.to_string()))
    };
    Ok(Some(Judging {
        frame: frame.to_owned(),
        reject: wanted.reject_types.clone(),
        allow: wanted.allow_types.clone(),
        reject_patterns: patterns(&wanted.reject_patterns)?,
        allow_patterns: patterns(&wanted.allow_patterns)?,
        credentials: wanted
            .authenticate
            .as_ref()
            .map(|known| (known.username.clone(), known.password.clone())),
    }))
}

/// What is said to each part of a page besides the page itself.
fn of_parts(wanted: &Visit) -> Vec<(&'static str, Value)> {
    let mut said = Vec::new();
    if let Some(name) = &wanted.user_agent {
        said.push(("Emulation.setUserAgentOverride", json!({"userAgent": name})));
    }
    if !wanted.headers.is_empty() {
        let headers = json!({"headers": wanted.headers});
        said.push(("Network.enable", network()));
        said.push(("Network.setExtraHTTPHeaders", headers));
    }
    if wanted.scripts_off {
        let off = json!({"value": true});
        said.push(("Emulation.setScriptExecutionDisabled", off));
    }
    said
}

/// Bodies are not looked at, so the browser need not keep them for us.
fn network() -> Value {
    json!({"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
}

/// The window, as the browser is told of it.
fn metrics(window: &Viewport) -> Value {
    let orientation = if window.is_landscape {
        json!({"type": "landscapePrimary", "angle": 90})
    } else {
        json!({"type": "portraitPrimary", "angle": 0})
    };
    json!({
        "width": window.width.clamp(1, 10_000),
        "height": window.height.clamp(1, 10_000),
        "deviceScaleFactor": window.device_scale_factor.clamp(0.1, 10.0),
        "mobile": window.is_mobile,
        "screenOrientation": orientation,
    })
}

/// What a browser says of a part of the order.
fn refused(field: &str, fault: ClientFault) -> PageFault {
    match fault {
        ClientFault::Refused { message, .. } => PageFault::Refused {
            field: field.to_owned(),
            message,
        },
        other => other.into(),
    }
}

/// Sets the cookies; of one that the browser does not take it does not say which, so then they are
/// tried one by one.
async fn cookies(
    client: &mut Client,
    page: &str,
    wanted: &Visit,
    deadline: Instant,
) -> Result<(), PageFault> {
    if wanted.cookies.is_empty() {
        return Ok(());
    }
    let all = json!({"cookies": wanted.cookies});
    let set = client.ask(page, "Network.setCookies", all, deadline).await;
    let fault = match set {
        Ok(_) => return Ok(()),
        Err(fault @ ClientFault::Refused { .. }) => fault,
        Err(other) => return Err(other.into()),
    };
    for (place, cookie) in wanted.cookies.iter().enumerate() {
        let one = json!({"cookies": [cookie]});
        let set = client.ask(page, "Network.setCookies", one, deadline).await;
        set.map_err(|fault| refused(&format!("cookies.{place}"), fault))?;
    }
    Err(refused("cookies", fault))
}

fn preparations(wanted: &Visit) -> Vec<(&'static str, Value)> {
    let window = &wanted.viewport;
    let mut preparations = vec![
        ("Page.enable", json!({})),
        ("Inspector.enable", json!({})),
        ("Page.setLifecycleEventsEnabled", json!({"enabled": true})),
        // By which it is seen what the proxy answered in a server's place.
        ("Network.enable", network()),
        ("Emulation.setDeviceMetricsOverride", metrics(window)),
    ];
    if window.has_touch {
        let touch = json!({"enabled": true});
        preparations.push(("Emulation.setTouchEmulationEnabled", touch));
    }
    if wanted.scripts_off {
        let off = json!({"value": true});
        preparations.push(("Emulation.setScriptExecutionDisabled", off));
    }
    preparations
}

/// What the caller may have written in a way that browsers do not take, with its name in the order.
fn wishes(wanted: &Visit) -> Vec<(&'static str, &'static str, Value)> {
    let mut wishes = Vec::new();
    if let Some(name) = &wanted.user_agent {
        let params = json!({"userAgent": name});
        wishes.push(("userAgent", "Emulation.setUserAgentOverride", params));
    }
    if let Some(media) = &wanted.media {
        let params = json!({"media": media});
        wishes.push(("emulateMediaType", "Emulation.setEmulatedMedia", params));
    }
    if !wanted.headers.is_empty() {
        let params = json!({"headers": wanted.headers});
        let method = "Network.setExtraHTTPHeaders";
        wishes.push(("setExtraHTTPHeaders", method, params));
    }
    wishes
}

async fn load(
    client: &mut Client,
    page: &str,
    frame: &str,
    wanted: &Visit,
    deadline: Instant,
) -> Result<(), PageFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Navigated {
        loader_id: Option<String>,
        error_text: Option<String>,
    }
    let late = |fault| match fault {
        ClientFault::Late { .. } => PageFault::LoadLate(wanted.load_ms),
        other => PageFault::from(other),
    };
    let loader = match &wanted.content {
        Content::Url(url) => {
            let mut params = json!({"url": url});
            if let Some(referer) = &wanted.referer {
                params["referrer"] = json!(referer);
            }
            if let Some(policy) = &wanted.referrer_policy {
                params["referrerPolicy"] = json!(policy);
            }
            let navigated: Navigated = client
                .call(page, "Page.navigate", params, deadline)
                .await
                .map_err(late)?;
            if let Some(error) = navigated.error_text {
                let host = last_host(client, frame).or_else(|| host_of(url));
                return Err(PageFault::Net { error, host });
            }
            navigated.loader_id
        }
        Content::Html(html) => {
            let params = json!({"frameId": frame, "html": html});
            client
                .ask(page, "Page.setDocumentContent", params, deadline)
                .await
                .map_err(late)?;
            None
        }
    };
    let mut missing: Vec<&str> = match wanted.until.as_slice() {
        [] => vec![Until::default().lifecycle()],
        named => named.iter().map(|until| until.lifecycle()).collect(),
    };
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lifecycle {
        frame_id: String,
        loader_id: String,
        name: String,
    }
    let mut refused = None;
    client
        .event(page, "loading", deadline, |event| {
            if event.session == page && event.method == "Network.responseReceived" {
                let response: Response = event.read()?;
                if response.is_document_of(frame) {
                    refused = response.refused();
                }
                if refused.is_some() {
                    return Ok(Some(()));
                }
            } else if event.session == page && event.method == "Page.lifecycleEvent" {
                let moment: Lifecycle = event.read()?;
                let ours = moment.frame_id == frame
                    && loader
                        .as_ref()
                        .is_none_or(|loader| *loader == moment.loader_id);
                if ours {
                    missing.retain(|name| *name != moment.name);
                }
            }
            Ok(missing.is_empty().then_some(()))
        })
        .await
        .map_err(late)?;
    match refused {
        Some(cause) => Err(PageFault::Net {
            error: cause.net_error().to_owned(),
            host: None,
        }),
        None => Ok(()),
    }
}

/// The head of an answer to something that a page asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    frame_id: String,
    r#type: String,
    response: Head,
}

#[derive(Deserialize)]
struct Head {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
}

impl Response {
    fn is_document_of(&self, frame: &str) -> bool {
        self.r#type == "Document" && self.frame_id == frame
    }

    /// Why the proxy answered in the server's place. In the clear a browser takes its answer for a
    /// page; through a tunnel it is the server who says so, and means something else.
    fn refused(&self) -> Option<Cause> {
        if !self.response.url.starts_with("http:") {
            return None;
        }
        let mut headers = self.response.headers.iter();
        let named = headers.find(|(name, _)| name.eq_ignore_ascii_case("usher-egress"));
        let word = named?.1.as_str()?;
        Cause::ALL.into_iter().find(|cause| cause.as_str() == word)
    }
}

/// The host that the document of `frame` was last asked of: redirects lead from one to the next, and
/// the browser says of which one failed only here.
fn last_host(client: &Client, frame: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Asked {
        #[serde(default)]
        frame_id: String,
        #[serde(default)]
        r#type: String,
        request: Request,
    }
    #[derive(Deserialize)]
    struct Request {
        url: String,
    }
    let asked = client
        .kept()
        .filter(|event| event.method == "Network.requestWillBeSent");
    let asked = asked.filter_map(|event| event.read::<Asked>().ok());
    let of_document = asked.filter(|asked| asked.frame_id == frame && asked.r#type == "Document");
    host_of(&of_document.last()?.request.url)
}

/// The host of an address, as the browser writes it.
fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let end = match host.rfind(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let host = host[..end].trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty()).then_some(host)
}

/// What a browser says of a proxy that let nothing through: it knows no more.
pub(crate) fn is_of_proxy(error: &str) -> bool {
    ["net::ERR_TUNNEL_CONNECTION_FAILED", "net::ERR_PROXY_"]
        .iter()
        .any(|known| error.starts_with(known))
}

/// Whether strangers' pages may be loaded from `url`.
fn is_web(url: &str) -> bool {
    let scheme = url.trim_start_matches(|c: char| c <= ' ').split_once(':');
    scheme.is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    })
}

async fn capture(
    client: &mut Client,
    page: &str,
    wanted: &Screenshot,
    deadline: Instant,
) -> Result<Vec<u8>, PageFault> {
    let beyond = wanted.full_page || wanted.clip.is_some() || wanted.selector.is_some();
    let mut params = json!({
        "format": wanted.format,
        "captureBeyondViewport": wanted.beyond_window.unwrap_or(beyond),
        "optimizeForSpeed": wanted.quickly,
    });
    if let Some(from_surface) = wanted.from_surface {
        params["fromSurface"] = json!(from_surface);
    }
    if let Some(quality) = wanted.quality.filter(|_| wanted.format != Format::Png) {
        params["quality"] = json!(quality.min(100));
    }
    let fault = |fault| match fault {
        ClientFault::Late { .. } => PageFault::ActionLate(wanted.action_ms),
        ClientFault::Refused { method, message } => {
            PageFault::Capture(format!("{method}: {message}"))
        }
        other => PageFault::from(other),
    };
    // A page that others were opened in front of draws nothing.
    client
        .ask(page, "Page.bringToFront", json!({}), deadline)
        .await
        .map_err(fault)?;
    if wanted.omit_background {
        let clear = json!({"color": {"r": 0, "g": 0, "b": 0, "a": 0}});
        let method = "Emulation.setDefaultBackgroundColorOverride";
        client
            .ask(page, method, clear, deadline)
            .await
            .map_err(fault)?;
    }
    let late = || PageFault::ActionLate(wanted.action_ms);
    if wanted.scroll {
        let scrolled = within::scroll(client, page, deadline).await;
        scrolled.map_err(|fault| script(fault, late()))?;
    }
    if let Some(selector) = &wanted.selector {
        let place = within::place(client, page, selector, deadline).await;
        let mut place = place.map_err(|fault| script(fault, late()))?;
        if place.is_null() {
            return Err(PageFault::NoElement(selector.clone()));
        }
        place["scale"] = json!(1);
        params["clip"] = place;
    } else if let Some(clip) = wanted.clip {
        params["clip"] = json!(clip);
    } else if wanted.full_page {
        let whole = whole_page(client, page, deadline).await.map_err(fault)?;
        if wanted.beyond_window == Some(false) {
            let mut window = metrics(&wanted.visit.viewport);
            (window["width"], window["height"]) = (whole["width"].clone(), whole["height"].clone());
            client
                .ask(page, "Emulation.setDeviceMetricsOverride", window, deadline)
                .await
                .map_err(fault)?;
        }
        params["clip"] = whole;
    }
    let picture: Picture = client
        .call(page, "Page.captureScreenshot", params, deadline)
        .await
        .map_err(fault)?;
    base64::engine::general_purpose::STANDARD
        .decode(picture.data)
        .map_err(|_| PageFault::Capture("Unable to capture screenshot".to_owned()))
}

async fn whole_page(
    client: &mut Client,
    page: &str,
    deadline: Instant,
) -> Result<serde_json::Value, ClientFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metrics {
        css_content_size: Size,
    }
    #[derive(Deserialize)]
    struct Size {
        width: f64,
        height: f64,
    }
    let metrics: Metrics = client
        .call(page, "Page.getLayoutMetrics", json!({}), deadline)
        .await?;
    let Size { width, height } = metrics.css_content_size;
    Ok(json!({"x": 0, "y": 0, "width": width.ceil(), "height": height.ceil(), "scale": 1}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_in_an_address() {
        for (url, host) in [
            ("https://example.com/a?b#c", Some("example.com")),
            ("http://u:p@Example.com.:8080", Some("example.com")),
            ("http://[::1]:80/", Some("[::1]")),
            ("http://[::1]?@x", Some("[::1]")),
            ("about:blank", None),
            ("http:///x", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn only_the_web_is_loaded() {
        for url in [
            "http://example.com",
            "HTTPS://example.com/x",
            " \thttp://example.com",
        ] {
            assert!(is_web(url), "{url}");
        }
        for url in [
            "file:///etc/passwd",
            "FILE:/etc/passwd",
            "%66ile:///etc/passwd",
            "chrome://gpu",
            "view-source:http://example.com",
            "javascript:1",
            "data:text/html,x",
            "example.com",
            "",
        ] {
            assert!(!is_web(url), "{url}");
        }
    }
}
