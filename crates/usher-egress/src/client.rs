//! One connection of a browser: requests one after the other, each judged anew.
//!
//! A request for a tunnel names where it goes and becomes the tunnel. Any other names an absolute
//! URL; it is sent on in the form that a server expects, over a connection that is kept only for
//! the next request to the same host and port. What is refused is answered with its cause.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use usher_edge::http1::{
    BodyLength, FieldName, Form, HeadLimits, Method, Parsed, RequestFault, RequestHead, Version,
    parse_request,
};

use crate::answer;
use crate::cause::Cause;
use crate::dial::{Denied, Upstream, dial};
use crate::exit::{Credential, Deadlines, Inner};
use crate::forward::{self, After, Request};
use crate::inbox::Inbox;
use crate::target::Target;
use crate::tunnel;

/// Browsers make longer URLs and more cookies than a site of ours would take.
pub(crate) const LIMITS: HeadLimits = HeadLimits {
    head_bytes: 256 * 1024,
    fields: 512,
    target_bytes: 64 * 1024,
};

/// Bytes that are read ahead of what can be served: the next request of a hasty client.
const AHEAD_MAX: usize = 64 * 1024;

/// What is still read of a request that was refused, so that closing does not destroy the answer.
const LINGER_BYTES_MAX: usize = 256 * 1024;
const LINGER: Duration = Duration::from_secs(1);

/// A browser's side.
pub(crate) struct Client<R, W> {
    pub(crate) reader: R,
    pub(crate) writer: W,
    pub(crate) inbox: Inbox,
    credential: Option<Credential>,
}

/// What a request asks for.
enum Route {
    Tunnel(Target),
    Forward(Target),
}

impl<R, W> Client<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    pub(crate) fn new(reader: R, writer: W, credential: Option<Credential>) -> Client<R, W> {
        Client {
            reader,
            writer,
            inbox: Inbox::default(),
            credential,
        }
    }

    /// Serves until the browser leaves or something forces the end.
    pub(crate) async fn run(mut self, exit: Arc<Inner>) {
        let mut head = RequestHead::new();
        let mut kept = None;
        loop {
            match self.head(&exit.shared.deadlines, &mut head).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    exit.refuse(None, Cause::Malformed.into());
                    return self.last(Cause::Malformed, "").await;
                }
            }
            match self.serve(&exit, &head, kept).await {
                Next::Request(upstream) => kept = upstream,
                Next::Close => return,
                Next::Refused(cause, target) => {
                    let host = target.as_ref().map_or("", Target::host);
                    let keep = cause != Cause::Malformed
                        && head.keep_alive
                        && head.body == BodyLength::Empty
                        && head.method != Method::Connect;
                    if !keep {
                        return self.last(cause, host).await;
                    }
                    self.inbox.consume(head.len);
                    let text = answer::of(cause, host, true, head.method == Method::Head);
                    if self.writer.write_all(&text).await.is_err() {
                        return;
                    }
                    kept = None;
                }
                Next::Failed(cause, target) => return self.last(cause, target.host()).await,
            }
        }
    }

    /// Reads until a head is whole. `false`: there will be none.
    async fn head(
        &mut self,
        deadlines: &Deadlines,
        head: &mut RequestHead,
    ) -> Result<bool, RequestFault> {
        let mut until = None;
        loop {
            if parse_request(self.inbox.filled(), &LIMITS, head)? == Parsed::Complete {
                return Ok(true);
            }
            let wait = if self.inbox.filled().is_empty() {
                self.inbox.rest();
                Instant::now() + deadlines.idle
            } else {
                *until.get_or_insert_with(|| Instant::now() + deadlines.head)
            };
            match timeout_at(wait, self.inbox.fill(&mut self.reader)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) | Err(_) => return Ok(false),
            }
        }
    }

    async fn serve(
        &mut self,
        exit: &Arc<Inner>,
        head: &RequestHead,
        kept: Option<Upstream>,
    ) -> Next {
        if !self.is_known(head) {
            exit.refuse(None, Cause::Credential.into());
            return Next::Refused(Cause::Credential, None);
        }
        match route(head, self.inbox.filled()) {
            Some(Route::Tunnel(target)) => {
                drop(kept);
                let upstream = match self.dial(exit, &target).await {
                    Some(Ok(upstream)) => upstream,
                    Some(Err(denied)) => return refused(exit, target, denied),
                    None => return Next::Close,
                };
                self.inbox.consume(head.len);
                if self.writer.write_all(answer::ESTABLISHED).await.is_ok() {
                    self.tunnel(exit, upstream).await;
                }
                Next::Close
            }
            Some(Route::Forward(target)) => self.forward(exit, head, target, kept).await,
            None => {
                exit.refuse(None, Cause::Malformed.into());
                Next::Refused(Cause::Malformed, None)
            }
        }
    }

    async fn forward(
        &mut self,
        exit: &Arc<Inner>,
        head: &RequestHead,
        target: Target,
        kept: Option<Upstream>,
    ) -> Next {
        let Ok(request) = Request::new(head, self.inbox.filled()) else {
            return refused(exit, target, Cause::Malformed.into());
        };
        let fits = |upstream: &Upstream| upstream.target == target && upstream.is_quiet();
        let mut kept = kept.filter(fits);
        let mut consumed = false;
        loop {
            let used = kept.is_some();
            let mut upstream = match kept.take() {
                Some(upstream) => upstream,
                None => match self.dial(exit, &target).await {
                    Some(Ok(upstream)) => upstream,
                    Some(Err(denied)) if !consumed => return refused(exit, target, denied),
                    Some(Err(denied)) => {
                        exit.refuse(Some(&target), denied);
                        return Next::Failed(denied.cause, target);
                    }
                    None => return Next::Close,
                },
            };
            if !consumed {
                self.inbox.consume(head.len);
                consumed = true;
            }
            let failure = match forward::exchange(self, &request, &mut upstream, exit).await {
                Ok(After::Keep) => return Next::Request(Some(upstream)),
                Ok(After::KeepClient) => return Next::Request(None),
                Ok(After::Close) => {
                    self.linger().await;
                    return Next::Close;
                }
                Ok(After::Tunnel) => {
                    self.tunnel(exit, upstream).await;
                    return Next::Close;
                }
                Err(failure) => failure,
            };
            // A kept connection may be closed by its server at any moment, so that it says nothing
            // about the server.
            if used && failure.is_untouched() && request.is_repeatable() {
                continue;
            }
            let Some(cause) = failure.cause else {
                return Next::Close;
            };
            exit.refuse(Some(&target), cause.into());
            return if failure.answered {
                Next::Close
            } else {
                Next::Failed(cause, target)
            };
        }
    }

    /// `None`: the browser left meanwhile.
    async fn dial(
        &mut self,
        exit: &Arc<Inner>,
        target: &Target,
    ) -> Option<Result<Upstream, Denied>> {
        tokio::select! {
            biased;
            dialled = dial(exit, target) => Some(dialled),
            () = gone(&mut self.inbox, &mut self.reader) => None,
        }
    }

    async fn tunnel(&mut self, exit: &Arc<Inner>, upstream: Upstream) {
        let target = upstream.target.clone();
        if let Err(cause) = tunnel::run(self, upstream, exit).await {
            exit.refuse(Some(&target), cause.into());
        }
    }

    fn is_known(&self, head: &RequestHead) -> bool {
        let Some(credential) = &self.credential else {
            return true;
        };
        let mut shown = head.fields.all(FieldName::ProxyAuthorization);
        let bytes = self.inbox.filled();
        matches!((shown.next(), shown.next()), (Some(one), None) if credential.is_shown(one.value.of(bytes)))
    }

    /// An answer behind which nothing can follow.
    async fn last(&mut self, cause: Cause, host: &str) {
        let text = answer::of(cause, host, false, false);
        if self.writer.write_all(&text).await.is_ok() {
            self.linger().await;
        }
    }

    async fn linger(&mut self) {
        let drain = async {
            self.writer.shutdown().await?;
            let mut left = LINGER_BYTES_MAX;
            let mut scratch = [0; 4096];
            loop {
                let count = self.reader.read(&mut scratch).await?;
                left = left.saturating_sub(count);
                if count == 0 || left == 0 {
                    return Ok::<(), io::Error>(());
                }
            }
        };
        // Whatever comes of it, the connection ends here.
        let _ = timeout(LINGER, drain).await;
    }
}

