//! The socket of a host, and one task for each connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};

use super::keeper::Order;
use super::wire::{Answer, Ask, Beats, Held, read_frame, write_frame};
use super::{Asked, Ear, draw, drawn};

/// Connections at one time. Lent browsers have one each, and their number is bounded by the slots.
const CONNECTIONS_MAX: usize = 4096;
/// Questions that are being answered at one time.
pub(super) const ANSWERS_MAX: u32 = 1024;
/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Takes connections for as long as it is let.
pub(super) async fn accept(
    listener: UnixListener,
    asked: mpsc::Sender<Asked>,
    beats: broadcast::Sender<Arc<Beats>>,
    answers: Arc<Semaphore>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a broker's connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !is_ours(&stream) {
            continue;
        }
        let visit = Visit {
            stream,
            asked: asked.clone(),
            beats: beats.clone(),
            answers: answers.clone(),
        };
        tokio::spawn(async move {
            if let Err(error) = visit.serve().await {
                tracing::debug!(%error, "a broker's connection ended");
            }
            drop(permit);
        });
    }
}

/// The folder keeps others out; this holds should somebody open it.
fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own || peer.uid() == 0 => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "a connection of another user was refused");
            false
        }
        Err(_) => false,
    }
}

struct Visit {
    stream: UnixStream,
    asked: mpsc::Sender<Asked>,
    beats: broadcast::Sender<Arc<Beats>>,
    /// One of these is held until an answer is written: a host that ends waits for them.
    answers: Arc<Semaphore>,
}

impl Visit {
    async fn serve(mut self) -> io::Result<()> {
        while let Some(frame) = read_frame(&mut self.stream).await? {
            let ask = match serde_json::from_slice::<Ask>(&frame) {
                Ok(ask) => ask,
                Err(fault) => {
                    self.say(&Answer::error("malformed", fault)).await?;
                    continue;
                }
            };
            drop(frame);
            match ask {
                Ask::Watch => return self.watch().await,
                Ask::Connect { held } => match self.ear(held).await? {
                    Ok(ear) => return self.connect(ear).await,
                    Err(refusal) => self.say(&refusal).await?,
                },
                Ask::Touch { held } => {
                    let answer = match self.ear(held).await? {
                        Ok(ear) => {
                            // A browser that is full of orders is not idle.
                            let _ = ear.orders.try_send(Order::Touch);
                            Answer::DONE
                        }
                        Err(refusal) => refusal,
                    };
                    self.say(&answer).await?;
                }
                Ask::Screenshot { held, order } => match self.ear(held).await? {
                    Ok(ear) => {
                        let (order, picture) = draw(order);
                        ear.orders.send(order).await.map_err(|_| ended())?;
                        self.picture(picture).await?;
                    }
                    Err(refusal) => self.say(&refusal).await?,
                },
                plain => {
                    let (to, answer) = oneshot::channel();
                    let _written = self.answers.clone().acquire_owned().await;
                    self.asked
                        .send(Asked::Plain(plain, to))
                        .await
                        .map_err(|_| ended())?;
                    let answer = answer.await.map_err(|_| ended())?;
                    self.say(&answer).await?;
                }
            }
        }
        Ok(())
    }

    async fn say(&mut self, answer: &Answer) -> io::Result<()> {
        write_frame(&mut self.stream, &serde_json::to_vec(answer)?).await
    }

    async fn ear(&mut self, held: Held) -> io::Result<Result<Ear, Answer>> {
        let (to, answer) = oneshot::channel();
        self.asked
            .send(Asked::Ear(held, to))
            .await
            .map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }

    async fn connect(mut self, ear: Ear) -> io::Result<()> {
        self.say(&Answer::Ok(ear.guardrails)).await?;
        ear.orders
            .send(Order::Lend(self.stream))
            .await
            .map_err(|_| ended())
    }

    /// Waits for the picture, or for the broker to hang up: then nobody wants it.
    async fn picture(
        &mut self,
        mut picture: oneshot::Receiver<Result<Vec<u8>, crate::page::PageFault>>,
    ) -> io::Result<()> {
        let result = tokio::select! {
            result = &mut picture => result,
            () = hung_up(&self.stream) => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let Ok(result) = result else {
            return self
                .say(&Answer::error("gone", "the browser has ended"))
                .await;
        };
        let (answer, picture) = drawn(result);
        self.say(&answer).await?;
        match picture {
            Some(picture) => write_frame(&mut self.stream, &picture).await,
            None => Ok(()),
        }
    }

    async fn watch(mut self) -> io::Result<()> {
        let mut beats = self.beats.subscribe();
        self.say(&Answer::DONE).await?;
        loop {
            let told = tokio::select! {
                told = beats.recv() => told,
                () = hung_up(&self.stream) => return Ok(()),
            };
            match told {
                Ok(told) => write_frame(&mut self.stream, &serde_json::to_vec(&*told)?).await?,
                // Newer ones follow.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Ok(()),
            }
        }
    }
}

/// Waits until the other end has closed. Bytes that it sends meanwhile are not expected, and count
/// as that.
pub(super) async fn hung_up(stream: &UnixStream) {
    // That it was readable once may be old news.
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the host has ended")
}
