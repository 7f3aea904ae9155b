//! The old process's side: start the new one, give it the estate, hear whether it is ready.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::line::{DESCRIPTORS_MAX, Line, PACKET_MAX};
use super::{Bequest, Estate, GREETING, HandoverError, PATIENCE, Program, VARIABLE, verdict};

/// What the new process may need beyond the time in which, it says, it is ready.
const MARGIN: Duration = Duration::from_secs(10);

/// A process that has been started to take this one's place.
#[derive(Debug)]
pub struct Successor {
    pid: u32,
    call: Arc<Call>,
    outcome: oneshot::Receiver<Result<Heir, HandoverError>>,
}

/// A process that has taken this one's place.
#[derive(Debug)]
pub struct Heir {
    pid: u32,
    /// Numbers of the listeners of the estate that it listens on.
    taken: Vec<usize>,
    call: Arc<Call>,
}

#[derive(Debug)]
struct Call {
    line: Line,
    off: AtomicBool,
}

impl Successor {
    /// Starts `program` and gives it `estate`, on a thread of its own.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(program: &Program, estate: Estate) -> Result<Successor, HandoverError> {
        let (line, theirs) = Line::pair().map_err(HandoverError::Line)?;
        line.bound(PATIENCE).map_err(HandoverError::Line)?;
        let start = |source| HandoverError::Start {
            path: program.path.clone(),
            source,
        };
        let mut command = program.command();
        command.stdin(Stdio::from(theirs)).env(VARIABLE, "1");
        let mut child = command.spawn().map_err(start)?;
        // It holds a duplicate of the other end, which would keep the line open.
        drop(command);
        let (pid, off) = (child.id(), AtomicBool::new(false));
        let call = Arc::new(Call { line, off });
        let (tell, outcome) = oneshot::channel();
        let of_thread = Arc::clone(&call);
        let thread = thread::Builder::new().name("hand-over".to_owned());
        let spawned = thread.spawn(move || {
            let settled = settle(&of_thread, &mut child, &estate);
            drop(estate);
            let follows = settled.is_ok();
            let _gone = tell.send(settled.map(|taken| Heir {
                pid,
                taken,
                call: of_thread,
            }));
            if follows && let Ok(status) = child.wait() {
                let ended = "the process that followed this one has ended";
                if status.success() {
                    tracing::info!(pid, "{ended}");
                } else {
                    tracing::error!(pid, %status, "{ended}");
                }
            }
        });
        spawned.map_err(start)?;
        Ok(Successor { pid, call, outcome })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it serves or has failed. Not to be called again after that.
    ///
    /// # Errors
    /// It does not serve and has ended; this process is as it was before.
    pub async fn settled(&mut self) -> Result<Heir, HandoverError> {
        let gone = |_| Err(HandoverError::CalledOff);
        (&mut self.outcome).await.unwrap_or_else(gone)
    }

    /// Makes it fail, unless it serves already; [`Successor::settled`] says which.
    pub fn call_off(&self) {
        self.call.off.store(true, Ordering::Relaxed);
        self.call.line.hang_up();
    }
}

impl Heir {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it listens on that listener of the estate.
    pub(crate) fn listens(&self, number: usize) -> bool {
        self.taken.contains(&number)
    }

    /// Tells it that whatever there is only one of (the pid file, the service manager's attention)
    /// is its own now.
    pub(crate) fn release(&self) {
        if let Err(error) = self.call.line.send("yours", &[]) {
            tracing::debug!(%error, "the new process does not wait for the pid file");
        }
    }
}

/// Gives everything, waits for the answer, and ends a process that has failed.
fn settle(call: &Call, child: &mut Child, estate: &Estate) -> Result<Vec<usize>, HandoverError> {
    let answer = give(&call.line, estate).and_then(|()| answer(&call.line));
    let failed = match answer {
        Ok(Answer::Ready(taken)) => return Ok(taken),
        Ok(Answer::Ended) => None,
        Ok(Answer::Late) => Some(HandoverError::Late),
        // Who ends early breaks the line; why it ended says more.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            None
        }
        Err(error) => Some(HandoverError::Line(error)),
    };
    call.line.hang_up();
    // Does nothing to one that has ended. It has accepted nothing, so nothing is lost with it.
    let _ = child.kill();
    let status = child.wait().map_err(HandoverError::Line)?;
    Err(match failed {
        _ if call.off.load(Ordering::Relaxed) => HandoverError::CalledOff,
        Some(error) => error,
        None => HandoverError::Ended(status),
    })
}

fn give(line: &Line, estate: &Estate) -> io::Result<()> {
    line.send(GREETING, &[])?;
    for listener in &estate.listeners {
        let Bequest {
            number,
            part,
            wanted,
            sockets,
        } = listener;
        let descriptors: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        let packet = format!("listener {number} {} {wanted}", part.word());
        let mut pieces = descriptors.chunks(DESCRIPTORS_MAX);
        pieces.try_for_each(|piece| line.send(&packet, piece))?;
    }
    list(line, "known", estate.known.iter().map(verdict::write))?;
    let drains = estate.drains.iter();
    let drains = drains.map(|(endpoint, began)| format!("{endpoint}\t{}", began.as_millis()));
    list(line, "drains", drains)?;
    let addresses = estate.addresses.iter().map(|(host, addresses)| {
        let addresses = addresses.iter().map(|address| format!("\t{address}"));
        format!("{host}{}", addresses.collect::<String>())
    });
    list(line, "addresses", addresses)?;
    line.send(&format!("rooms {}", estate.rooms_clock), &[])?;
    list(line, "sign-ins", estate.sign_ins.iter().cloned())?;
    line.send("end", &[])
}

