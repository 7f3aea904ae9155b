//! Moves the bytes of one exchange both ways, in one task and without a queue between the sides.
//!
//! [`Pump`] lends what one side read to the other side's writer, and a side that takes no more
//! stops the other. It knows one deadline: how long nothing may move, which depends on whose turn
//! it is. Where nobody has to see the bytes of a long body they do not pass through here at all, but
//! through a [`Pipe`]; counts, deadlines and ends are the same. It never connects, repeats or
//! answers by itself; it says how it [`Ended`].

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::body::Next;
use super::changes::{AnswerChanges, Changes};
use super::client::{Client, ClientFault};
use super::deadline::Deadline;
use super::refusal::Failure;
use super::rooms::visit::Visit;
use super::settings::Timeouts;
use super::splice::{Broken, Pipe, Pipes, Step};
use super::upstream::{Deaf, Unanswered, Upstream};
use crate::http1::ResponseKind;

/// Bodies longer or shorter than announced, and the like: what must not happen.
pub(crate) const INTERNAL: Failure = Failure::new(500, "internal");

/// How the bytes of an exchange came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All of the answer is out.
    Answered {
        /// The endpoint's connection can serve another request.
        reusable: bool,
    },
    /// 101 is out.
    Switched,
    /// A tunnel was there and is over.
    Tunnelled,
    /// The endpoint closed the connection before the first byte of an answer.
    Silent {
        /// It said that it did nothing with the request.
        untouched: bool,
    },
    /// No head of an answer reached the client: it gets a page.
    Failed(Failure),
    /// The head is out already, the rest will not come.
    Cut(&'static str),
    /// The client has left.
    Gone,
}

impl From<ClientFault> for Ended {
    fn from(fault: ClientFault) -> Ended {
        match fault {
            ClientFault::Malformed(word) => Ended::Failed(Failure::new(400, word)),
            ClientFault::Gone => Ended::Gone,
        }
    }
}

impl From<Unanswered> for Ended {
    fn from(fault: Unanswered) -> Ended {
        match fault {
            Unanswered::Silent => Ended::Silent { untouched: false },
            Unanswered::Untouched => Ended::Silent { untouched: true },
            Unanswered::Failed(failure) => Ended::Failed(failure),
        }
    }
}

/// Where the request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Its body is on the way.
    Body,
    /// All of it is queued.
    Flushing,
    /// All of it is out.
    Done,
    /// The endpoint takes no more; it may still answer.
    Abandoned,
}

/// Where the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answering {
    Head,
    /// An interim answer is queued.
    Interim,
    /// A 101 is queued.
    Switching,
    Body,
    /// All of it is queued.
    Flushing,
}

/// Moves the bytes of one exchange, as far as either side is ready, each time it is polled.
pub(crate) struct Pump<'a, 'v, C, U> {
    pub(crate) client: &'a mut C,
    pub(crate) upstream: &'a mut U,
    pub(crate) pipes: &'a Pipes,
    /// What the rest of the request body goes through, once it does.
    pub(crate) request_pipe: Option<Pipe>,
    /// And that of the answer.
    pub(crate) answer_pipe: Option<Pipe>,
    pub(crate) timeouts: &'a Timeouts,
    pub(crate) deadline: &'a mut Deadline,
    pub(crate) sending: Sending,
    /// Whether all of the request is queued.
    pub(crate) finished: &'a mut bool,
    pub(crate) answering: Answering,
    pub(crate) expects: bool,
    /// It is the client's turn: to send more of the request, or to take more of the answer.
    pub(crate) waits_for_client: bool,
    /// Something moved since the clock was read last.
    pub(crate) moved: bool,
    /// When something moved last.
    pub(crate) since: Instant,
    /// When the head of the answer came, and its status.
    pub(crate) answered: Option<(Instant, u16)>,
    /// What is different in the head of the answer that the client gets.
    pub(crate) changes: &'a AnswerChanges<'a>,
    /// A waiting room has a word in it too.
    pub(crate) visit: Option<&'a mut Visit<'v>>,
}

