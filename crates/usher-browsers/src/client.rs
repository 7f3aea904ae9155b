//! A browser's protocol, spoken over the pipe while the browser is ours.
//!
//! One message is one JSON text and a zero byte. We ask one thing at a time: the canary and a quick
//! action are scripts, and what arrives between question and answer is put aside for them, within
//! bounds. Only `id`, `method` and `sessionId` of a message are read; the rest stays text until
//! somebody wants it.
//!
//! Dialogs are dismissed as they come: nobody is there to answer them, and a page that shows one
//! answers nothing else. Windows that a page opens are closed for the same reason; each costs the
//! browser more than the last, so a page that goes on opening them is a fault.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::page::Pattern;

/// The longest message that is read, in bytes.
pub const MESSAGE_MAX: usize = 256 << 20;
/// Events that are kept for a script; older ones are forgotten beyond it.
pub const EVENTS_MAX: usize = 1024;
/// Bytes of events that are kept for a script; older ones are forgotten beyond it.
pub const EVENT_BYTES_MAX: usize = 16 << 20;
/// Windows that pages may open while the browser is ours.
pub const WINDOWS_MAX: u32 = 50;
/// Room that the buffer keeps after a large message.
const BUFFER_KEPT: usize = 1 << 20;
const CHUNK: usize = 64 << 10;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// The browser has closed the pipe: it is gone.
    #[error("the browser closed its pipe")]
    Closed,
    /// The pipe failed.
    #[error("browser pipe")]
    Io(#[from] io::Error),
    /// A message was too long.
    #[error("a message of the browser is longer than {MESSAGE_MAX} bytes")]
    Long,
    /// A message was none.
    #[error("the browser sent what is no message")]
    Json(#[from] serde_json::Error),
    /// No answer in time.
    #[error("the browser did not answer {method} within {after_ms} ms")]
    Late {
        /// What was asked.
        method: &'static str,
        /// For how long was waited.
        after_ms: u128,
    },
    /// It refused.
    #[error("{method}: {message}")]
    Refused {
        /// What was asked.
        method: &'static str,
        /// The browser's words.
        message: String,
    },
    /// The page that was asked has crashed.
    #[error("Page crashed!")]
    Crashed,
    /// Pages have opened too many windows.
    #[error("pages opened more than {WINDOWS_MAX} windows")]
    Windows,
    /// The page that was asked has gone away.
    #[error("the page is gone")]
    Detached,
}

/// Something that happened in the browser.
#[derive(Debug, Clone)]
pub struct Event {
    /// What.
    pub method: String,
    /// To which of its parts; empty for the browser itself.
    pub session: String,
    /// The rest, as the browser wrote it.
    pub params: Box<RawValue>,
}

impl Event {
    /// The rest, read.
    ///
    /// # Errors
    /// It has another shape.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ClientFault> {
        Ok(serde_json::from_str(self.params.get())?)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming<'a> {
    id: Option<i64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outgoing<'a, P> {
    id: i64,
    method: &'static str,
    params: P,
    #[serde(skip_serializing_if = "str::is_empty")]
    session_id: &'a str,
}

/// A browser that is ours to talk to.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    buffer: Vec<u8>,
    /// Up to where the buffer was searched for an end.
    searched: usize,
    last_id: i64,
    events: VecDeque<Event>,
    event_bytes: usize,
    windows: u32,
    judging: Option<Judging>,
    /// What is said to each part of the page that comes to be.
    of_parts: Vec<(&'static str, serde_json::Value)>,
    /// A message was given up half-way: whatever followed would be part of it.
    torn: bool,
}

/// Which requests of a page are let through, and what a server that asks for a password is told.
#[derive(Clone)]
pub struct Judging {
    /// The page's own frame, whose document is always let through.
    pub frame: String,
    /// Kinds that are refused; the browser's words, in any case.
    pub reject: Vec<String>,
    /// The only kinds that are let through, if any are named.
    pub allow: Vec<String>,
    /// Addresses that are refused.
    pub reject_patterns: Vec<Pattern>,
    /// The only addresses that are let through, if any are named.
    pub allow_patterns: Vec<Pattern>,
    /// Name and password, told once: who asks again is not satisfied with them.
    pub credentials: Option<(String, String)>,
}

impl std::fmt::Debug for Judging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judging")
            .field("frame", &self.frame)
            .finish_non_exhaustive()
    }
}

