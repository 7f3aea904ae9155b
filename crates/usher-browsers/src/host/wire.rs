//! What a broker and a host say to each other.
//!
//! A connection over the host's socket carries frames: four bytes of length, largest first, and a
//! JSON text. Each question has one answer, in order. Three of them end that: after `connect` the
//! connection is the browser's own pipe, zero bytes between messages, as the browser has it, so that
//! the host copies bytes and looks at none; after `watch` it carries heartbeats; and the answer to
//! `screenshot` is followed by a frame with the picture.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::{Boot, BrowserId, Epoch, SessionId};

use crate::page::Screenshot;

/// The longest frame, in bytes: a page of 50 MB with every character escaped once.
pub const FRAME_MAX: usize = 128 << 20;

/// What a broker asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Who are you?
    Hello,
    /// The store has counted this start of yours.
    Register {
        /// As this.
        boot: u32,
    },
    /// The store does not know this start of yours any more.
    Disowned {
        /// Which.
        boot: u32,
    },
    /// Keep this many browsers ready.
    Want {
        /// Together with those that are starting.
        ready: u32,
        /// End the oldest that are ready while there are more than so many; `None`: end none.
        #[serde(default)]
        most: Option<u32>,
    },
    /// Prepare a browser for a session.
    Prepare {
        /// Who holds it.
        #[serde(flatten)]
        held: Held,
        /// How long it may be idle, in milliseconds.
        keep_alive_ms: u64,
        /// What it may reach, a JSON object for the egress proxy.
        #[serde(default)]
        guardrails: Option<serde_json::Value>,
    },
    /// Turn this connection into the browser's pipe, once it was answered with what the session may
    /// reach. Another one for the same session ends then.
    Connect {
        /// Who holds it.
        #[serde(flatten)]
        held: Held,
    },
    /// A command that does not go by the pipe keeps the session from being idle.
    Touch {
        /// Who holds it.
        #[serde(flatten)]
        held: Held,
    },
    /// Draw one page and end the browser.
    Screenshot {
        /// Who holds it.
        #[serde(flatten)]
        held: Held,
        /// What.
        order: Box<Screenshot>,
    },
    /// End it.
    Close {
        /// Which.
        #[serde(with = "hex")]
        browser: u128,
        /// The lease of who wants it.
        epoch: u32,
        /// Why: a text of [`CloseReason`].
        reason: String,
    },
    /// What runs, for comparing with the store.
    List,
    /// The store knows what was on a list.
    Confirmed {
        /// Of this start.
        boot: u32,
        /// The moment that the list says it was made at.
        made: u64,
    },
    /// What was counted since the host began: [`Figures`].
    Figures,
    /// Send heartbeats from here on.
    Watch,
    /// Where this installation listens, from now on: nothing opens these to a page.
    Own {
        /// All of them.
        listeners: Vec<SocketAddr>,
    },
    /// End if no session is on you. Answered by whether it does.
    Retire,
    /// Start nothing any more, and end when the last session has.
    Drain,
    /// End everything now.
    Quit,
}

/// A lease that somebody says to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// On this browser.
    #[serde(with = "hex")]
    pub browser: u128,
    /// The number of the lease.
    pub epoch: u32,
    /// For this session.
    #[serde(with = "hex")]
    pub session: u128,
}

impl Held {
    pub(super) const fn parts(self) -> (BrowserId, Epoch, SessionId) {
        (
            BrowserId(self.browser),
            Epoch(self.epoch),
            SessionId(self.session),
        )
    }
}

/// What a host is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Of this protocol; a broker that does not know it lets the host be.
    pub version: u32,
    /// How browsers are run.
    pub backend: String,
    /// How many there may be.
    pub slots: u32,
    /// How many may be starting together.
    pub launches_max: u32,
    /// The store's count of this start, if it was told.
    pub boot: Option<u32>,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// In which way it was started; empty where that was not said.
    #[serde(default)]
    pub mark: String,
}

/// The version of this protocol.
pub const VERSION: u32 = 1;

