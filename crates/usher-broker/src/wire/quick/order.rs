//! What a body asks for, as the host is told: every default known, every limit judged.
//!
//! Source: browser specification 6.1, 6.3, 6.5.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use url::Url;
use usher_browsers::page::{
    Clip, Content, Credentials, Format, Pattern, Screenshot, Selector, Tag, Until, Viewport, Visit,
};

use super::fields::{Fields, Problem};

/// What pages are told that we are when nobody says otherwise; the hosted service's words.
const USER_AGENT: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 Safari/537.36";

const LOAD_MS: u64 = 30_000;
const LOAD_MS_MAX: u64 = 60_000;
const WAIT_MS: u64 = 30_000;
const WAIT_MS_MAX: u64 = 120_000;
const ACTION_MS_MAX: u64 = 300_000;
/// What all of a request may take beyond its timers, and at most.
const CEILING_MARGIN: Duration = Duration::from_secs(15);
const CEILING_MAX: Duration = Duration::from_secs(600);

/// How long an answer may be kept for the next one who asks, in seconds.
const TTL_SECS: u64 = 5;
const TTL_SECS_MAX: u64 = 86_400;

/// Patterns of one list: each is tried on each request of the page.
const PATTERNS_MAX: usize = 32;

const RESOURCE_TYPES: [&str; 18] = [
    "document",
    "stylesheet",
    "image",
    "media",
    "font",
    "script",
    "texttrack",
    "xhr",
    "fetch",
    "prefetch",
    "eventsource",
    "websocket",
    "manifest",
    "signedexchange",
    "ping",
    "cspviolationreport",
    "preflight",
    "other",
];

/// Headers that are the connection's or ours, and not a caller's to set.
const OWN_HEADERS: [&str; 16] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "usher-browser",
    "usher-egress",
    "signature",
    "signature-input",
    "signature-agent",
];

/// What a body asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) order: Screenshot,
    pub(super) base64: bool,
    /// How long the answer may be kept; zero where it must not be.
    pub(super) ttl: Duration,
    /// What was not heeded.
    pub(super) warnings: Vec<String>,
}

impl Asked {
    /// How long all of it may take.
    pub(super) fn ceiling(&self) -> Duration {
        let visit = &self.order.visit;
        let waits = visit.wait_for.as_ref().map_or(0, |wait| wait.timeout_ms);
        let timers = [visit.load_ms, waits, visit.wait_ms, self.order.action_ms];
        let sum = Duration::from_millis(timers.iter().sum());
        (sum + CEILING_MARGIN).min(CEILING_MAX)
    }
}

/// Reads the body of a screenshot. `ttl`: of the query, which counts more.
pub(super) fn screenshot(mut body: Fields, ttl: Option<u64>) -> Result<Asked, Vec<Problem>> {
    let mut warnings = Vec::new();
    body.rename("goToOptions", "gotoOptions");
    if let Some(engine) = body.text("browser") {
        let text = format!("browser {engine:?} is not available here");
        body.fault("browser", text);
    }
    let ttl_said = body.whole("cacheTTL", 0..=TTL_SECS_MAX);
    let ttl = ttl.or(ttl_said).unwrap_or(TTL_SECS);
    let visit = visit(&mut body, &mut warnings);
    let mut order = Screenshot {
        visit,
        ..Screenshot::of(Content::Html(String::new()))
    };
    order.action_ms = timer(&mut body, "actionTimeout", ACTION_MS_MAX, ACTION_MS_MAX);
    order.selector = body.text("selector");
    order.scroll = body.flag("scrollPage").unwrap_or(false);
    let base64 = body
        .inside("screenshotOptions", |options| picture(options, &mut order))
        .unwrap_or(false);
    let (problems, unknown) = body.rest();
    if !problems.is_empty() {
        return Err(problems);
    }
    if !unknown.is_empty() {
        warnings.push(format!("unknown-fields: {}", unknown.join(" ")));
    }
    let ttl = match is_anybodys(&order.visit) {
        true => Duration::from_secs(ttl),
        false => Duration::ZERO,
    };
    Ok(Asked {
        order,
        base64,
        ttl,
        warnings,
    })
}

