//! What is done in the page by a script of ours, and how its answer is read.
//!
//! Values go in as JSON, which is a part of the script's language, so nothing that a caller wrote can
//! become code.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::order::{Selector, Tag};
use crate::client::{Client, ClientFault};

/// Why a script of ours has no answer.
#[derive(Debug)]
pub(super) enum ScriptFault {
    /// The browser did not run it.
    Client(ClientFault),
    /// It threw, with this text.
    Threw(String),
}

impl From<ClientFault> for ScriptFault {
    fn from(fault: ClientFault) -> ScriptFault {
        ScriptFault::Client(fault)
    }
}

/// Puts a `script` or `style` element in and waits until it is loaded.
const INSERT: &str = "(kind, tag) => new Promise((done, fail) => {
    const link = kind === 'style' && tag.url;
    const made = document.createElement(link ? 'link' : kind);
    if (link) { made.rel = 'stylesheet'; made.href = tag.url; }
    else if (tag.url) made.src = tag.url;
    else made.textContent = tag.content ?? '';
    if (tag.type && kind === 'script') made.type = tag.type;
    if (tag.id) made.id = tag.id;
    made.onerror = () => fail(new Error('Could not load ' + kind));
    made.onload = () => done(true);
    (document.head ?? document.documentElement).append(made);
    if (!tag.url) done(true);
})";

/// Looks again and again until the selected element is as it is wanted.
const AWAIT: &str = "(wanted) => new Promise((done, fail) => {
    const look = () => {
        let found;
        try { found = document.querySelector(wanted.selector); } catch (fault) { fail(fault); return; }
        const style = found && getComputedStyle(found);
        const box = found && found.getBoundingClientRect();
        const seen = !!found && style.visibility !== 'hidden' && style.display !== 'none'
            && box.width > 0 && box.height > 0;
        if (wanted.hidden ? !seen : wanted.visible ? seen : found) done(true);
        else setTimeout(look, 50);
    };
    look();
})";

/// Where the first selected element lies on the page.
const PLACE: &str = "(selector) => {
    const found = document.querySelector(selector);
    if (!found) return null;
    found.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const box = found.getBoundingClientRect();
    return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height};
}";

/// Scrolls window by window to the end, which may move on, and back.
const SCROLL: &str = "async () => {
    for (let step = 0; step < 200; step++) {
        const before = scrollY;
        scrollBy({top: innerHeight, behavior: 'instant'});
        await new Promise(done => setTimeout(done, 20));
        if (scrollY === before) break;
    }
    scrollTo({top: 0, behavior: 'instant'});
    return true;
}";

pub(super) async fn insert(
    client: &mut Client,
    page: &str,
    kind: &str,
    tag: &Tag,
    deadline: Instant,
) -> Result<(), ScriptFault> {
    run(client, page, INSERT, &[json!(kind), json!(tag)], deadline)
        .await
        .map(|_| ())
}

pub(super) async fn await_selector(
    client: &mut Client,
    page: &str,
    wanted: &Selector,
    deadline: Instant,
) -> Result<(), ScriptFault> {
    run(client, page, AWAIT, &[json!(wanted)], deadline)
        .await
        .map(|_| ())
}

/// Where the element is, as the browser's `clip`; null when there is none.
pub(super) async fn place(
    client: &mut Client,
    page: &str,
    selector: &str,
    deadline: Instant,
) -> Result<Value, ScriptFault> {
    run(client, page, PLACE, &[json!(selector)], deadline).await
}

pub(super) async fn scroll(
    client: &mut Client,
    page: &str,
    deadline: Instant,
) -> Result<(), ScriptFault> {
    run(client, page, SCROLL, &[], deadline).await.map(|_| ())
}

async fn run(
    client: &mut Client,
    page: &str,
    function: &str,
    arguments: &[Value],
    deadline: Instant,
) -> Result<Value, ScriptFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Evaluated {
        result: Answer,
        exception_details: Option<Thrown>,
    }
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        value: Value,
    }
    #[derive(Deserialize)]
    struct Thrown {
        text: String,
        exception: Option<Exception>,
    }
    #[derive(Deserialize)]
    struct Exception {
        description: Option<String>,
    }
    let arguments: Vec<String> = arguments.iter().map(Value::to_string).collect();
    let expression = format!("({function})({})", arguments.join(", "));
    let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
    let read: Evaluated = client
        .call(page, "Runtime.evaluate", params, deadline)
        .await?;
    match read.exception_details {
        None => Ok(read.result.value),
        Some(thrown) => {
            let described = thrown.exception.and_then(|thrown| thrown.description);
            let text = described.unwrap_or(thrown.text);
            Err(ScriptFault::Threw(
                text.lines().next().unwrap_or_default().to_owned(),
            ))
        }
    }
}
