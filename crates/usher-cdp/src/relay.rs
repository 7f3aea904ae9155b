//! Many clients on one pipe, each as if it were alone.
//!
//! Every client gets a part of the browser to itself: the browser once more
//! (`Target.attachToBrowserTarget`), or one page. What it says without naming a part goes there,
//! and what comes from there loses the name again, so a client sees what it would see on a socket
//! of its own: what one attaches to or discovers, another is not told of, and what is to vanish
//! with its connection does. Parts that a client attaches to in its turn belong to it, and so do
//! all below them; the browser tells of each before it says anything in its name.
//!
//! Numbers of commands pass as they are, for they count in each part anew. Only those that a
//! browser cannot count in (it takes 32 bits), and those below zero, are exchanged for numbers from
//! a range that is kept free for it.
//!
//! What is seen to in every browser, whoever is connected, is in `watch`. Its commands have numbers
//! below zero, and no client's has: so whoever carries the pipe can tell what a client wanted.
//!
//! The caller does the IO: [`Relay::begin`], [`Relay::join`], then [`Relay::command`] for each message of a client
//! and [`Relay::deliver`] for each of the browser, then [`Relay::leave`].

use std::collections::{BTreeMap, HashMap};

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

use crate::gate::{Gate, Judged};
use crate::message::{Command, CommandFault, Front, front, session};
use crate::open::Open;
use crate::oversize::shortened;
use watch::Watch;

mod watch;

pub use watch::{PAGES_MAX, Reach};

/// Bytes of one message that Chromium reads from its pipe; at a longer one it ends.
pub const TAKEN_MAX: usize = 100 * 1024 * 1024 - 1;
/// Bytes beside a part's name that a command may become longer by on its way to the browser.
const ADDED_MAX: usize = 32;

/// Clients of one browser.
pub const CLIENTS_MAX: usize = 16;

/// Parts that one client may be attached to.
pub const PARTS_MAX: usize = 4096;

/// The first number that is kept free for exchanged ones.
const EXCHANGED_MIN: i32 = i32::MAX - 65_536;

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u32);

/// What a client is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The browser.
    Browser,
    /// The page with this target.
    Page(String),
}

/// A client, as the relay knows it.
#[derive(Debug)]
struct Client {
    gate: Gate,
    /// The longest message that it takes, in bytes.
    limit: usize,
    /// Its own part; `None` until the browser has given it.
    root: Option<Box<str>>,
    /// Commands that were passed on and not answered.
    open: Open,
    parts: usize,
}

/// What is to be done with a number that comes back.
#[derive(Debug)]
struct Exchanged {
    client: ClientId,
    id: i64,
    hide_command_line: bool,
}

/// What the relay itself asked the browser.
#[derive(Debug)]
enum Asked {
    Attach(ClientId),
    Detach,
    Question,
}

/// Joins clients to a browser.
#[derive(Debug, Default)]
pub struct Relay {
    clients: BTreeMap<ClientId, Client>,
    next_client: u32,
    /// Whose a part is.
    owners: HashMap<Box<str>, ClientId>,
    asked: HashMap<i32, Asked>,
    next_asked: i32,
    exchanged: HashMap<i32, Exchanged>,
    next_exchanged: i32,
    left_out: u64,
    watch: Watch,
    last_own: i32,
}

/// What a client's message leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// This goes to the browser.
    Browser(String),
    /// This goes back to the client.
    Client(String),
    /// This goes back to the client, and the session ends.
    Close(String),
    /// Whoever runs the session answers: [`Relay::answer`].
    Service {
        /// The number to answer with.
        id: i64,
        /// What is asked.
        method: String,
        /// Of which part; `None`: the client's own.
        session: Option<String>,
        /// The parameters, a JSON text.
        params: String,
    },
}

/// What a message of the browser leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// This goes to that client.
    Client(ClientId, Bytes),
    /// That client has its part: from here on it may speak.
    Joined(ClientId),
    /// That client gets no part: there is no such page, or the browser will not.
    Refused(ClientId),
    /// The page that this client was connected to is gone.
    Gone(ClientId),
    /// This goes back to the browser: a part that nobody wants any more, a page that is to close.
    Browser(String),
    /// The answer to the question of this number.
    Told(i32, Bytes),
    /// Nothing.
    Nothing,
}

/// There are as many clients as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this session has {CLIENTS_MAX} connections, and may have no more")]
pub struct Full;

impl Relay {
    /// For a browser whose pages may reach these hosts; `None`: all.
    #[must_use]
    pub fn new(reach: Option<Reach>) -> Relay {
        Relay {
            watch: Watch::new(reach),
            ..Relay::default()
        }
    }