impl Judging {
    fn lets(&self, kind: &str, frame: &str, url: &str) -> bool {
        let own = frame == self.frame && kind == "Document";
        let named = |kinds: &[String]| kinds.iter().any(|one| one.eq_ignore_ascii_case(kind));
        let kind_fits = !named(&self.reject) && (self.allow.is_empty() || named(&self.allow));
        // What cannot be said of an address counts against it, on either list.
        let finds = |patterns: &[Pattern], unsaid| {
            patterns
                .iter()
                .any(|pattern| pattern.finds(url).unwrap_or(unsaid))
        };
        own || (kind_fits
            && !finds(&self.reject_patterns, true)
            && (self.allow_patterns.is_empty() || finds(&self.allow_patterns, false)))
    }
}

impl Client {
    /// Over a pipe that nothing was said on yet.
    #[must_use]
    pub fn new(socket: UnixStream) -> Client {
        Client {
            socket,
            buffer: Vec::new(),
            searched: 0,
            last_id: 0,
            events: VecDeque::new(),
            event_bytes: 0,
            windows: 0,
            judging: None,
            of_parts: Vec::new(),
            torn: false,
        }
    }

    /// The pipe, for somebody else to speak over, and whether it stands amid a message.
    #[must_use]
    pub fn into_pipe(self) -> (UnixStream, bool) {
        let amid = self.buffer.last().is_some_and(|&byte| byte != 0);
        (self.socket, amid)
    }

    /// From here on requests that are held up (`Fetch.enable`) are judged by this.
    pub fn judge(&mut self, judging: Judging) {
        self.judging = Some(judging);
    }

    /// From here on this is said to each part of a page (`Target.setAutoAttach`) before it begins.
    pub fn tell_parts(&mut self, said: Vec<(&'static str, serde_json::Value)>) {
        self.of_parts = said;
    }

    /// Events that nobody has asked for yet, the oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Asks `method` of the part `session` (the browser itself when empty) and reads the answer.
    ///
    /// # Errors
    /// See [`ClientFault`].
    pub async fn call<P: Serialize, T: serde::de::DeserializeOwned>(
        &mut self,
        session: &str,
        method: &'static str,
        params: P,
        deadline: Instant,
    ) -> Result<T, ClientFault> {
        let answer = self.ask(session, method, params, deadline).await?;
        Ok(serde_json::from_str(answer.get())?)
    }

    /// As [`Client::call`], with the answer as the browser wrote it.
    ///
    /// # Errors
    /// See [`ClientFault`].
    pub async fn ask<P: Serialize>(
        &mut self,
        session: &str,
        method: &'static str,
        params: P,
        deadline: Instant,
    ) -> Result<Box<RawValue>, ClientFault> {
        let started = Instant::now();
        let answered = async {
            let id = self.send(session, method, params).await?;
            loop {
                if let Some(answer) = self.next(Some((id, session, method))).await? {
                    return Ok(answer);
                }
            }
        };
        let late = |_| ClientFault::Late {
            method,
            after_ms: started.elapsed().as_millis(),
        };
        tokio::time::timeout_at(deadline, answered)
            .await
            .map_err(late)?
    }

    /// Says something whose answer is not waited for.
    ///
    /// # Errors
    /// The pipe failed.
    pub async fn tell<P: Serialize>(
        &mut self,
        session: &str,
        method: &'static str,
        params: P,
    ) -> Result<(), ClientFault> {
        self.send(session, method, params).await.map(|_| ())
    }

    /// The next event that `wanted` takes something of; others are forgotten.
    ///
    /// # Errors
    /// See [`ClientFault`]; [`ClientFault::Late`] with `what` when none came in time.
    pub async fn event<T>(
        &mut self,
        session: &str,
        what: &'static str,
        deadline: Instant,
        mut wanted: impl FnMut(&Event) -> Result<Option<T>, ClientFault>,
    ) -> Result<T, ClientFault> {
        let started = Instant::now();
        let found = async {
            loop {
                while let Some(event) = self.events.pop_front() {
                    self.event_bytes -= event.params.get().len();
                    ended(&event, session)?;
                    if let Some(found) = wanted(&event)? {
                        return Ok(found);
                    }
                }
                self.next(None).await?;
            }
        };
        let late = |_| ClientFault::Late {
            method: what,
            after_ms: started.elapsed().as_millis(),
        };
        tokio::time::timeout_at(deadline, found)
            .await
            .map_err(late)?
    }

    async fn send<P: Serialize>(
        &mut self,
        session: &str,
        method: &'static str,
        params: P,
    ) -> Result<i64, ClientFault> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = serde_json::to_vec(&Outgoing {
            id,
            method,
            params,
            session_id: session,
        })?;
        message.push(0);
        if std::mem::replace(&mut self.torn, true) {
            return Err(ClientFault::Closed);
        }
        self.socket.write_all(&message).await?;
        self.torn = false;
        Ok(id)
    }