impl<C: Client, U: Upstream> Pump<'_, '_, C, U> {
    /// Ready when the exchange of bytes is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        self.waits_for_client = false;
        if let Err(ended) = self.poll_request(cx) {
            return Poll::Ready(self.before_or_after(ended));
        }
        match self.poll_answer(cx) {
            Ok(Poll::Ready(ended)) => return Poll::Ready(ended),
            Ok(Poll::Pending) => {}
            Err(ended) => return Poll::Ready(ended),
        }
        if std::mem::take(&mut self.moved) {
            self.since = Instant::now();
        }
        let (within, expired) = self.patience();
        self.deadline.set(self.since + within);
        ready!(self.deadline.poll(cx));
        Poll::Ready(expired)
    }

    /// A fault of the request is answered only while no other answer has begun.
    fn before_or_after(&self, ended: Ended) -> Ended {
        match (ended, self.answering) {
            (
                Ended::Failed(fault),
                Answering::Body | Answering::Flushing | Answering::Switching,
            ) => Ended::Cut(fault.as_str()),
            (ended, _) => ended,
        }
    }

    /// How long nothing may move, and what it means when nothing did.
    fn patience(&self) -> (Duration, Ended) {
        match (self.answering, self.sending) {
            (Answering::Head | Answering::Interim, Sending::Body)
                if self.waits_for_client && !(self.expects && self.client.received() == 0) =>
            {
                (
                    self.timeouts.client_body_idle,
                    Ended::Failed(Failure::BODY_TIMEOUT),
                )
            }
            (Answering::Head | Answering::Interim, _) => (
                self.timeouts.response_header,
                Ended::Failed(Failure::RESPONSE_TIMEOUT),
            ),
            (Answering::Switching | Answering::Body | Answering::Flushing, _) => {
                let word = if self.waits_for_client {
                    "client-timeout"
                } else {
                    "body-timeout"
                };
                (self.timeouts.body_idle, Ended::Cut(word))
            }
        }
    }

    /// Request: from the client to the endpoint.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        loop {
            match self.sending {
                Sending::Body => {
                    let step = if self.splices_request() {
                        self.poll_splice_request(cx)
                    } else {
                        self.poll_piece(cx)
                    };
                    match step {
                        Poll::Ready(step) => step?,
                        Poll::Pending => return Ok(()),
                    }
                }
                Sending::Flushing => match self.poll_flush_request(cx) {
                    Poll::Ready(true) => self.sending = Sending::Done,
                    Poll::Ready(false) => self.sending = Sending::Abandoned,
                    Poll::Pending => return Ok(()),
                },
                Sending::Done => {
                    return match self.client.poll_gone(cx) {
                        Poll::Ready(()) => Err(Ended::Gone),
                        Poll::Pending => Ok(()),
                    };
                }
                Sending::Abandoned => return Ok(()),
            }
        }
    }

    /// Moves one piece of the request. Ready when there may be more to move, or nothing any more.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        match self.client.poll_next(cx)? {
            Poll::Ready(Next::Piece) => {
                match ready!(self.upstream.poll_send(cx, self.client.piece())) {
                    Ok(count) => {
                        self.client.advance(count);
                        self.moved = true;
                    }
                    Err(Deaf) => self.sending = Sending::Abandoned,
                }
            }
            Poll::Ready(Next::End) => {
                self.moved = true;
                *self.finished = true;
                let ended = self.upstream.finish(self.client.trailers());
                ended.map_err(|_| Ended::Failed(INTERNAL))?;
                self.sending = Sending::Flushing;
            }
            Poll::Pending => {
                // What is there goes out before waiting for more.
                match self.poll_flush_request(cx) {
                    Poll::Ready(true) => self.waits_for_client = true,
                    Poll::Ready(false) => self.sending = Sending::Abandoned,
                    Poll::Pending => {}
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the rest of the request body goes through a pipe.
    fn splices_request(&mut self) -> bool {
        let source = self.client.source();
        let source = source.filter(|_| self.upstream.sink().is_some());
        self.pipes.settle(&mut self.request_pipe, source)
    }

    fn poll_splice_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let Some(pipe) = &mut self.request_pipe else {
            return Poll::Ready(Ok(()));
        };
        let step = pipe.poll_step(self.client.source(), self.upstream.sink(), cx);
        self.waits_for_client = step.is_pending() && pipe.is_empty();
        match ready!(step) {
            Ok(Step::Took(count)) => self.client.took(count)?,
            Ok(Step::Gave(count)) => {
                self.moved = true;
                let gave = self.upstream.gave(count);
                gave.map_err(|_| Ended::Failed(INTERNAL))?;
            }
            Err(Broken::Source(_)) => return Poll::Ready(Err(Ended::Gone)),
            Err(Broken::Sink(_)) => {
                self.request_pipe = None;
                self.sending = Sending::Abandoned;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether all that waited for the endpoint is out; false when it takes no more.
    fn poll_flush_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let before = self.upstream.sent();
        let flushed = self.upstream.poll_flush(cx);
        self.moved |= self.upstream.sent() > before;
        flushed.map(|flushed| flushed.is_ok())
    }

    /// Answer: from the endpoint to the client.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<Poll<Ended>, Ended> {
        loop {
            match self.answering {
                Answering::Head => {
                    if self.poll_head(cx)?.is_pending() {
                        return Ok(Poll::Pending);
                    }
                }
                Answering::Interim => match self.client.poll_flush(cx)? {
                    Poll::Ready(()) => self.answering = Answering::Head,
                    Poll::Pending => return self.client_is_slow(),
                },
                Answering::Switching => match self.client.poll_flush(cx)? {
                    Poll::Ready(()) => return Ok(Poll::Ready(Ended::Switched)),
                    Poll::Pending => return self.client_is_slow(),
                },
                Answering::Body => {
                    let step = if self.splices_answer() {
                        self.poll_splice_answer(cx)
                    } else {
                        self.poll_body(cx)
                    };
                    if step?.is_pending() {
                        return Ok(Poll::Pending);
                    }
                }
                Answering::Flushing => match self.client.poll_flush(cx)? {
                    Poll::Ready(()) => {
                        let reusable = self.sending == Sending::Done && self.upstream.is_reusable();
                        return Ok(Poll::Ready(Ended::Answered { reusable }));
                    }
                    Poll::Pending => return self.client_is_slow(),
                },
            }
        }
    }

    fn client_is_slow(&mut self) -> Result<Poll<Ended>, Ended> {
        self.waits_for_client = true;
        Ok(Poll::Pending)
    }

    /// Waits for a head, and passes it on.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        if self.upstream.poll_head(cx)?.is_pending() {
            return Ok(Poll::Pending);
        }
        let answer = self.upstream.answer();
        let status = answer.head.status;
        if answer.head.kind != ResponseKind::Interim {
            self.changes.take_effect();
            if let Some(visit) = &mut self.visit {
                visit.answered(&answer);
            }
        }
        let changes = Changes {
            answer: self.changes,
            visit: self.visit.as_deref(),
        };
        let (queued, next) = match answer.head.kind {
            ResponseKind::Interim => (self.client.interim(&answer), Answering::Interim),
            ResponseKind::Switching => {
                (self.client.respond(&answer, changes), Answering::Switching)
            }
            ResponseKind::Final => (self.client.respond(&answer, changes), Answering::Body),
        };
        queued.map_err(|_| Ended::Failed(INTERNAL))?;
        self.upstream.advance_head();
        self.answering = next;
        if next != Answering::Interim {
            self.moved = true;
            self.answered = Some((Instant::now(), status));
        }
        Ok(Poll::Ready(()))
    }

    /// Whether the rest of the answer's body goes through a pipe.
    fn splices_answer(&mut self) -> bool {
        let source = self.upstream.source();
        let source = source.filter(|_| self.client.sink().is_some());
        self.pipes.settle(&mut self.answer_pipe, source)
    }

    fn poll_splice_answer(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        let Some(pipe) = &mut self.answer_pipe else {
            return Ok(Poll::Ready(()));
        };
        let step = pipe.poll_step(self.upstream.source(), self.client.sink(), cx);
        self.waits_for_client = step.is_pending() && !pipe.is_empty();
        match step {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Ok(Step::Took(count))) => self.upstream.took(count).map_err(Ended::Cut)?,
            Poll::Ready(Ok(Step::Gave(count))) => {
                self.moved = true;
                let gave = self.client.gave(count);
                gave.map_err(|_| Ended::Cut("internal"))?;
            }
            Poll::Ready(Err(Broken::Source(_))) => return Err(Ended::Cut("truncated")),
            Poll::Ready(Err(Broken::Sink(_))) => return Err(Ended::Gone),
        }
        Ok(Poll::Ready(()))
    }

    /// Moves one piece. Ready when there may be more to move, or when all is queued.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        match self.upstream.poll_next(cx).map_err(Ended::Cut)? {
            Poll::Ready(Next::Piece) => match self.client.poll_send(cx, self.upstream.piece())? {
                Poll::Ready(count) => {
                    self.upstream.advance(count);
                    self.moved = true;
                }
                Poll::Pending => {
                    self.waits_for_client = true;
                    return Ok(Poll::Pending);
                }
            },
            Poll::Ready(Next::End) => {
                let ended = self.client.finish(self.upstream.trailers());
                ended.map_err(|_| Ended::Cut("internal"))?;
                self.answering = Answering::Flushing;
            }
            Poll::Pending => {
                // What is there goes out before waiting for more.
                self.waits_for_client = self.client.poll_flush(cx)?.is_pending();
                return Ok(Poll::Pending);
            }
        }
        Ok(Poll::Ready(()))
    }
}
