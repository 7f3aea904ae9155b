//! The page that a browser has to draw before anybody gets it.
//!
//! A browser that answers need not be one that works: so a page is made, its text in five scripts is
//! read back, and a picture of it has the colour that was drawn for this one canary. Everything that
//! can be broken (a process for pages, memory for pictures, the sandbox around both) is used once.
//!
//! Source: browser specification 14.

use std::time::Duration;

use base64::Engine as _;
use serde::Deserialize;
use serde_json::json;

use crate::client::{Client, ClientFault, within};
use crate::png::{PngFault, pixel};

/// How long the canary may take.
pub const CANARY_MAX: Duration = Duration::from_secs(5);
/// How long a browser that is ready may take to answer.
pub const CHECK_MAX: Duration = Duration::from_millis(500);
/// Letters that fonts and text shaping have to get through.
const TEXT: &str = "Usher 한글 かな 漢字 \u{1f6aa}";
const SIDE: u32 = 64;

/// Why a browser is none.
#[derive(Debug, thiserror::Error)]
pub enum CanaryFault {
    /// It does not answer.
    #[error(transparent)]
    Client(#[from] ClientFault),
    /// It draws nothing that can be looked at.
    #[error("canary picture")]
    Picture(#[from] PngFault),
    /// It sent no base64.
    #[error("canary picture is not base64")]
    Base64(#[from] base64::DecodeError),
    /// It reads another text than it was given.
    #[error("canary text came back as {0:?}")]
    Text(String),
    /// It draws another colour.
    #[error("canary has colour {found:?}, not {wanted:?}")]
    Colour {
        /// In the picture.
        found: [u8; 3],
        /// In the page.
        wanted: [u8; 3],
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    target_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    session_id: String,
}

#[derive(Deserialize)]
struct Picture {
    data: String,
}

#[derive(Deserialize)]
struct Evaluated {
    result: Value,
}

#[derive(Deserialize)]
struct Value {
    value: serde_json::Value,
}

/// A new page and the session that speaks to it.
pub(crate) async fn open_page(
    client: &mut Client,
    deadline: tokio::time::Instant,
) -> Result<(String, String), ClientFault> {
    let page: Target = client
        .call(
            "",
            "Target.createTarget",
            json!({"url": "about:blank"}),
            deadline,
        )
        .await?;
    let params = json!({"targetId": page.target_id, "flatten": true});
    let session: Session = client
        .call("", "Target.attachToTarget", params, deadline)
        .await?;
    Ok((page.target_id, session.session_id))
}

/// Has `client` draw a page in `colour`.
///
/// # Errors
/// See [`CanaryFault`].
pub async fn sing(client: &mut Client, colour: [u8; 3]) -> Result<(), CanaryFault> {
    let deadline = within(CANARY_MAX);
    let (page, session) = open_page(client, deadline).await?;
    let [red, green, blue] = colour;
    let html = format!(
        "<!doctype html><meta charset=utf-8><body style='margin:0;background:rgb({red},{green},{blue})'>\
         <p id=text style='margin:80px 0'>{TEXT}</p>"
    );
    // The frame of a page that was just made has the page's own name.
    let params = json!({"frameId": page, "html": html});
    client
        .ask(&session, "Page.setDocumentContent", params, deadline)
        .await?;
    let params = json!({"expression": "document.getElementById('text').textContent"});
    let read: Evaluated = client
        .call(&session, "Runtime.evaluate", params, deadline)
        .await?;
    if read.result.value != TEXT {
        return Err(CanaryFault::Text(read.result.value.to_string()));
    }
    let clip = json!({"x": 0, "y": 0, "width": SIDE, "height": SIDE, "scale": 1});
    let params = json!({"format": "png", "clip": clip});
    let picture: Picture = client
        .call(&session, "Page.captureScreenshot", params, deadline)
        .await?;
    let png = base64::engine::general_purpose::STANDARD.decode(picture.data)?;
    let found = pixel(&png, SIDE / 2, SIDE / 2)?;
    if found != colour {
        return Err(CanaryFault::Colour {
            found,
            wanted: colour,
        });
    }
    client
        .ask(
            "",
            "Target.closeTarget",
            json!({"targetId": page}),
            deadline,
        )
        .await?;
    Ok(())
}

/// Asks a browser that is ready whether its blank page still answers.
///
/// # Errors
/// It does not, or not in time.
pub async fn check(client: &mut Client) -> Result<(), CanaryFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Targets {
        target_infos: Vec<Info>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        target_id: String,
        r#type: String,
    }
    let deadline = within(CHECK_MAX);
    let targets: Targets = client
        .call("", "Target.getTargets", json!({}), deadline)
        .await?;
    let page = targets
        .target_infos
        .into_iter()
        .find(|target| target.r#type == "page");
    let Some(page) = page else {
        return Err(ClientFault::Detached.into());
    };
    let params = json!({"targetId": page.target_id, "flatten": true});
    let session: Session = client
        .call("", "Target.attachToTarget", params, deadline)
        .await?;
    let params = json!({"expression": "6*7"});
    let read: Evaluated = client
        .call(&session.session_id, "Runtime.evaluate", params, deadline)
        .await?;
    if read.result.value != 42 {
        return Err(CanaryFault::Text(read.result.value.to_string()));
    }
    let params = json!({"sessionId": session.session_id});
    client
        .ask("", "Target.detachFromTarget", params, deadline)
        .await?;
    Ok(())
}