/// What follows a request.
enum Next {
    /// Another one, perhaps on this connection to a server.
    Request(Option<Upstream>),
    /// Nothing.
    Close,
    /// An answer of our own. Nothing of the request was consumed or sent.
    Refused(Cause, Option<Target>),
    /// An answer of our own. Nobody knows how far the request went.
    Failed(Cause, Target),
}

fn refused(exit: &Inner, target: Target, denied: Denied) -> Next {
    exit.refuse(Some(&target), denied);
    Next::Refused(denied.cause, Some(target))
}

/// Where a request goes. `None`: nowhere that this proxy goes.
fn route(head: &RequestHead, bytes: &[u8]) -> Option<Route> {
    if head.version != Version::Http11 {
        return None;
    }
    let wanted = std::str::from_utf8(head.target.of(bytes)).ok()?;
    match (head.method, head.form) {
        // Its `Host` is for nobody: what is in the tunnel names a host of its own.
        (Method::Connect, Form::Authority) => Target::of_authority(wanted).map(Route::Tunnel),
        (Method::Connect | Method::Trace, _) => None,
        (_, Form::Absolute) => {
            let scheme = wanted.get(..7)?;
            let host = std::str::from_utf8(head.host.of(bytes)).ok()?;
            let target = Target::new(host, head.port.unwrap_or(80))?;
            scheme
                .eq_ignore_ascii_case("http://")
                .then_some(Route::Forward(target))
        }
        (_, Form::Origin | Form::Authority | Form::Asterisk) => None,
    }
}

/// Returns when the browser will send nothing more. What it sends is kept, up to a bound.
pub(crate) async fn gone<R: AsyncRead + Unpin>(inbox: &mut Inbox, reader: &mut R) {
    while inbox.filled().len() < AHEAD_MAX {
        if !matches!(inbox.fill(reader).await, Ok(1..)) {
            return;
        }
    }
    std::future::pending().await
}
