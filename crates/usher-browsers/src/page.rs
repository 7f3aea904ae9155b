//! One page, from its address to a picture: what quick actions have in common.
//!
//! The whole sequence runs here, next to the browser, from one order: nobody far away waits for each
//! message. Every step has a deadline, and a fault says which one it was. The browser ends after it,
//! whatever came of it, so nothing is put back as it was.
//!
//! Source: browser specification 6.1, 6.3, 6.4.

use std::time::Duration;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::canary::open_page;
use crate::client::{Client, ClientFault, within};

/// How long a page may be prepared before it is loaded.
const PREPARE_MAX: Duration = Duration::from_secs(10);

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// What is at this address; `http` or `https`.
    Url(String),
    /// This text, as a page without an address.
    Html(String),
}

/// When a page counts as loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// All that it names is there.
    Load,
    /// The document itself is.
    #[default]
    DomContentLoaded,
    /// No request has been under way for half a second.
    NetworkIdle0,
    /// At most two have been.
    NetworkIdle2,
}

impl Until {
    /// The browser's word for that moment.
    const fn lifecycle(self) -> &'static str {
        match self {
            Until::Load => "load",
            Until::DomContentLoaded => "DOMContentLoaded",
            Until::NetworkIdle0 => "networkIdle",
            Until::NetworkIdle2 => "networkAlmostIdle",
        }
    }
}

/// The size of the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Viewport {
    /// In pixels of the page. Range 1..=10000, default 1920.
    pub width: u32,
    /// In pixels of the page. Range 1..=10000, default 1080.
    pub height: u32,
    /// Pixels of the picture for one of the page. Range 0.1..=10, default 1.
    pub device_scale_factor: f64,
    /// As a telephone. Default false.
    pub is_mobile: bool,
}

impl Default for Viewport {
    fn default() -> Viewport {
        Viewport {
            width: 1920,
            height: 1080,
            device_scale_factor: 1.0,
            is_mobile: false,
        }
    }
}

/// How the picture is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Without loss.
    #[default]
    Png,
    /// With loss.
    Jpeg,
    /// With or without.
    Webp,
}

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Clip {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    #[serde(default = "one")]
    pub scale: f64,
}

const fn one() -> f64 {
    1.0
}

/// A picture that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Screenshot {
    /// Of what.
    pub content: Content,
    /// Once all of these have come.
    #[serde(default)]
    pub until: Vec<Until>,
    /// How long loading may take. Default 30 s.
    #[serde(default = "load_ms")]
    pub load_ms: u64,
    /// How long the picture may take. Default 300 s.
    #[serde(default = "action_ms")]
    pub action_ms: u64,
    /// A page that is not loaded in time is drawn as it is.
    #[serde(default)]
    pub best_attempt: bool,
    /// In a window of this size.
    #[serde(default)]
    pub viewport: Viewport,
    /// Written like this.
    #[serde(default)]
    pub format: Format,
    /// With this quality in percent, where there is loss.
    #[serde(default)]
    pub quality: Option<u8>,
    /// The whole page, beyond the window.
    #[serde(default)]
    pub full_page: bool,
    /// Only this part.
    #[serde(default)]
    pub clip: Option<Clip>,
    /// What the page does not paint stays transparent.
    #[serde(default)]
    pub omit_background: bool,
}

const fn load_ms() -> u64 {
    30_000
}

const fn action_ms() -> u64 {
    300_000
}

impl Screenshot {
    /// Of `content`, with the defaults.
    #[must_use]
    pub fn of(content: Content) -> Screenshot {
        Screenshot {
            content,
            until: Vec::new(),
            load_ms: load_ms(),
            action_ms: action_ms(),
            best_attempt: false,
            viewport: Viewport::default(),
            format: Format::default(),
            quality: None,
            full_page: false,
            clip: None,
            omit_background: false,
        }
    }
}

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
    let deadline = within(PREPARE_MAX);
    let (target, page) = open_page(client, deadline).await?;
    for (method, params) in preparations(wanted) {
        client.ask(&page, method, params, deadline).await?;
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
    let deadline = within(Duration::from_millis(wanted.load_ms));
    match load(client, &page, &target, wanted, deadline).await {
        Err(PageFault::LoadLate(_) | PageFault::Net(_)) if wanted.best_attempt => {}
        loaded => loaded?,
    }
    let deadline = within(Duration::from_millis(wanted.action_ms));
    capture(client, &page, wanted, deadline).await
}

fn preparations(wanted: &Screenshot) -> Vec<(&'static str, serde_json::Value)> {
    let window = &wanted.viewport;
    let metrics = json!({
        "width": window.width.clamp(1, 10_000),
        "height": window.height.clamp(1, 10_000),
        "deviceScaleFactor": window.device_scale_factor.clamp(0.1, 10.0),
        "mobile": window.is_mobile,
    });
    let mut preparations = vec![
        ("Page.enable", json!({})),
        ("Inspector.enable", json!({})),
        ("Page.setLifecycleEventsEnabled", json!({"enabled": true})),
        ("Emulation.setDeviceMetricsOverride", metrics),
    ];
    if wanted.omit_background {
        let clear = json!({"color": {"r": 0, "g": 0, "b": 0, "a": 0}});
        preparations.push(("Emulation.setDefaultBackgroundColorOverride", clear));
    }
    preparations
}

async fn load(
    client: &mut Client,
    page: &str,
    frame: &str,
    wanted: &Screenshot,
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
            if !is_web(url) {
                return Err(PageFault::Scheme);
            }
            let params = json!({"url": url});
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
        "captureBeyondViewport": wanted.full_page || wanted.clip.is_some(),
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
    if let Some(clip) = wanted.clip {
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

    #[test]
    fn an_order_needs_no_more_than_what_to_show() {
        let order: Screenshot =
            serde_json::from_str(r#"{"content":{"url":"http://example.com"}}"#).unwrap();
        let url = Content::Url("http://example.com".to_owned());
        assert_eq!(order, Screenshot::of(url));
    }
}
