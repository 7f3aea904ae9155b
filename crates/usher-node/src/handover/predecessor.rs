//! The new process's side: take the estate, say when it is ready.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::time::Duration;

use usher_core::time::Wall;

use super::line::Line;
use super::{Bequest, Estate, GREETING, HandoverError, PATIENCE, VARIABLE, verdict};
use crate::listeners::Part;

/// How long to wait for the old process to let go. It has nothing to do before that.
const RELEASE: Duration = Duration::from_secs(5);

/// The process whose place this one takes.
#[derive(Debug)]
pub struct Predecessor(Line);

impl Predecessor {
    /// The process that started this one to take its place, and what it leaves; `None` for a
    /// process that was started in any other way. Blocks for as long as the other takes to tell.
    ///
    /// # Errors
    /// It is not to be understood.
    pub fn meet() -> Result<Option<(Predecessor, Estate)>, HandoverError> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        // Standard input itself stays open until this process serves: its end is how the other
        // one learns that this one has ended.
        let line = io::stdin().as_fd().try_clone_to_owned();
        let line = Line::of(line.map_err(HandoverError::Line)?);
        line.bound(PATIENCE).map_err(|_| HandoverError::NoLine)?;
        let estate = estate(&line)?;
        Ok(Some((Predecessor(line), estate)))
    }

    /// Tells it that this process is coming up, and will be ready within that time.
    pub fn starting(&self, ready_within: Duration) {
        // Whether it still wants to know is seen when there is something to tell.
        let _gone = self
            .0
            .send(&format!("starting {}", ready_within.as_millis()), &[]);
    }

    /// Tells it that this process serves from now on, on the listeners of the estate with these
    /// numbers.
    ///
    /// # Errors
    /// It does not listen any more, and goes on by itself.
    pub(crate) fn ready(&self, taken: &[usize]) -> Result<(), HandoverError> {
        let numbers = taken.iter().map(|number| format!(" {number}"));
        let word = format!("ready{}", numbers.collect::<String>());
        self.0.send(&word, &[]).map_err(|_| HandoverError::Unwanted)
    }

    /// Waits until it has let go of what there is only one of. Blocks.
    pub fn released(self) {
        let heard = self.0.bound(RELEASE).and_then(|()| self.0.receive());
        if let Err(error) = heard {
            tracing::debug!(%error, "the process before this one did not say that it let go");
        }
        // Not to be left open: it would keep the line from ending when this process hands over.
        if let Ok(nothing) = File::open("/dev/null") {
            let _kept = rustix::stdio::dup2_stdin(nothing);
        }
    }
}

pub(super) fn estate(line: &Line) -> Result<Estate, HandoverError> {
    let mut estate = Estate::default();
    let mut greeted = false;
    let mut unread = 0;
    loop {
        let packet = match line.receive() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Err(HandoverError::Unwanted),
            Err(_) if !greeted => return Err(HandoverError::NoLine),
            Err(error) => return Err(HandoverError::Line(error)),
        };
        if !greeted {
            greeted = packet.text == GREETING;
            if greeted {
                continue;
            }
            return Err(HandoverError::NoLine);
        }
        let sockets = packet.descriptors.into_iter().map(TcpListener::from);
        let mut lines = packet.text.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        match words.next().unwrap_or_default() {
            "listener" => {
                let number = words.next().and_then(|number| number.parse().ok());
                let part = words.next().and_then(Part::of_word);
                let wanted = words.next().and_then(|address| address.parse().ok());
                // One of a kind that this build does not know stays with the other process.
                if let (Some(number), Some(part), Some(wanted)) = (number, part, wanted) {
                    let known = estate.listeners.iter_mut();
                    match known.rev().find(|listener| listener.number == number) {
                        Some(listener) => listener.sockets.extend(sockets),
                        None => estate.listeners.push(Bequest {
                            number,
                            part,
                            wanted,
                            sockets: sockets.collect(),
                        }),
                    }
                }
            }
            "known" => {
                for line in lines {
                    match verdict::read(line) {
                        Some(known) => estate.known.push(known),
                        None => unread += 1,
                    }
                }
            }
            "drains" => {
                let read = |line: &str| {
                    let (endpoint, began) = line.split_once('\t')?;
                    let began = Wall::from_millis(began.parse().ok()?);
                    Some((endpoint.parse().ok()?, began))
                };
                estate.drains.extend(lines.filter_map(read));
            }
            "addresses" => {
                for line in lines {
                    let mut fields = line.split('\t');
                    let host = fields.next().unwrap_or_default().to_owned();
                    let addresses: Vec<_> = fields.filter_map(|ip| ip.parse().ok()).collect();
                    if !addresses.is_empty() {
                        estate.addresses.push((host, addresses));
                    }
                }
            }
            "rooms" => {
                let clock = words.next().and_then(|clock| clock.parse().ok());
                estate.rooms_clock = clock.unwrap_or(0);
            }
            "sign-ins" => estate.sign_ins.extend(lines.map(str::to_owned)),
            "end" => break,
            _ => {}
        }
    }
    if unread > 0 {
        tracing::warn!(
            unread,
            "verdicts of the process before this one cannot be read"
        );
    }
    Ok(estate)
}
