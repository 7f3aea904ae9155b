//! What a quick action is to do, as the host is told: checked already, with every default known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    pub(super) const fn lifecycle(self) -> &'static str {
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
    /// Wider than high, where it says so of itself. Default false.
    pub is_landscape: bool,
    /// With a finger for a mouse. Default false.
    pub has_touch: bool,
}

impl Default for Viewport {
    fn default() -> Viewport {
        Viewport {
            width: 1920,
            height: 1080,
            device_scale_factor: 1.0,
            is_mobile: false,
            is_landscape: false,
            has_touch: false,
        }
    }
}

/// A script or a style sheet that is put into the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// From this address, which the page loads.
    #[serde(default)]
    pub url: Option<String>,
    /// Or this text.
    #[serde(default)]
    pub content: Option<String>,
    /// The script's `type`.
    #[serde(default)]
    pub r#type: Option<String>,
    /// The script's `id`.
    #[serde(default)]
    pub id: Option<String>,
}

/// Something that the page has to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// A CSS selector.
    pub selector: String,
    /// It has to be seen. Default false.
    #[serde(default)]
    pub visible: bool,
    /// It has to be unseen, or not there at all. Default false.
    #[serde(default)]
    pub hidden: bool,
    /// How long is waited for it, in milliseconds.
    pub timeout_ms: u64,
}

/// Who a page that asks for a password is told we are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// A page, and how it is come by: what all quick actions have in common.
///
/// Source: browser specification 6.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Visit {
    /// Of what.
    pub content: Content,
    /// Loaded when all of these have come. Default: [`Until::DomContentLoaded`].
    #[serde(default)]
    pub until: Vec<Until>,
    /// How long loading may take, in milliseconds. Default 30 s.
    #[serde(default = "load_ms")]
    pub load_ms: u64,
    /// What does not come in time is not waited for, and what fails is used as it is.
    #[serde(default)]
    pub best_attempt: bool,
    /// In a window of this size.
    #[serde(default)]
    pub viewport: Viewport,
    /// As this browser; its own name when nothing is said.
    #[serde(default)]
    pub user_agent: Option<String>,
    /// Without scripts of the page.
    #[serde(default)]
    pub scripts_off: bool,
    /// With these headers on every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// With these cookies, as the browser's protocol writes them.
    #[serde(default)]
    pub cookies: Vec<serde_json::Value>,
    /// As `screen` or `print`.
    #[serde(default)]
    pub media: Option<String>,
    /// As if from there.
    #[serde(default)]
    pub referer: Option<String>,
    /// Told by this policy, in the protocol's words; the browser's own when nothing is said.
    #[serde(default)]
    pub referrer_policy: Option<String>,
    /// With this name and password.
    #[serde(default)]
    pub authenticate: Option<Credentials>,
    /// Requests of these kinds are refused.
    #[serde(default)]
    pub reject_types: Vec<String>,
    /// Only requests of these kinds are let through, if any are named.
    #[serde(default)]
    pub allow_types: Vec<String>,
    /// Requests whose address has one of these in it are refused; see
    /// [`Pattern`](crate::page::Pattern).
    #[serde(default)]
    pub reject_patterns: Vec<String>,
    /// Only requests whose address has one of these in it are let through, if there are any.
    #[serde(default)]
    pub allow_patterns: Vec<String>,
    /// Put in after loading, one after the other.
    #[serde(default)]
    pub scripts: Vec<Tag>,
    /// Put in after the scripts.
    #[serde(default)]
    pub styles: Vec<Tag>,
    /// Then this has to be there.
    #[serde(default)]
    pub wait_for: Option<Selector>,
    /// Then this long is waited, in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
}

const fn load_ms() -> u64 {
    30_000
}

impl Visit {
    /// Of `content`, with the defaults.
    #[must_use]
    pub fn of(content: Content) -> Visit {
        Visit {
            content,
            until: Vec::new(),
            load_ms: load_ms(),
            best_attempt: false,
            viewport: Viewport::default(),
            user_agent: None,
            scripts_off: false,
            headers: BTreeMap::new(),
            cookies: Vec::new(),
            media: None,
            referer: None,
            referrer_policy: None,
            authenticate: None,
            reject_types: Vec::new(),
            allow_types: Vec::new(),
            reject_patterns: Vec::new(),
            allow_patterns: Vec::new(),
            scripts: Vec::new(),
            styles: Vec::new(),
            wait_for: None,
            wait_ms: 0,
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
pub struct Clip {
    /// From the left, in pixels of the page.
    pub x: f64,
    /// From the top, in pixels of the page.
    pub y: f64,
    /// In pixels of the page.
    pub width: f64,
    /// In pixels of the page.
    pub height: f64,
    /// Enlarged by this. Default 1.
    #[serde(default = "one")]
    pub scale: f64,
}

const fn one() -> f64 {
    1.0
}

/// A picture that is wanted.
///
/// Source: browser specification 6.3.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Screenshot {
    /// Of this page.
    #[serde(flatten)]
    pub visit: Visit,
    /// How long the picture may take, in milliseconds. Default 300 s.
    #[serde(default = "action_ms")]
    pub action_ms: u64,
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
    /// Only the first element that this selects.
    #[serde(default)]
    pub selector: Option<String>,
    /// Scrolled to its end and back before, for what is loaded only when it is seen.
    #[serde(default)]
    pub scroll: bool,
    /// What the page does not paint stays transparent.
    #[serde(default)]
    pub omit_background: bool,
    /// Drawn beyond the window where that is needed; `false`: the window is made as large as what is
    /// wanted. Default: yes.
    #[serde(default)]
    pub beyond_window: Option<bool>,
    /// From what was put together for the screen, not from the view alone. Default: yes.
    #[serde(default)]
    pub from_surface: Option<bool>,
    /// Written quickly, not as short as it can be. Default: no.
    #[serde(default)]
    pub quickly: bool,
}

const fn action_ms() -> u64 {
    300_000
}

impl Screenshot {
    /// Of `content`, with the defaults.
    #[must_use]
    pub fn of(content: Content) -> Screenshot {
        Screenshot {
            visit: Visit::of(content),
            action_ms: action_ms(),
            format: Format::default(),
            quality: None,
            full_page: false,
            clip: None,
            selector: None,
            scroll: false,
            omit_background: false,
            beyond_window: None,
            from_surface: None,
            quickly: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_needs_no_more_than_what_to_show() {
        let order: Screenshot =
            serde_json::from_str(r#"{"content":{"url":"http://example.com"}}"#).unwrap();
        let url = Content::Url("http://example.com".to_owned());
        assert_eq!(order, Screenshot::of(url));
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Screenshot>(&text).unwrap(), order);
    }
}