    /// Reads one message: the answer if it is the one wanted, an event to keep, or neither. Nothing
    /// is lost when this is dropped while it waits.
    async fn next(
        &mut self,
        wanted: Option<(i64, &str, &'static str)>,
    ) -> Result<Option<Box<RawValue>>, ClientFault> {
        let end = self.message_end().await?;
        let message: Incoming<'_> = serde_json::from_slice(&self.buffer[..end])?;
        let mut answer = None;
        let mut reaction = None;
        let mut crashed = Ok(());
        if let (Some(id), Some((of, _, method))) = (message.id, wanted)
            && id == of
        {
            answer = Some(match message.error {
                Some(refusal) => Err(ClientFault::Refused {
                    method,
                    message: refusal.message,
                }),
                None => Ok(message.result.unwrap_or(EMPTY).to_owned()),
            });
        } else if let Some(method) = message.method {
            let session = message.session_id.unwrap_or_default();
            reaction = Reaction::to(&method, &session, message.params, self.judging.as_mut())?;
            let event = Event {
                method: method.into_owned(),
                session: session.into_owned(),
                params: message.params.unwrap_or(EMPTY).to_owned(),
            };
            // An answer that will never come is not waited for.
            if let Some((_, of, _)) = wanted {
                crashed = ended(&event, of);
            }
            self.keep(event);
        }
        self.buffer.drain(..=end);
        self.searched = 0;
        if self.buffer.capacity() > BUFFER_KEPT && self.buffer.len() < BUFFER_KEPT {
            self.buffer.shrink_to(BUFFER_KEPT);
        }
        match reaction {
            Some(Reaction::Dismiss(session)) => {
                let params = json!({"accept": false});
                self.tell(&session, "Page.handleJavaScriptDialog", params)
                    .await?;
            }
            Some(Reaction::Close(window)) => {
                self.windows += 1;
                if self.windows > WINDOWS_MAX {
                    return Err(ClientFault::Windows);
                }
                self.tell("", "Target.closeTarget", json!({"targetId": window}))
                    .await?;
            }
            Some(Reaction::Say(session, method, params)) => {
                self.tell(&session, method, params).await?;
            }
            Some(Reaction::Greet(part)) => {
                for (method, params) in self.of_parts.clone() {
                    self.tell(&part, method, params).await?;
                }
                // It has parts of its own, perhaps, and waits for this.
                self.tell(&part, "Target.setAutoAttach", attach_parts())
                    .await?;
                self.tell(&part, "Runtime.runIfWaitingForDebugger", json!({}))
                    .await?;
            }
            None => {}
        }
        crashed?;
        answer.transpose()
    }

    fn keep(&mut self, event: Event) {
        self.event_bytes += event.params.get().len();
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || self.event_bytes > EVENT_BYTES_MAX {
            match self.events.pop_front() {
                Some(old) => self.event_bytes -= old.params.get().len(),
                None => break,
            }
        }
    }

    /// Where the message at the front of the buffer ends.
    async fn message_end(&mut self) -> Result<usize, ClientFault> {
        loop {
            if let Some(found) = memchr::memchr(0, &self.buffer[self.searched..]) {
                return Ok(self.searched + found);
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MESSAGE_MAX {
                return Err(ClientFault::Long);
            }
            self.buffer.reserve(CHUNK);
            match self.socket.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(ClientFault::Closed),
                Ok(_) => {}
                // What a killed browser leaves behind.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ClientFault::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What is done at once about something that a page does.
enum Reaction {
    /// A dialog of this part is dismissed.
    Dismiss(String),
    /// This window is closed.
    Close(String),
    /// This part is new and waits.
    Greet(String),
    /// This is said to this part.
    Say(String, &'static str, serde_json::Value),
}

impl Reaction {
    fn to(
        method: &str,
        session: &str,
        params: Option<&RawValue>,
        judging: Option<&mut Judging>,
    ) -> Result<Option<Reaction>, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Created {
            target_info: Info,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Info {
            target_id: String,
            r#type: String,
            opener_id: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Attached {
            session_id: String,
            #[serde(default)]
            waiting_for_debugger: bool,
        }
        match method {
            "Page.javascriptDialogOpening" => Ok(Some(Reaction::Dismiss(session.to_owned()))),
            // Told only to who asked for it.
            "Target.targetCreated" => {
                let created: Created = serde_json::from_str(params.unwrap_or(EMPTY).get())?;
                let Info {
                    target_id,
                    r#type,
                    opener_id,
                } = created.target_info;
                let opened = r#type == "page" && opener_id.is_some();
                Ok(opened.then_some(Reaction::Close(target_id)))
            }
            // What we attach to ourselves waits for nobody.
            "Target.attachedToTarget" => {
                let attached: Attached = serde_json::from_str(params.unwrap_or(EMPTY).get())?;
                let waits = attached.waiting_for_debugger;
                Ok(waits.then_some(Reaction::Greet(attached.session_id)))
            }
            "Fetch.requestPaused" | "Fetch.authRequired" => {
                let held: Held = serde_json::from_str(params.unwrap_or(EMPTY).get())?;
                let answer = judging.map(|judging| held.answer(judging, method));
                Ok(
                    answer
                        .map(|(method, params)| Reaction::Say(session.to_owned(), method, params)),
                )
            }
            _ => Ok(None),
        }
    }
}

/// A request that waits for a word.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    request_id: String,
    frame_id: String,
    resource_type: String,
    request: Asked,
    auth_challenge: Option<Challenge>,
}

#[derive(Deserialize)]
struct Asked {
    url: String,
}

#[derive(Deserialize)]
struct Challenge {
    #[serde(default)]
    source: String,
}

impl Held {
    fn answer(&self, judging: &mut Judging, method: &str) -> (&'static str, serde_json::Value) {
        let id = &self.request_id;
        if method == "Fetch.authRequired" {
            let server = self
                .auth_challenge
                .as_ref()
                .is_some_and(|asks| asks.source == "Server");
            // Never to the proxy, and not twice.
            let known = judging.credentials.take().filter(|_| server);
            let response = match known {
                Some((username, password)) => json!({
                    "response": "ProvideCredentials",
                    "username": username,
                    "password": password,
                }),
                None => json!({"response": "CancelAuth"}),
            };
            let params = json!({"requestId": id, "authChallengeResponse": response});
            return ("Fetch.continueWithAuth", params);
        }
        if judging.lets(&self.resource_type, &self.frame_id, &self.request.url) {
            ("Fetch.continueRequest", json!({"requestId": id}))
        } else {
            let params = json!({"requestId": id, "errorReason": "BlockedByClient"});
            ("Fetch.failRequest", params)
        }
    }
}

/// Whether `event` says that the part `session` will say nothing any more.
fn ended(event: &Event, session: &str) -> Result<(), ClientFault> {
    if session.is_empty() {
        return Ok(());
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Detached {
        session_id: String,
    }
    match event.method.as_str() {
        "Inspector.targetCrashed" if event.session == session => Err(ClientFault::Crashed),
        "Target.detachedFromTarget" => {
            let of: Detached = event.read()?;
            if of.session_id == session {
                Err(ClientFault::Detached)
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

/// Parts of a page are attached to as they come to be, and wait until they were told everything.
pub(crate) fn attach_parts() -> serde_json::Value {
    json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true})
}

/// How long something may take, as a moment.
#[must_use]
pub fn within(span: Duration) -> Instant {
    Instant::now() + span
}

static EMPTY: &RawValue = RawValue::NULL;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    async fn pair() -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Client::new(ours), theirs)
    }

    #[tokio::test]
    async fn an_answer_is_found_between_events_however_it_is_cut() {
        let (mut client, mut browser) = pair().await;
        let told = concat!(
            r#"{"method":"Page.loadEventFired","params":{"timestamp":1},"sessionId":"S"}"#,
            "\0",
            r#"{"id":7,"result":{}}"#,
            "\0",
            r#"{"id":1,"result":{"product":"Chrome \u00e9"}}"#,
            "\0",
        );
        let write = async {
            for byte in told.as_bytes() {
                browser.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let deadline = within(Duration::from_secs(60));
        let ask = client.call::<_, Value>("", "Browser.getVersion", json!({}), deadline);
        let ((), answer) = tokio::join!(write, ask);
        assert_eq!(answer.unwrap(), json!({"product": "Chrome é"}));
        let seen = client
            .event("S", "load", deadline, |event| {
                Ok(Some(event.method.clone()))
            })
            .await;
        assert_eq!(seen.unwrap(), "Page.loadEventFired");
    }

    #[tokio::test]
    async fn what_never_comes_is_not_waited_for() {
        let (mut client, mut browser) = pair().await;
        let crash = r#"{"method":"Inspector.targetCrashed","params":{},"sessionId":"S"}"#;
        browser.write_all(crash.as_bytes()).await.unwrap();
        browser.write_all(b"\0").await.unwrap();
        let deadline = within(Duration::from_secs(60));
        let fault = client
            .ask("S", "Page.captureScreenshot", json!({}), deadline)
            .await;
        assert!(matches!(fault, Err(ClientFault::Crashed)), "{fault:?}");
        drop(browser);
        let fault = client
            .ask("", "Browser.getVersion", json!({}), deadline)
            .await;
        assert!(
            matches!(fault, Err(ClientFault::Closed | ClientFault::Io(_))),
            "{fault:?}"
        );
    }

    #[tokio::test]
    async fn nothing_is_said_after_half_a_message() {
        let (mut client, _browser) = pair().await;
        let large = "x".repeat(8 << 20);
        let fault = client
            .ask(
                "",
                "M",
                json!({"large": large}),
                within(Duration::from_millis(1)),
            )
            .await;
        assert!(matches!(fault, Err(ClientFault::Late { .. })), "{fault:?}");
        let fault = client
            .ask("", "M", json!({}), within(Duration::from_secs(60)))
            .await;
        assert!(matches!(fault, Err(ClientFault::Closed)), "{fault:?}");
    }

    #[tokio::test]
    async fn events_that_nobody_wants_are_forgotten_within_bounds() {
        let (mut client, mut browser) = pair().await;
        let write = async {
            for at in 0..=EVENTS_MAX {
                let event = format!(r#"{{"method":"E","params":{{"at":{at}}}}}"#);
                browser.write_all(event.as_bytes()).await.unwrap();
                browser.write_all(b"\0").await.unwrap();
            }
            browser
                .write_all(b"{\"id\":1,\"result\":{}}\0")
                .await
                .unwrap();
        };
        let deadline = within(Duration::from_secs(60));
        let ((), answer) = tokio::join!(write, client.ask("", "M", json!({}), deadline));
        answer.unwrap();
        assert_eq!(client.events.len(), EVENTS_MAX);
        assert_eq!(client.events[0].params.get(), r#"{"at":1}"#);
    }

    #[tokio::test]
    async fn what_is_no_message_is_a_fault() {
        for told in ["\0", "[1]\0", "{\"id\":\"x\"}\0", "nonsense\0"] {
            let (mut client, mut browser) = pair().await;
            browser.write_all(told.as_bytes()).await.unwrap();
            let fault = client
                .ask("", "M", json!({}), within(Duration::from_secs(60)))
                .await;
            assert!(
                matches!(fault, Err(ClientFault::Json(_))),
                "{told:?}: {fault:?}"
            );
        }
    }
}