    /// What goes to the browser before anything else.
    pub fn begin(&mut self) -> Vec<String> {
        let orders = self.watch.begin().into_iter();
        orders
            .map(|(method, params)| self.own_command(method, &params))
            .collect()
    }

    /// Asks the browser something of itself, for nobody's connection. The text goes to the browser,
    /// which will say [`Delivery::Told`] with the number.
    pub fn question(&mut self, method: &str, params: &Value) -> (i32, String) {
        let text = self.ask(Asked::Question, method, params);
        (self.next_asked, text)
    }

    /// Takes a client on. `limit`: the longest message that it takes, in bytes. The text goes to
    /// the browser, which will say [`Delivery::Joined`]; nothing is taken from the client before.
    ///
    /// # Errors
    /// There are [`CLIENTS_MAX`].
    pub fn join(
        &mut self,
        part: &Part,
        gate: Gate,
        limit: usize,
    ) -> Result<(ClientId, String), Full> {
        if self.clients.len() >= CLIENTS_MAX {
            return Err(Full);
        }
        let id = ClientId(self.next_client);
        self.next_client = self.next_client.wrapping_add(1);
        let client = Client {
            gate,
            limit,
            root: None,
            open: Open::default(),
            parts: 0,
        };
        self.clients.insert(id, client);
        let (method, params) = match part {
            Part::Browser => ("Target.attachToBrowserTarget", json!({})),
            Part::Page(target) => (
                "Target.attachToTarget",
                json!({"targetId": target, "flatten": true}),
            ),
        };
        Ok((id, self.ask(Asked::Attach(id), method, &params)))
    }

    /// Forgets a client. The text goes to the browser: what was the client's ends with it.
    pub fn leave(&mut self, id: ClientId) -> Option<String> {
        let client = self.clients.remove(&id)?;
        self.owners.retain(|_, owner| *owner != id);
        self.exchanged.retain(|_, exchanged| exchanged.client != id);
        // One that has no part yet may still get it: that is seen when it comes.
        client.root.map(|root| self.detach(&root))
    }

    /// How many there are.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Commands of all clients that the browser has not answered.
    #[must_use]
    pub fn open(&self) -> usize {
        self.clients.values().map(|client| client.open.len()).sum()
    }

    /// The browser has ended because of `why`: what is still to be said to whom.
    pub fn refuse_open(&mut self, why: &str) -> Vec<(ClientId, String)> {
        let clients = self.clients.iter_mut();
        let all = clients.flat_map(|(&id, client)| {
            let texts = client.open.refused(why).into_iter();
            texts.map(move |text| (id, text))
        });
        all.collect()
    }

    /// Messages that were too long for a client and had no shorter form.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Judges what a client says. What the browser could not read is refused: it would end over it.
    pub fn command(&mut self, id: ClientId, text: &str) -> Step {
        let command = match Command::read(text) {
            Ok(command) => command,
            Err(fault) => return Step::Client(unreadable(fault)),
        };
        let Some(client) = self.clients.get(&id) else {
            return refuse(&command, -32000, "Connection closed");
        };
        let Some(root) = client.root.as_deref() else {
            return refuse(&command, -32000, "Connection is not ready");
        };
        if let Some(session) = command.session
            && self.owners.get(session) != Some(&id)
        {
            return refuse(&command, -32001, "Session with given id not found.");
        }
        if command.method == "Target.createTarget" && self.watch.is_full() {
            let text = format!("this browser has {PAGES_MAX} pages, and may have no more");
            return refuse(&command, -32000, &text);
        }
        let judged = client.gate.judge(&command, text);
        let mut hide_command_line = false;
        let changed;
        let (command, text) = match judged {
            Judged::Pass => (command, text),
            Judged::HideCommandLine => {
                hide_command_line = true;
                (command, text)
            }
            Judged::Params(params) => {
                changed = command.with_params(text, &params);
                match Command::read(&changed) {
                    Ok(command) => (command, &*changed),
                    Err(fault) => return Step::Client(unreadable(fault)),
                }
            }
            Judged::Refuse(code, message) => return refuse(&command, code, message),
            Judged::Answer(result) => return Step::Client(answered(&command, result)),
            Judged::Close => return Step::Close(answered(&command, "{}")),
            Judged::Service => {
                return Step::Service {
                    id: command.id,
                    method: command.method.to_owned(),
                    session: command.session.map(str::to_owned),
                    params: command.params_at.map_or("{}", |at| &text[at]).to_owned(),
                };
            }
        };
        let most = text.len() + root.len() + ADDED_MAX;
        if most > TAKEN_MAX {
            let text = format!(
                "command of {} bytes is over what the browser takes, {} bytes",
                text.len(),
                TAKEN_MAX - root.len() - ADDED_MAX
            );
            return refuse(&command, -32000, &text);
        }
        let mut out = String::with_capacity(most);
        out.push('{');
        if command.session.is_none() {
            out.push_str("\"sessionId\":\"");
            out.push_str(root);
            out.push_str("\",");
        }
        out.push_str(&text[command.fields_at..command.id_at.start]);
        let passes = i32::try_from(command.id).ok();
        let passes = passes.filter(|id| (0..EXCHANGED_MIN).contains(id) && !hide_command_line);
        let number = match passes {
            Some(number) => number,
            None => match self.exchange(id, command.id, hide_command_line) {
                Some(number) => number,
                None => return refuse(&command, -32000, "too many commands are not answered yet"),
            },
        };
        out.push_str(&number.to_string());
        out.push_str(&text[command.id_at.end..]);
        if let Some(client) = self.clients.get_mut(&id) {
            client.open.asked(number, command.id, command.session);
        }
        Step::Browser(out)
    }