/// Sends lines under a word that says what they are, as many packets as it takes.
fn list(line: &Line, word: &str, lines: impl Iterator<Item = String>) -> io::Result<()> {
    let mut packet = word.to_owned();
    for text in lines {
        if packet.len() + 1 + text.len() > PACKET_MAX {
            line.send(&packet, &[])?;
            packet.truncate(word.len());
        }
        packet.push('\n');
        packet.push_str(&text);
    }
    line.send(&packet, &[])
}

enum Answer {
    Ready(Vec<usize>),
    Ended,
    Late,
}

fn answer(line: &Line) -> io::Result<Answer> {
    let mut late = false;
    loop {
        let packet = match line.receive() {
            Ok(Some(packet)) => packet,
            Ok(None) if late => return Ok(Answer::Late),
            Ok(None) => return Ok(Answer::Ended),
            // Its word may be there this very moment: after this it is, or cannot come.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !late => {
                late = true;
                line.hang_up();
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut words = packet.text.split(' ');
        match words.next() {
            Some("starting") => {
                let millis = words.next().and_then(|millis| millis.parse().ok());
                let millis = Duration::from_millis(millis.unwrap_or(0));
                line.bound(millis.saturating_add(MARGIN).max(PATIENCE))?;
            }
            Some("ready") => {
                let taken = words.filter_map(|number| number.parse().ok());
                return Ok(Answer::Ready(taken.collect()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> (Line, Line) {
        let (ours, theirs) = Line::pair().expect("a pair");
        (ours, Line::of(theirs))
    }

    #[test]
    fn who_is_late_cannot_become_ready_any_more() {
        let (ours, theirs) = lines();
        ours.bound(Duration::from_millis(10)).expect("bounded");
        assert!(matches!(answer(&ours), Ok(Answer::Late)));
        assert!(theirs.send("ready 0", &[]).is_err());
    }

    #[test]
    fn words_of_another_version_are_passed_over() {
        let (ours, theirs) = lines();
        for word in ["starting 10", "warming 3", "starting soon", "ready 2 x 0"] {
            theirs.send(word, &[]).expect("sent");
        }
        assert!(matches!(answer(&ours), Ok(Answer::Ready(taken)) if taken == [2, 0]));
    }

    #[test]
    fn many_sockets_and_verdicts_take_several_packets() {
        use std::net::TcpListener;

        use usher_core::engine::Known;
        use usher_core::health::{FailureReason, Standing};
        use usher_core::id::{Id, Kind};
        use usher_core::time::Wall;

        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let wanted = socket.local_addr().expect("bound");
        let sockets = (0..2 * DESCRIPTORS_MAX + 1).map(|_| socket.try_clone().expect("a clone"));
        let known = |number: usize| Known {
            endpoint: Id::derive("default", Kind::Endpoint, &number.to_string()),
            monitor: Id::derive("default", Kind::Monitor, "web"),
            kind: "tcp",
            probe: 7,
            standing: Standing::Up { fails: 1 },
            last: None,
            failure: FailureReason::None,
            due_in: None,
        };
        let estate = Estate {
            listeners: vec![Bequest {
                number: 3,
                part: crate::listeners::Part::Https,
                wanted,
                sockets: sockets.collect(),
            }],
            known: (0..5000).map(known).collect(),
            drains: vec![(
                Id::derive("default", Kind::Endpoint, "a"),
                Wall::from_millis(1_790_000_000_123),
            )],
            addresses: vec![(
                "a.example.com".to_owned(),
                vec![wanted.ip(), [192, 0, 2, 1].into()],
            )],
            rooms_clock: 1_790_000_000_456,
            sign_ins: vec!["a".repeat(PACKET_MAX / 4); 9],
        };
        let (ours, theirs) = lines();
        let given = thread::scope(|scope| {
            let taken = scope.spawn(|| super::super::predecessor::estate(&theirs));
            give(&ours, &estate).expect("given");
            taken.join().expect("no panic").expect("taken")
        });
        let [listener] = &given.listeners[..] else {
            panic!("one listener: {:?}", given.listeners)
        };
        assert_eq!((listener.number, listener.wanted), (3, wanted));
        assert_eq!(listener.sockets.len(), 2 * DESCRIPTORS_MAX + 1);
        assert_eq!(given.known, estate.known);
        assert_eq!(given.drains, estate.drains);
        assert_eq!(given.addresses, estate.addresses);
        assert_eq!(given.rooms_clock, estate.rooms_clock);
        assert_eq!(given.sign_ins, estate.sign_ins);
    }
}
