//! One page, from its address to a picture: what quick actions have in common.
//!
//! The whole sequence runs here, next to the browser, from one order: nobody far away waits for each
//! message. Every step has a deadline, and a fault says which one it was. The browser ends after it,
//! whatever came of it, so nothing is put back as it was.
//!
//! Source: browser specification 6.1, 6.3, 6.4.

use std::time::Duration;

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

mod order;
mod within;

pub use order::{
    Clip, Content, Credentials, Format, Screenshot, Selector, Tag, Until, Viewport, Visit,
};

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
    /// The browser could not load it, in its own words.
    #[error("{0}")]
    Net(String),
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
            PageFault::Net(_) => "net",
            PageFault::LoadLate(_) => "load_late",
            PageFault::ActionLate(_) => "action_late",
            PageFault::WaitLate(_) => "wait_late",
            PageFault::Script(_) => "script",
            PageFault::NoElement(_) => "no_element",
            PageFault::Crashed => "crashed",
            PageFault::Closed => "closed",
            PageFault::Capture(_) => "capture",
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
    // So that windows that the page opens are seen, and closed.
    let discover = json!({"discover": true});
    client
        .ask("", "Target.setDiscoverTargets", discover, deadline)
        .await?;
    let deny = json!({"behavior": "deny"});
    client
        .ask("", "Browser.setDownloadBehavior", deny, deadline)
        .await?;
    if let Some(judging) = judging(wanted, &frame) {
        let params = json!({
            "patterns": [{"urlPattern": "*"}],
            "handleAuthRequests": wanted.authenticate.is_some(),
        });
        client.judge(judging);
        client
            .ask(&session, "Fetch.enable", params, deadline)
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
            | PageFault::Net(_)
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

fn judging(wanted: &Visit, frame: &str) -> Option<Judging> {
    let needed = wanted.authenticate.is_some()
        || !wanted.reject_types.is_empty()
        || !wanted.allow_types.is_empty();
    needed.then(|| Judging {
        frame: frame.to_owned(),
        reject: wanted.reject_types.clone(),
        allow: wanted.allow_types.clone(),
        credentials: wanted
            .authenticate
            .as_ref()
            .map(|known| (known.username.clone(), known.password.clone())),
    })
}

fn preparations(wanted: &Visit) -> Vec<(&'static str, Value)> {
    let window = &wanted.viewport;
    let orientation = if window.is_landscape {
        json!({"type": "landscapePrimary", "angle": 90})
    } else {
        json!({"type": "portraitPrimary", "angle": 0})
    };
    let metrics = json!({
        "width": window.width.clamp(1, 10_000),
        "height": window.height.clamp(1, 10_000),
        "deviceScaleFactor": window.device_scale_factor.clamp(0.1, 10.0),
        "mobile": window.is_mobile,
        "screenOrientation": orientation,
    });
    let mut preparations = vec![
        ("Page.enable", json!({})),
        ("Inspector.enable", json!({})),
        ("Page.setLifecycleEventsEnabled", json!({"enabled": true})),
        ("Emulation.setDeviceMetricsOverride", metrics),
    ];
    if window.has_touch {
        let touch = json!({"enabled": true});
        preparations.push(("Emulation.setTouchEmulationEnabled", touch));
    }
    if let Some(name) = &wanted.user_agent {
        preparations.push(("Emulation.setUserAgentOverride", json!({"userAgent": name})));
    }
    if wanted.scripts_off {
        let off = json!({"value": true});
        preparations.push(("Emulation.setScriptExecutionDisabled", off));
    }
    if let Some(media) = &wanted.media {
        preparations.push(("Emulation.setEmulatedMedia", json!({"media": media})));
    }
    if !wanted.headers.is_empty() {
        // Without it the headers are taken and not sent.
        preparations.push(("Network.enable", json!({})));
        let headers = json!({"headers": wanted.headers});
        preparations.push(("Network.setExtraHTTPHeaders", headers));
    }
    if !wanted.cookies.is_empty() {
        preparations.push(("Network.setCookies", json!({"cookies": wanted.cookies})));
    }
    preparations
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
                return Err(PageFault::Net(error));
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
    client
        .event(page, "loading", deadline, |event| {
            if event.session == page && event.method == "Page.lifecycleEvent" {
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
        .map_err(late)
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
    let mut params = json!({
        "format": wanted.format,
        "captureBeyondViewport": wanted.full_page || wanted.clip.is_some() || wanted.selector.is_some(),
    });
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
        params["clip"] = whole_page(client, page, deadline).await.map_err(fault)?;
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