/// Whether another caller of the account who asks for the same may get the same: not what was handed
/// in, and not what was drawn with somebody's credentials.
fn is_anybodys(visit: &Visit) -> bool {
    let shows = |name: &String| {
        name.eq_ignore_ascii_case("authorization") || name.eq_ignore_ascii_case("cookie")
    };
    matches!(visit.content, Content::Url(_))
        && visit.authenticate.is_none()
        && visit.cookies.is_empty()
        && !visit.headers.keys().any(shows)
}

/// A timer in milliseconds; 0 is as long as it may be.
fn timer(fields: &mut Fields, name: &str, default: u64, max: u64) -> u64 {
    match fields.whole(name, 0..=max) {
        None => default,
        Some(0) => max,
        Some(millis) => millis,
    }
}

fn visit(body: &mut Fields, warnings: &mut Vec<String>) -> Visit {
    let said = body.has("url") || body.has("html");
    let url = body.text("url");
    let html = body.text("html");
    let content = match (url, html) {
        (Some(url), html) => {
            if html.is_some() {
                warnings.push("html-ignored".to_owned());
            }
            match address(&url) {
                Ok(url) => Content::Url(url),
                Err(text) => {
                    body.coded("url", text, Some(5010));
                    Content::Html(String::new())
                }
            }
        }
        (None, Some(html)) => Content::Html(html),
        (None, None) => {
            if !said {
                body.fault("url", "url or html is needed");
            }
            Content::Html(String::new())
        }
    };
    let mut visit = Visit::of(content);
    visit.best_attempt = body.flag("bestAttempt").unwrap_or(false);
    visit.viewport = body.inside("viewport", viewport).unwrap_or_default();
    let agent = body.text("userAgent");
    visit.user_agent = Some(agent.unwrap_or_else(|| USER_AGENT.to_owned()));
    visit.scripts_off = body.flag("setJavaScriptEnabled") == Some(false);
    visit.headers = headers(body);
    let address = match &visit.content {
        Content::Url(url) => Some(url.clone()),
        Content::Html(_) => None,
    };
    visit.cookies = body.each("cookies", |cookie| self::cookie(cookie, address.as_deref()));
    visit.authenticate = body.inside("authenticate", |known| Credentials {
        username: known.needed("username"),
        password: known.needed("password"),
    });
    let media = [("screen", "screen"), ("print", "print"), ("", "")];
    let media = body.word("emulateMediaType", &media);
    visit.media = media.filter(|media| !media.is_empty()).map(str::to_owned);
    let kinds = RESOURCE_TYPES.map(|kind| (kind, kind));
    for (name, list) in [
        ("rejectResourceTypes", &mut visit.reject_types),
        ("allowResourceTypes", &mut visit.allow_types),
    ] {
        for (at, value) in body.list(name).into_iter().enumerate() {
            let kind = body.word_of(format!("{name}.{at}"), &value, &kinds);
            list.extend(kind.map(str::to_owned));
        }
    }
    visit.reject_patterns = patterns(body, "rejectRequestPattern");
    visit.allow_patterns = patterns(body, "allowRequestPattern");
    visit.load_ms = LOAD_MS;
    body.inside("gotoOptions", |options| goto(options, &mut visit));
    visit.scripts = body.each("addScriptTag", |tag| self::tag(tag, true));
    visit.styles = body.each("addStyleTag", |tag| self::tag(tag, false));
    visit.wait_for = body.inside("waitForSelector", |wait| Selector {
        selector: wait.needed("selector"),
        visible: wait.flag("visible").unwrap_or(false),
        hidden: wait.flag("hidden").unwrap_or(false),
        timeout_ms: timer(wait, "timeout", WAIT_MS, WAIT_MS_MAX),
    });
    visit.wait_ms = body.whole("waitForTimeout", 0..=WAIT_MS_MAX).unwrap_or(0);
    visit
}

/// An address that pages of strangers may be loaded from, as browsers write it.
fn address(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|fault| format!("url {text:.200}: {fault}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url.into()),
        _ => Err("Cannot navigate to this URL".to_owned()),
    }
}