    /// The answer of whoever runs the session to [`Step::Service`]: `body` is the member `"result"`
    /// or `"error"` with its value.
    #[must_use]
    pub fn answer(id: i64, session: Option<&str>, body: &str) -> String {
        match session {
            None => format!(r#"{{"id":{id},{body}}}"#),
            Some(session) => format!(r#"{{"id":{id},{body},"sessionId":"{session}"}}"#),
        }
    }

    /// Finds out for whom a message of the browser is.
    pub fn deliver(&mut self, mut message: BytesMut) -> Delivery {
        let (owner, is_root, cut) = match session(&message) {
            None => return self.own(&message),
            Some((session, at)) => {
                let Some(&owner) = self.owners.get(session) else {
                    // Of somebody who left: the browser had said it before it knew.
                    return Delivery::Nothing;
                };
                let root = self
                    .clients
                    .get(&owner)
                    .and_then(|client| client.root.as_deref());
                (owner, root == Some(session), at)
            }
        };
        match front(&message) {
            Front::Answer(number, at) => message = self.answered(owner, number, at, message),
            Front::Event("Target.attachedToTarget") => {
                if let Some(unwanted) = self.attached(owner, &message) {
                    return Delivery::Browser(unwanted);
                }
            }
            Front::Event("Target.detachedFromTarget") => self.detached(&message),
            Front::Event(_) | Front::Other => {}
        }
        if is_root {
            // The name is the last member, unless the number became longer or shorter.
            let cut = session(&message).map_or(cut, |(_, at)| at);
            message.truncate(cut);
            message.extend_from_slice(b"}");
        }
        let Some(client) = self.clients.get(&owner) else {
            return Delivery::Nothing;
        };
        if message.len() <= client.limit {
            return Delivery::Client(owner, message.freeze());
        }
        match shortened(&message, client.limit) {
            Some(short) => Delivery::Client(owner, short.into()),
            None => {
                self.left_out += 1;
                Delivery::Nothing
            }
        }
    }

    /// What is said to the relay itself.
    fn own(&mut self, message: &[u8]) -> Delivery {
        match front(message) {
            Front::Answer(number, _) => match self.asked.remove(&number) {
                Some(Asked::Attach(client)) => self.joined(client, message),
                Some(Asked::Question) => Delivery::Told(number, Bytes::copy_from_slice(message)),
                Some(Asked::Detach) | None => Delivery::Nothing,
            },
            Front::Event("Target.detachedFromTarget") => {
                let gone = part_of(message).and_then(|part| self.owners.get(&*part).copied());
                match gone {
                    Some(client) => {
                        // What was attached below it went with it.
                        self.owners.retain(|_, owner| *owner != client);
                        if let Some(client) = self.clients.get_mut(&client) {
                            client.root = None;
                        }
                        Delivery::Gone(client)
                    }
                    None => Delivery::Nothing,
                }
            }
            Front::Event(method) => match self.watch.event(method, message) {
                Some((method, params)) => Delivery::Browser(self.own_command(method, &params)),
                None => Delivery::Nothing,
            },
            Front::Other => Delivery::Nothing,
        }
    }

    fn joined(&mut self, id: ClientId, message: &[u8]) -> Delivery {
        let answer: Option<Value> = serde_json::from_slice(message).ok();
        let part = answer.as_ref().and_then(|answer| {
            let part = answer.pointer("/result/sessionId")?.as_str()?;
            is_part(part).then(|| Box::<str>::from(part))
        });
        match (part, self.clients.get_mut(&id)) {
            (Some(part), Some(client)) => {
                client.root = Some(part.clone());
                self.owners.insert(part, id);
                Delivery::Joined(id)
            }
            (None, Some(_)) => Delivery::Refused(id),
            (Some(part), None) => Delivery::Browser(self.detach(&part)),
            (None, None) => Delivery::Nothing,
        }
    }

    /// A client's part told that it was attached to another one, which is the client's then. One
    /// too many is given back, and one where nobody is to be, as the browser's own surface.
    fn attached(&mut self, owner: ClientId, message: &[u8]) -> Option<String> {
        let event: Value = serde_json::from_slice(message).ok()?;
        let part = part_in(&event)?;
        let client = self.clients.get_mut(&owner)?;
        if self.owners.contains_key(&part) {
            return None;
        }
        let url = event.pointer("/params/targetInfo/url");
        let strays = url.and_then(Value::as_str).is_some_and(watch::strays);
        if strays || client.parts >= PARTS_MAX {
            self.left_out += 1;
            let of = json!({"sessionId": part});
            return Some(self.own_command("Target.detachFromTarget", &of));
        }
        client.parts += 1;
        self.owners.insert(part, owner);
        None
    }

    fn detached(&mut self, message: &[u8]) {
        let owner = part_of(message).and_then(|part| self.owners.remove(&part));
        if let Some(client) = owner.and_then(|owner| self.clients.get_mut(&owner)) {
            client.parts = client.parts.saturating_sub(1);
        }
    }

    /// Counts an answer, and gives it the number that its client knows.
    fn answered(
        &mut self,
        owner: ClientId,
        number: i32,
        at: std::ops::Range<usize>,
        message: BytesMut,
    ) -> BytesMut {
        if let Some(client) = self.clients.get_mut(&owner) {
            client.open.answered(number);
        }
        let own = |exchanged: &Exchanged| exchanged.client == owner;
        if number < EXCHANGED_MIN || !self.exchanged.get(&number).is_some_and(own) {
            return message;
        }
        let Some(exchanged) = self.exchanged.remove(&number) else {
            return message;
        };
        let id = exchanged.id.to_string();
        let mut out = BytesMut::with_capacity(message.len() + id.len());
        out.extend_from_slice(&message[..at.start]);
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(&message[at.end..]);
        if exchanged.hide_command_line {
            hide_command_line(&mut out);
        }
        out
    }

    fn exchange(&mut self, client: ClientId, id: i64, hide_command_line: bool) -> Option<i32> {
        let range = i32::MAX - EXCHANGED_MIN;
        if self.exchanged.len() >= range as usize / 2 {
            return None;
        }
        loop {
            let number = EXCHANGED_MIN + self.next_exchanged;
            self.next_exchanged = (self.next_exchanged + 1) % range;
            if let std::collections::hash_map::Entry::Vacant(free) = self.exchanged.entry(number) {
                free.insert(Exchanged {
                    client,
                    id,
                    hide_command_line,
                });
                return Some(number);
            }
        }
    }

    fn ask(&mut self, asked: Asked, method: &str, params: &Value) -> String {
        // Those before it have long been answered when it begins anew.
        self.next_asked = self.next_asked.checked_add(1).unwrap_or(1);
        self.asked.insert(self.next_asked, asked);
        let id = self.next_asked;
        format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#)
    }

    /// A command of the relay's own. Its answer is nobody's.
    fn own_command(&mut self, method: &str, params: &Value) -> String {
        self.last_own = self.last_own.checked_sub(1).unwrap_or(-1);
        let id = self.last_own;
        format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#)
    }

    fn detach(&mut self, part: &str) -> String {
        self.ask(
            Asked::Detach,
            "Target.detachFromTarget",
            &json!({"sessionId": part}),
        )
    }
}

/// The part that an event tells of.
fn part_of(event: &[u8]) -> Option<Box<str>> {
    part_in(&serde_json::from_slice(event).ok()?)
}

fn part_in(event: &Value) -> Option<Box<str>> {
    let part = event.pointer("/params/sessionId")?.as_str()?;
    is_part(part).then(|| part.into())
}

/// Names of parts are written into texts as they are.
fn is_part(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn hide_command_line(answer: &mut BytesMut) {
    let Ok(mut value) = serde_json::from_slice::<Value>(answer) else {
        return;
    };
    if let Some(line) = value.pointer_mut("/result/commandLine") {
        *line = "".into();
        *answer = BytesMut::from(value.to_string().as_bytes());
    }
}

fn unreadable(fault: CommandFault) -> String {
    json!({"error": {"code": fault.code(), "message": fault.to_string()}}).to_string()
}

fn refuse(command: &Command<'_>, code: i32, message: &str) -> Step {
    let error = json!({"code": code, "message": message});
    let session = command.session.filter(|name| is_part(name));
    Step::Client(Relay::answer(
        command.id,
        session,
        &format!(r#""error":{error}"#),
    ))
}

fn answered(command: &Command<'_>, result: &str) -> String {
    let session = command.session.filter(|name| is_part(name));
    Relay::answer(command.id, session, &format!(r#""result":{result}"#))
}

#[cfg(test)]
mod tests;