/// Where one browser stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Which.
    #[serde(with = "hex")]
    pub browser: u128,
    /// Larger is newer.
    pub seq: u64,
    /// A word of [`Phase`].
    pub phase: String,
    /// The newest lease that was heard of.
    pub epoch: u32,
    /// Memory in KiB.
    pub mem_kib: u32,
    /// Since when no command has come, in milliseconds.
    pub quiet_ms: u64,
    /// A text of [`CloseReason`].
    pub reason: String,
    /// What it took, with the last heartbeat of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Took>,
}

/// What a browser took in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Took {
    /// Memory at its highest, in KiB.
    pub peak_kib: u32,
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// Commands that came over its pipe.
    pub commands: u64,
    /// Bytes that its pages sent.
    pub sent: u64,
    /// Bytes that its pages received.
    pub received: u64,
}

/// Bounds of the classes of [`Figures::launched`], in milliseconds.
pub const LAUNCH_MS: [u64; 8] = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000];

/// What a host counted since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Browsers that came to draw, by how long that took: up to each of [`LAUNCH_MS`], and above.
    pub launched: Vec<u64>,
    /// How long these took together, in milliseconds.
    pub launch_ms: u64,
    /// Browsers that did not come to that.
    pub failures: u64,
    /// Why the last one did not; none once one did.
    pub failing: Option<String>,
    /// Since a browser showed that it draws or answers; none: never.
    pub drew_ms_ago: Option<u64>,
    /// Browsers that worked and are gone, by a text of [`CloseReason`].
    pub ended: BTreeMap<String, u64>,
    /// Processes that an earlier host had left.
    pub leaked: u64,
    /// What did not leave or come back, by the word of its cause.
    pub egress: BTreeMap<String, u64>,
}

impl From<Heartbeat> for Beat {
    fn from(beat: Heartbeat) -> Beat {
        Beat {
            browser: beat.browser.0,
            seq: beat.seq,
            phase: beat.phase.as_str().to_owned(),
            epoch: beat.epoch.0,
            mem_kib: beat.mem_kib,
            quiet_ms: u64::try_from(beat.quiet.as_millis()).unwrap_or(u64::MAX),
            reason: beat.reason.as_str().to_owned(),
            last: None,
        }
    }
}

impl Beat {
    /// As the lease core knows it; `None` for words that it does not know.
    #[must_use]
    pub fn read(&self) -> Option<Heartbeat> {
        Some(Heartbeat {
            browser: BrowserId(self.browser),
            seq: self.seq,
            phase: phase(&self.phase)?,
            epoch: Epoch(self.epoch),
            mem_kib: self.mem_kib,
            quiet: std::time::Duration::from_millis(self.quiet_ms),
            reason: reason(&self.reason)?,
        })
    }
}

/// Heartbeats of one start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beats {
    /// Which start.
    pub boot: u32,
    /// One of each browser.
    pub beats: Vec<Beat>,
}

impl Beats {
    /// Which start.
    #[must_use]
    pub const fn boot(&self) -> Boot {
        Boot(self.boot)
    }
}

/// All that runs, with the lease that was heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Of which start.
    pub boot: Option<u32>,
    /// Larger is newer.
    pub seq: u64,
    /// When it was made, by the host's clock: for [`Ask::Confirmed`].
    pub made: u64,
    /// Where each stands.
    pub browsers: Vec<Standing>,
    /// The last word of those that have ended since a list was confirmed.
    #[serde(default)]
    pub ended: Vec<Beat>,
}

/// Where one of a list stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Which.
    #[serde(with = "hex")]
    pub browser: u128,
    /// A word of [`Phase`].
    pub phase: String,
    /// The newest lease that was heard of.
    pub epoch: u32,
}

/// What a host answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done; with what was asked for.
    Ok(serde_json::Value),
    /// It was not.
    Error {
        /// A word that programs can rely on.
        code: String,
        /// What a person should know.
        message: String,
    },
}