fn viewport(fields: &mut Fields) -> Viewport {
    let default = Viewport::default();
    let mut size = |name, default: u32| {
        let size = fields.whole(name, 1..=10_000);
        size.and_then(|size| u32::try_from(size).ok())
            .unwrap_or(default)
    };
    let (width, height) = (size("width", default.width), size("height", default.height));
    Viewport {
        width,
        height,
        device_scale_factor: fields
            .number("deviceScaleFactor", 0.1..=10.0)
            .unwrap_or(1.0),
        is_mobile: fields.flag("isMobile").unwrap_or(false),
        is_landscape: fields.flag("isLandscape").unwrap_or(false),
        has_touch: fields.flag("hasTouch").unwrap_or(false),
    }
}

fn headers(body: &mut Fields) -> BTreeMap<String, String> {
    let Some(value) = body.take("setExtraHTTPHeaders") else {
        return BTreeMap::new();
    };
    let place = "setExtraHTTPHeaders";
    let Value::Object(object) = value else {
        body.fault(place, format!("{place}: an object of texts"));
        return BTreeMap::new();
    };
    let mut headers = BTreeMap::new();
    for (name, value) in object {
        let path = format!("{place}.{name}");
        let lower = name.to_ascii_lowercase();
        let own = OWN_HEADERS.contains(&lower.as_str())
            || lower.starts_with("cf-brapi-")
            || lower.starts_with("cf-biso-");
        match value {
            _ if http::HeaderName::try_from(&name).is_err() => {
                body.fault(path, format!("{name:.100} is no name of a header"));
            }
            _ if own => body.fault(path, format!("{name} cannot be set")),
            Value::String(text) if http::HeaderValue::try_from(&text).is_ok() => {
                headers.insert(name, text);
            }
            _ => body.fault(path, format!("{name}: a text without line breaks")),
        }
    }
    headers
}

/// A cookie in the words of the browser's protocol.
fn cookie(fields: &mut Fields, page: Option<&str>) -> Value {
    let mut cookie = json!({"name": fields.needed("name"), "value": fields.needed("value")});
    for name in ["url", "domain", "path"] {
        if let Some(text) = fields.text(name) {
            cookie[name] = text.into();
        }
    }
    for name in ["secure", "httpOnly", "sameParty"] {
        if let Some(flag) = fields.flag(name) {
            cookie[name] = flag.into();
        }
    }
    for (name, words) in [
        ("sameSite", ["Strict", "Lax", "None"]),
        ("priority", ["Low", "Medium", "High"]),
        ("sourceScheme", ["Unset", "NonSecure", "Secure"]),
    ] {
        if let Some(word) = fields.word(name, &words.map(|word| (word, word))) {
            cookie[name] = word.into();
        }
    }
    if let Some(moment) = fields.number("expires", -1.0..=1e13) {
        cookie["expires"] = moment.into();
    }
    if let Some(port) = fields.number("sourcePort", -1.0..=65_535.0) {
        cookie["sourcePort"] = (port as i64).into();
    }
    match fields.take("partitionKey") {
        None => {}
        Some(Value::String(site)) => {
            cookie["partitionKey"] = json!({"topLevelSite": site, "hasCrossSiteAncestor": false});
        }
        Some(key @ Value::Object(_)) => cookie["partitionKey"] = key,
        Some(_) => fields.fault("partitionKey", "partitionKey: a text"),
    }
    if cookie.get("url").is_none() && cookie.get("domain").is_none() {
        match page {
            Some(url) => cookie["url"] = url.into(),
            None => fields.fault(
                "url",
                "url or domain is needed where there is no page address",
            ),
        }
    }
    cookie
}

fn patterns(body: &mut Fields, name: &str) -> Vec<String> {
    let mut texts = body.texts(name);
    if texts.len() > PATTERNS_MAX {
        let text = format!("{name}: {} patterns, at most {PATTERNS_MAX}", texts.len());
        body.fault(name, text);
        texts.clear();
    }
    for (at, text) in texts.iter().enumerate() {
        if let Err(fault) = Pattern::parse(text) {
            body.fault(format!("{name}.{at}"), fault.to_string());
        }
    }
    texts
}

