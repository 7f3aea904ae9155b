//! A broker's end of the socket.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::door::hung_up;
use super::wire::{Answer, Ask, Beats, Held, read_frame, write_frame};
use crate::page::Screenshot;

/// Why a host did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CallerFault {
    /// There is no host, or it went away.
    #[error("browser host")]
    Io(#[from] io::Error),
    /// It said something else than this version of us understands.
    #[error("the browser host's answer cannot be read")]
    Json(#[from] serde_json::Error),
    /// It refused.
    #[error("{message}")]
    Refused {
        /// A word that programs can rely on.
        code: String,
        /// What a person should know.
        message: String,
    },
}

/// A connection to a host. One question at a time.
#[derive(Debug)]
pub struct Caller {
    stream: UnixStream,
}

impl Caller {
    /// Connects to the host whose socket is at `path`.
    ///
    /// # Errors
    /// There is none, or not for us.
    pub async fn connect(path: &Path) -> io::Result<Caller> {
        let stream = UnixStream::connect(path).await?;
        Ok(Caller { stream })
    }

    /// Asks something that has a plain answer.
    ///
    /// # Errors
    /// See [`CallerFault`].
    pub async fn ask<T: DeserializeOwned>(&mut self, ask: &Ask) -> Result<T, CallerFault> {
        write_frame(&mut self.stream, &serde_json::to_vec(ask)?).await?;
        match serde_json::from_slice(&self.frame().await?)? {
            Answer::Ok(value) => Ok(serde_json::from_value(value)?),
            Answer::Error { code, message } => Err(CallerFault::Refused { code, message }),
        }
    }

    /// The pipe of the browser that `held` is a lease on: messages with a zero byte after each. And
    /// what its session may reach, as it was told when it was prepared.
    ///
    /// # Errors
    /// See [`CallerFault`].
    pub async fn pipe(
        mut self,
        held: Held,
    ) -> Result<(UnixStream, serde_json::Value), CallerFault> {
        let guardrails = self.ask(&Ask::Connect { held }).await?;
        Ok((self.stream, guardrails))
    }

    /// A picture of one page. Dropping it before it is there gives the order up.
    ///
    /// # Errors
    /// See [`CallerFault`].
    pub async fn screenshot(
        mut self,
        held: Held,
        order: Screenshot,
    ) -> Result<Vec<u8>, CallerFault> {
        let order = Box::new(order);
        let _: usize = self.ask(&Ask::Screenshot { held, order }).await?;
        self.frame().await
    }

    /// Waits until the host has gone. Not while it is asked something.
    pub async fn gone(&self) {
        hung_up(&self.stream).await;
    }

    /// Heartbeats from here on.
    ///
    /// # Errors
    /// See [`CallerFault`].
    pub async fn watch(mut self) -> Result<Watching, CallerFault> {
        let () = self.ask(&Ask::Watch).await?;
        Ok(Watching { caller: self })
    }

    async fn frame(&mut self) -> Result<Vec<u8>, CallerFault> {
        let frame = read_frame(&mut self.stream).await?;
        Ok(frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?)
    }
}

/// A connection that heartbeats come over.
#[derive(Debug)]
pub struct Watching {
    caller: Caller,
}

impl Watching {
    /// The next ones. Dropping it while it waits may lose the place in the stream: keep it waiting,
    /// or connect anew.
    ///
    /// # Errors
    /// See [`CallerFault`].
    pub async fn next(&mut self) -> Result<Beats, CallerFault> {
        Ok(serde_json::from_slice(&self.caller.frame().await?)?)
    }
}