impl Answer {
    /// Done, and there is nothing to say.
    pub(super) const DONE: Answer = Answer::Ok(serde_json::Value::Null);

    pub(super) fn of<T: Serialize>(value: &T) -> Answer {
        serde_json::to_value(value)
            .map_or_else(|fault| Answer::error("internal", fault), Answer::Ok)
    }

    pub(super) fn error(code: &str, message: impl ToString) -> Answer {
        Answer::Error {
            code: code.to_owned(),
            message: message.to_string(),
        }
    }
}

/// The phase that a word names.
#[must_use]
pub fn phase(word: &str) -> Option<Phase> {
    Phase::ALL.into_iter().find(|phase| phase.as_str() == word)
}

/// The reason that a text names.
#[must_use]
pub fn reason(text: &str) -> Option<CloseReason> {
    CloseReason::ALL
        .into_iter()
        .find(|reason| reason.as_str() == text)
}

/// Reads one frame; `None` when the other end has closed between two.
///
/// # Errors
/// The connection failed, or the frame is longer than [`FRAME_MAX`].
pub async fn read_frame<R: AsyncReadExt + Unpin>(from: &mut R) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len[..1]).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    from.read_exact(&mut len[1..]).await?;
    let len = u32::from_be_bytes(len) as usize;
    if len > FRAME_MAX {
        let text = format!("a frame of {len} bytes: at most {FRAME_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // Grows with what arrives: a length alone takes no memory.
    let mut frame = Vec::new();
    from.take(len as u64).read_to_end(&mut frame).await?;
    if frame.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

/// Writes one frame.
///
/// # Errors
/// The connection failed, or the frame is longer than [`FRAME_MAX`].
pub async fn write_frame<W: AsyncWriteExt + Unpin>(to: &mut W, frame: &[u8]) -> io::Result<()> {
    if frame.len() > FRAME_MAX {
        let text = format!("a frame of {} bytes: at most {FRAME_MAX}", frame.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let len = u32::try_from(frame.len()).map_err(io::Error::other)?;
    to.write_all(&len.to_be_bytes()).await?;
    to.write_all(frame).await?;
    to.flush().await
}

/// Numbers of 128 bits as 32 digits: JSON numbers cannot hold them.
mod hex {
    use super::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{id:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let digits = String::deserialize(from)?;
        let read = Some(digits.as_str())
            .filter(|digits| {
                digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
            .and_then(|digits| u128::from_str_radix(digits, 16).ok());
        read.ok_or_else(|| {
            serde::de::Error::custom(format!("id {digits:?}: 32 hexadecimal digits"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_reads_as_it_was_written() {
        let ask = Ask::Prepare {
            held: Held {
                browser: u128::MAX,
                epoch: 3,
                session: 1,
            },
            keep_alive_ms: 60_000,
            guardrails: None,
        };
        let text = serde_json::to_string(&ask).unwrap();
        assert_eq!(
            text,
            r#"{"ask":"prepare","browser":"ffffffffffffffffffffffffffffffff","epoch":3,"session":"00000000000000000000000000000001","keep_alive_ms":60000,"guardrails":null}"#
        );
        assert_eq!(serde_json::from_str::<Ask>(&text).unwrap(), ask);
        let bad = text.replace("\"00000000", "\"+0000000");
        serde_json::from_str::<Ask>(&bad).unwrap_err();
    }

    #[tokio::test]
    async fn a_length_alone_takes_no_memory() {
        let mut lie: &[u8] = &[0xff, 0xff, 0xff, 0xff, 1];
        let fault = read_frame(&mut lie).await.unwrap_err();
        assert_eq!(fault.kind(), io::ErrorKind::InvalidData);
        let mut short: &[u8] = &[0, 0, 0, 2, 1];
        let fault = read_frame(&mut short).await.unwrap_err();
        assert_eq!(fault.kind(), io::ErrorKind::UnexpectedEof);
        let mut end: &[u8] = &[];
        assert!(read_frame(&mut end).await.unwrap().is_none());
    }
}