fn goto(options: &mut Fields, visit: &mut Visit) {
    let words = [
        ("load", Until::Load),
        ("domcontentloaded", Until::DomContentLoaded),
        ("networkidle0", Until::NetworkIdle0),
        ("networkidle2", Until::NetworkIdle2),
    ];
    match options.take("waitUntil") {
        None => {}
        Some(Value::Array(list)) if !list.is_empty() && list.len() <= 8 => {
            for (at, value) in list.iter().enumerate() {
                let until = options.word_of(format!("waitUntil.{at}"), value, &words);
                visit.until.extend(until);
            }
        }
        Some(Value::Array(_)) => options.fault("waitUntil", "waitUntil: one to eight words"),
        Some(value) => visit
            .until
            .extend(options.word_of("waitUntil", &value, &words)),
    }
    visit.load_ms = timer(options, "timeout", LOAD_MS, LOAD_MS_MAX);
    visit.referer = options.text("referer");
    let policies = [
        ("no-referrer", "noReferrer"),
        ("no-referrer-when-downgrade", "noReferrerWhenDowngrade"),
        ("origin", "origin"),
        ("origin-when-cross-origin", "originWhenCrossOrigin"),
        ("same-origin", "sameOrigin"),
        ("strict-origin", "strictOrigin"),
        (
            "strict-origin-when-cross-origin",
            "strictOriginWhenCrossOrigin",
        ),
        ("unsafe-url", "unsafeUrl"),
    ];
    let policy = options.word("referrerPolicy", &policies);
    visit.referrer_policy = policy.map(str::to_owned);
}

fn tag(fields: &mut Fields, script: bool) -> Tag {
    let tag = Tag {
        url: fields.text("url"),
        content: fields.text("content"),
        r#type: script.then(|| fields.text("type")).flatten(),
        id: script.then(|| fields.text("id")).flatten(),
    };
    if tag.url.is_none() && tag.content.is_none() {
        fields.fault("content", "url or content is needed");
    }
    tag
}

