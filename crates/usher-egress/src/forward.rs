//! One request to a server and its answer back, both ways at the same time: a server may answer
//! before it has read everything.
//!
//! Messages are read and written by the same codec as the fronts', so that nothing which two
//! readers could understand differently passes in either direction.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use usher_edge::http1::{
    Asked, BodyDecoder, BodyEncoder, BodyEvent, BodyFault, BodyLength, EncodeFault, Field, Parsed,
    RequestHead, ResponseHead, ResponseKind, end_head, parse_response, write_field, write_framing,
    write_request_line, write_status_line,
};

use crate::cause::Cause;
use crate::client::{Client, LIMITS, gone};
use crate::dial::Upstream;
use crate::exit::Inner;
use crate::inbox::Inbox;
use crate::meter::{Pulse, Way};

/// Interim answers that may come before the answer.
const INTERIM_MAX: usize = 16;

/// A request in the form in which a server gets it.
pub(crate) struct Request {
    head: Vec<u8>,
    body: BodyLength,
    asked: Asked,
    keep_alive: bool,
    repeatable: bool,
}

impl Request {
    /// Writes anew what `head` says: the path alone, `Host` from the target, and every field that
    /// is not meant for this proxy, in its order.
    pub(crate) fn new(head: &RequestHead, bytes: &[u8]) -> Result<Request, EncodeFault> {
        let mut out = Vec::with_capacity(head.len + 64);
        write_request_line(&mut out, head.method_name.of(bytes), head.path(bytes))?;
        write_field(&mut out, b"Host", head.authority.of(bytes))?;
        if head.websocket {
            out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
        } else {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        fields(&mut out, head.fields.iter(), bytes)?;
        write_framing(&mut out, head.body);
        end_head(&mut out);
        Ok(Request {
            head: out,
            body: head.body,
            asked: Asked {
                method: head.method,
                websocket: head.websocket,
            },
            keep_alive: head.keep_alive,
            repeatable: head.method.is_idempotent() && head.body == BodyLength::Empty,
        })
    }

    /// Whether it may be sent a second time.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }
}

fn fields<'a>(
    out: &mut Vec<u8>,
    list: impl Iterator<Item = &'a Field>,
    bytes: &[u8],
) -> Result<(), EncodeFault> {
    for field in list.filter(|field| field.forwarded) {
        write_field(out, field.name.of(bytes), field.value.of(bytes))?;
    }
    Ok(())
}

/// What is left when an answer is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Both connections.
    Keep,
    /// The browser's.
    KeepClient,
    /// None.
    Close,
    /// Both, as a tunnel.
    Tunnel,
}

/// An exchange that broke.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    /// `None`: the browser left.
    pub(crate) cause: Option<Cause>,
    /// The head of an answer went out, so no other can.
    pub(crate) answered: bool,
    touched: bool,
}

impl Failure {
    /// Whether the server closed without having said anything.
    pub(crate) fn is_untouched(&self) -> bool {
        let closed = matches!(self.cause, Some(Cause::Empty | Cause::Connect));
        closed && !self.touched
    }
}

/// How far both directions are. Written and read by one task.
#[derive(Default)]
struct Progress {
    sent: AtomicBool,
    touched: AtomicBool,
    answered: AtomicBool,
}

fn set(flag: &AtomicBool) {
    flag.store(true, Ordering::Relaxed);
}