/// Reads how the picture is to be; whether it is to be written as a text.
fn picture(options: &mut Fields, order: &mut Screenshot) -> bool {
    let formats = [
        ("png", Format::Png),
        ("jpeg", Format::Jpeg),
        ("webp", Format::Webp),
    ];
    order.format = options.word("type", &formats).unwrap_or_default();
    let quality = options.whole("quality", 0..=100);
    if quality.is_some() && order.format == Format::Png {
        options.fault("quality", "quality is of jpeg and webp, not of png");
    }
    order.quality = quality.and_then(|quality| u8::try_from(quality).ok());
    order.full_page = options.flag("fullPage").unwrap_or(false);
    if order.full_page && options.has("clip") {
        options.fault("clip", "clip is a part, and fullPage is the whole");
    }
    order.clip = options.inside("clip", |clip| {
        let mut side = |name, least: f64| {
            if !clip.has(name) {
                clip.fault(name, format!("{name} is needed"));
            }
            clip.number(name, least..=1e6).unwrap_or(1.0)
        };
        Clip {
            x: side("x", 0.0),
            y: side("y", 0.0),
            width: side("width", 1.0),
            height: side("height", 1.0),
            scale: clip.number("scale", 0.01..=10.0).unwrap_or(1.0),
        }
    });
    order.omit_background = options.flag("omitBackground").unwrap_or(false);
    order.beyond_window = options.flag("captureBeyondViewport");
    order.from_surface = options.flag("fromSurface");
    order.quickly = options.flag("optimizeForSpeed").unwrap_or(false);
    let encodings = [("binary", false), ("base64", true)];
    options.word("encoding", &encodings).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Asked, Vec<(String, Option<u16>)>> {
        let Value::Object(object) = body else {
            panic!("{body}");
        };
        screenshot(Fields::new(object), None).map_err(|problems| {
            let told = problems.into_iter();
            told.map(|problem| (problem.path, problem.code)).collect()
        })
    }

    #[test]
    fn a_body_of_one_field_is_enough() {
        let asked = read(json!({"url": "http://example.com"})).expect("read");
        let url = Content::Url("http://example.com/".to_owned());
        let mut order = Screenshot::of(url);
        order.visit.user_agent = Some(USER_AGENT.to_owned());
        assert_eq!(asked.order, order);
        assert!(!asked.base64 && asked.warnings.is_empty());
        assert_eq!(asked.ttl, Duration::from_secs(5));
        assert_eq!(asked.ceiling(), Duration::from_secs(30 + 300 + 15));
    }

    #[test]
    fn everything_that_there_is_can_be_said() {
        let asked = read(json!({
            "url": "https://example.com/a", "html": "x", "nonsense": 1, "cacheTTL": 60,
            "viewport": {"width": 100, "height": 50, "deviceScaleFactor": 2, "isMobile": true},
            "userAgent": "A", "setJavaScriptEnabled": false,
            "setExtraHTTPHeaders": {"X-A": "b"},
            "cookies": [
                {"name": "a", "value": "b", "sameSite": "Lax", "expires": 5, "partitionKey": "p"},
                {"name": "c", "value": "d", "domain": "example.com"},
            ],
            "authenticate": {"username": "u", "password": "p"},
            "emulateMediaType": "print",
            "rejectResourceTypes": ["image"], "allowResourceTypes": ["script", "document"],
            "rejectRequestPattern": ["/a/i"], "allowRequestPattern": ["/b"],
            "goToOptions": {"waitUntil": ["load", "networkidle2"], "timeout": 0,
                "referer": "https://example.com/", "referrerPolicy": "no-referrer"},
            "addScriptTag": [{"content": "1", "type": "module", "id": "i"}],
            "addStyleTag": [{"url": "https://example.com/s.css"}],
            "waitForSelector": {"selector": "p", "visible": true, "timeout": 1000},
            "waitForTimeout": 500, "actionTimeout": 2000, "bestAttempt": true,
            "selector": "#x", "scrollPage": true,
            "screenshotOptions": {"type": "jpeg", "quality": 50, "encoding": "base64",
                "clip": {"x": 0, "y": 1, "width": 2, "height": 3}, "omitBackground": true,
                "captureBeyondViewport": false, "fromSurface": true, "optimizeForSpeed": true},
        }));
        let asked = asked.expect("read");
        let visit = &asked.order.visit;
        assert_eq!(visit.until, [Until::Load, Until::NetworkIdle2]);
        assert_eq!((visit.load_ms, visit.wait_ms), (60_000, 500));
        assert_eq!(visit.cookies[0]["url"], "https://example.com/a");
        assert_eq!(visit.cookies[0]["partitionKey"]["topLevelSite"], "p");
        assert!(visit.cookies[1].get("url").is_none());
        assert_eq!(visit.referrer_policy.as_deref(), Some("noReferrer"));
        assert!(visit.scripts_off && visit.best_attempt && asked.base64);
        assert_eq!(asked.order.quality, Some(50));
        assert_eq!(asked.order.beyond_window, Some(false));
        assert_eq!(asked.ttl, Duration::ZERO, "it was asked with credentials");
        assert_eq!(asked.warnings, ["html-ignored", "unknown-fields: nonsense"]);
        let sum = Duration::from_millis(60_000 + 1_000 + 500 + 2_000);
        assert_eq!(asked.ceiling(), sum + CEILING_MARGIN);
    }

    #[test]
    fn what_cannot_be_done_is_told_with_its_place() {
        let url = "http://example.com";
        for (body, path, code) in [
            (json!({}), "url", None),
            (json!({"url": 1}), "url", None),
            (json!({"url": "file:///etc/passwd"}), "url", Some(5010)),
            (json!({"url": "FILE:/etc/passwd"}), "url", Some(5010)),
            (json!({"url": "file://host/etc/passwd"}), "url", Some(5010)),
            (json!({"url": "%66ile:///etc/passwd"}), "url", Some(5010)),
            (
                json!({"url": "\u{1}fi\nle:///etc/passwd"}),
                "url",
                Some(5010),
            ),
            (json!({"url": "javascript:1"}), "url", Some(5010)),
            (
                json!({"url": "view-source:http://example.com"}),
                "url",
                Some(5010),
            ),
            (json!({"url": "example.com"}), "url", Some(5010)),
            (json!({"url": "http://"}), "url", Some(5010)),
            (json!({"url": url, "browser": "kitesurf"}), "browser", None),
            (json!({"url": url, "cacheTTL": 86_401}), "cacheTTL", None),
            (
                json!({"url": url, "viewport": {"width": 0}}),
                "viewport.width",
                None,
            ),
            (
                json!({"url": url, "viewport": {"deviceScaleFactor": 11}}),
                "viewport.deviceScaleFactor",
                None,
            ),
            (
                json!({"url": url, "setExtraHTTPHeaders": {"Host": "x"}}),
                "setExtraHTTPHeaders.Host",
                None,
            ),
            (
                json!({"url": url, "setExtraHTTPHeaders": {"a": "b\r\nc: d"}}),
                "setExtraHTTPHeaders.a",
                None,
            ),
            (
                json!({"html": "x", "cookies": [{"name": "a", "value": "b"}]}),
                "cookies.0.url",
                None,
            ),
            (
                json!({"url": url, "cookies": [{"value": "b"}]}),
                "cookies.0.name",
                None,
            ),
            (
                json!({"url": url, "rejectResourceTypes": ["image", "Image"]}),
                "rejectResourceTypes.1",
                None,
            ),
            (
                json!({"url": url, "allowRequestPattern": ["/(/"]}),
                "allowRequestPattern.0",
                None,
            ),
            (
                json!({"url": url, "gotoOptions": {"timeout": 60_001}}),
                "gotoOptions.timeout",
                None,
            ),
            (
                json!({"url": url, "gotoOptions": {"waitUntil": ["load", "never"]}}),
                "gotoOptions.waitUntil.1",
                None,
            ),
            (
                json!({"url": url, "addScriptTag": [{}]}),
                "addScriptTag.0.content",
                None,
            ),
            (
                json!({"url": url, "waitForSelector": {}}),
                "waitForSelector.selector",
                None,
            ),
            (
                json!({"url": url, "waitForTimeout": 120_001}),
                "waitForTimeout",
                None,
            ),
            (
                json!({"url": url, "actionTimeout": -1}),
                "actionTimeout",
                None,
            ),
            (
                json!({"url": url, "screenshotOptions": {"quality": 50}}),
                "screenshotOptions.quality",
                None,
            ),
            (
                json!({"url": url, "screenshotOptions": {"fullPage": true,
                    "clip": {"x": 0, "y": 0, "width": 1, "height": 1}}}),
                "screenshotOptions.clip",
                None,
            ),
            (
                json!({"url": url, "screenshotOptions": {"clip": {"x": 0, "y": 0, "width": 1}}}),
                "screenshotOptions.clip.height",
                None,
            ),
            (
                json!({"url": url, "screenshotOptions": 1}),
                "screenshotOptions",
                None,
            ),
        ] {
            let found = read(body.clone()).expect_err(&body.to_string());
            assert_eq!(found, [(path.to_owned(), code)], "{body}");
        }
        let many = json!({"viewport": {"width": "x"}, "bestAttempt": 1});
        assert_eq!(read(many).expect_err("three faults").len(), 3);
    }

    #[test]
    fn what_was_handed_in_is_never_kept() {
        let ttl = |body| read(body).expect("read").ttl;
        let url = "http://example.com";
        assert_eq!(ttl(json!({"html": "x"})), Duration::ZERO);
        assert_eq!(ttl(json!({"url": url, "cacheTTL": 0})), Duration::ZERO);
        let with = |name: &str| json!({"url": url, "setExtraHTTPHeaders": {name: "x"}});
        assert_eq!(ttl(with("x-other")), Duration::from_secs(5));
        assert_eq!(ttl(with("AUTHORIZATION")), Duration::ZERO);
    }
}