/// Sends `request`, whose head was taken from the client's inbox already, and passes the answer on.
pub(crate) async fn exchange<R, W>(
    client: &mut Client<R, W>,
    request: &Request,
    upstream: &mut Upstream,
    exit: &Inner,
) -> Result<After, Failure>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let progress = Progress::default();
    let pulse = Pulse::new();
    let course = Course {
        request,
        exit,
        pulse: &pulse,
        progress: &progress,
    };
    let outcome = {
        let mut send =
            pin!(course.send(&mut client.inbox, &mut client.reader, &mut upstream.writer));
        let mut receive = pin!(course.receive(
            &mut upstream.inbox,
            &mut upstream.reader,
            &mut client.writer
        ));
        let both = async {
            tokio::select! {
                biased;
                answer = &mut receive => answer,
                stop = &mut send => match stop {
                    Stop::Client => Err(None),
                    Stop::Because(cause) => Err(Some(cause)),
                    // It may have answered before it stopped to read.
                    Stop::Server => receive.await,
                },
            }
        };
        let deadlines = &exit.shared.deadlines;
        tokio::select! {
            biased;
            outcome = both => outcome,
            () = pulse.stops(deadlines.idle, deadlines.lifetime) => Err(Some(Cause::Silent)),
        }
    };
    let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    match outcome {
        Ok(Answered::Switched) => Ok(After::Tunnel),
        Ok(Answered::Whole { client, server }) => {
            Ok(match (client && is(&progress.sent), server) {
                (true, true) => After::Keep,
                (true, false) => After::KeepClient,
                (false, _) => After::Close,
            })
        }
        Err(cause) => Err(Failure {
            cause,
            answered: is(&progress.answered),
            touched: is(&progress.touched),
        }),
    }
}

/// Why nothing more is sent.
enum Stop {
    /// The browser left.
    Client,
    /// The server takes no more.
    Server,
    Because(Cause),
}

/// What came of an answer.
enum Answered {
    /// All of it; who takes another exchange.
    Whole {
        client: bool,
        server: bool,
    },
    Switched,
}

#[derive(Clone, Copy)]
struct Course<'a> {
    request: &'a Request,
    exit: &'a Inner,
    pulse: &'a Pulse,
    progress: &'a Progress,
}

impl Course<'_> {
    /// Sends, and then watches the browser: when it leaves, its answer is no longer wanted.
    async fn send<R, W>(self, inbox: &mut Inbox, reader: &mut R, writer: &mut W) -> Stop
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let head = &self.request.head;
        if let Err(cause) = self.exit.take(Way::Out, head.len()) {
            return Stop::Because(cause);
        }
        if writer.write_all(head).await.is_err() {
            return Stop::Server;
        }
        let body = self.request.body;
        match self.pass(body, Way::Out, inbox, reader, writer).await {
            Ok(()) => {}
            Err(Broken::Source | Broken::Framing(BodyFault::Truncated)) => return Stop::Client,
            Err(Broken::Sink) => return Stop::Server,
            Err(Broken::Framing(_)) => return Stop::Because(Cause::Malformed),
            Err(Broken::Limit(cause)) => return Stop::Because(cause),
        }
        set(&self.progress.sent);
        gone(inbox, reader).await;
        Stop::Client
    }

    /// Passes the answer on. `Err(None)`: the browser takes no more.
    async fn receive<R, W>(
        self,
        inbox: &mut Inbox,
        reader: &mut R,
        writer: &mut W,
    ) -> Result<Answered, Option<Cause>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut head = ResponseHead::new();
        let mut interims = 0;
        loop {
            self.response_head(&mut head, inbox, reader).await?;
            let text = self.written(&head, inbox.filled());
            let text = text.map_err(|_| Some(Cause::Answer))?;
            self.exit.take(Way::In, head.len)?;
            inbox.consume(head.len);
            if head.kind != ResponseKind::Interim {
                set(&self.progress.answered);
            }
            writer.write_all(&text).await.map_err(|_| None)?;
            match head.kind {
                ResponseKind::Interim if interims == INTERIM_MAX => {
                    return Err(Some(Cause::Answer));
                }
                ResponseKind::Interim => interims += 1,
                ResponseKind::Switching => return Ok(Answered::Switched),
                ResponseKind::Final => break,
            }
        }
        match self.pass(head.body, Way::In, inbox, reader, writer).await {
            Ok(()) => Ok(Answered::Whole {
                client: self.request.keep_alive && head.body != BodyLength::UntilClose,
                server: head.keep_alive,
            }),
            Err(Broken::Sink) => Err(None),
            Err(Broken::Source | Broken::Framing(BodyFault::Truncated)) => Err(Some(Cause::Cut)),
            Err(Broken::Framing(_)) => Err(Some(Cause::Answer)),
            Err(Broken::Limit(cause)) => Err(Some(cause)),
        }
    }

    async fn response_head<R: AsyncRead + Unpin>(
        self,
        head: &mut ResponseHead,
        inbox: &mut Inbox,
        reader: &mut R,
    ) -> Result<(), Cause> {
        loop {
            match parse_response(inbox.filled(), &LIMITS, self.request.asked, head) {
                Ok(Parsed::Complete) => return Ok(()),
                Ok(Parsed::Partial) => {}
                Err(_) => return Err(Cause::Answer),
            }
            let began = !inbox.filled().is_empty();
            match inbox.fill(reader).await {
                Ok(0) if began => return Err(Cause::Cut),
                Ok(0) => return Err(Cause::Empty),
                Ok(_) => {
                    set(&self.progress.touched);
                    self.pulse.beat();
                }
                Err(_) => return Err(Cause::Connect),
            }
        }
    }

    /// The head as the browser gets it.
    fn written(self, head: &ResponseHead, bytes: &[u8]) -> Result<Vec<u8>, EncodeFault> {
        let mut out = Vec::with_capacity(head.len + 64);
        write_status_line(&mut out, head.status, head.reason.of(bytes))?;
        fields(&mut out, head.fields.iter(), bytes)?;
        match head.kind {
            ResponseKind::Interim => {}
            ResponseKind::Switching => {
                out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n");
            }
            ResponseKind::Final => {
                match (head.body, head.content_length) {
                    // What `HEAD` and 304 announce is the length of a body that does not follow.
                    (BodyLength::Empty, Some(length)) if head.status != 204 => {
                        write_framing(&mut out, BodyLength::Exactly(length));
                    }
                    (body, _) => write_framing(&mut out, body),
                }
                if head.body == BodyLength::UntilClose || !self.request.keep_alive {
                    out.extend_from_slice(b"connection: close\r\n");
                }
            }
        }
        end_head(&mut out);
        Ok(out)
    }

    /// Passes a body on, piece by piece as it comes.
    async fn pass<R, W>(
        self,
        length: BodyLength,
        way: Way,
        inbox: &mut Inbox,
        reader: &mut R,
        writer: &mut W,
    ) -> Result<(), Broken>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut decoder = BodyDecoder::new(length, &LIMITS);
        let mut encoder = BodyEncoder::new(length);
        let mut framed = Vec::new();
        loop {
            let (used, event) = decoder.decode(inbox.filled()).map_err(Broken::Framing)?;
            match event {
                BodyEvent::Data(range) => {
                    let data = &inbox.filled()[range];
                    let frame = encoder.frame(data.len()).map_err(|_| Broken::Source)?;
                    self.exit.take(way, data.len()).map_err(Broken::Limit)?;
                    let written = if encoder.is_bare() {
                        writer.write_all(data).await
                    } else {
                        framed.clear();
                        framed.extend_from_slice(frame.before());
                        framed.extend_from_slice(data);
                        framed.extend_from_slice(frame.after());
                        writer.write_all(&framed).await
                    };
                    written.map_err(|_| Broken::Sink)?;
                    inbox.consume(used);
                    self.pulse.beat();
                }
                BodyEvent::NeedMore => {
                    inbox.consume(used);
                    match inbox.fill(reader).await {
                        Ok(0) => return decoder.eof().map_err(Broken::Framing),
                        Ok(_) => self.pulse.beat(),
                        Err(_) => return Err(Broken::Source),
                    }
                }
                BodyEvent::End => {
                    framed.clear();
                    let ended = encoder.finish(decoder.trailers(), &mut framed);
                    ended.map_err(|_| Broken::Source)?;
                    inbox.consume(used);
                    return writer.write_all(&framed).await.map_err(|_| Broken::Sink);
                }
            }
        }
    }
}

/// Why a body ended before its end.
enum Broken {
    Source,
    Sink,
    Framing(BodyFault),
    Limit(Cause),
}
