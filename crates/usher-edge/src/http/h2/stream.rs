//! One stream: a request over HTTP/2 as the client's side of an exchange.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf as _, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::time::Instant;

use super::request::Head;
use crate::http::body::Next;
use crate::http::buffer::Buffer;
use crate::http::client::{Answer, Asked, Client, ClientFault};
use crate::http::connection::ConnInfo;
use crate::http::deadline::Deadline;
use crate::http::exchange::{self, Bench, End};
use crate::http::forward::RequestId;
use crate::http::record::{Record, path_of};
use crate::http::refusal::Failure;
use crate::http::stream::Stream;
use crate::http::worker::Worker;
use crate::http1::{BodyLength, EncodeFault, Method, RequestFault};

/// Bytes that are copied into one DATA frame at a time.
const PIECE_MAX: usize = 16 * 1024;

/// Serves one request. False: the client abandoned it.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    conn: &ConnInfo,
    mut request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> bool {
    let started = Instant::now();
    let view = worker.view();
    let limits = exchange::limits(&view.settings);
    let ends = request.body().is_end_stream();
    let mut deadline = Deadline::new(view.settings.timeouts.response_header);
    let head = Head::read(&mut request, ends, &limits);
    // What it asked for, to tell of it if it was refused.
    let said = head
        .is_err()
        .then(|| (request.method().clone(), request.uri().clone()));
    let mut client = H2 {
        method: head.as_ref().map_or(Method::Get, |head| head.method),
        receive: request.into_body(),
        piece: Bytes::new(),
        received: 0,
        trailers: None,
        respond,
        send: None,
        waiting: Bytes::new(),
        sent: 0,
    };
    let head = match head {
        Ok(head) => head,
        Err(fault) => {
            let refused = Refused {
                fault,
                said: said.unwrap_or_default(),
                started,
            };
            refuse(worker, conn, &mut client, &mut deadline, refused).await;
            return true;
        }
    };
    drop(view);
    let asked = Asked {
        method: head.method,
        method_name: &head.method_name,
        uri: &head.uri,
        authority: &head.authority,
        host: &head.host,
        fields: &head.fields,
        body: head.body,
        expects: head.expects,
        websocket: false,
        protocol: "HTTP/2",
        started,
    };
    let mut bench = Bench::new();
    let end = exchange::run(worker, conn, &asked, &mut client, &mut bench, &mut deadline).await;
    match end {
        End::Answered | End::Refused => {}
        End::Cut => {
            // A reset takes back what is queued; the connection first gets its turn to send it.
            tokio::task::yield_now().await;
            client.reset(Reason::INTERNAL_ERROR);
        }
        End::Over => client.reset(Reason::CANCEL),
    }
    end != End::Over
}

/// A request that was not understood.
struct Refused {
    fault: RequestFault,
    said: (http::Method, http::Uri),
    started: Instant,
}

/// Answers it.
async fn refuse(
    worker: &Worker,
    conn: &ConnInfo,
    client: &mut H2,
    deadline: &mut Deadline,
    Refused {
        fault,
        said: (method, uri),
        started,
    }: Refused,
) {
    let failure = Failure::new(fault.status().unwrap_or(400), fault.as_str());
    let request_id = RequestId::new(worker.draw());
    let page = failure.page(std::iter::empty(), &request_id);
    if client
        .answer(page.status(), page.fields(), &page.body, false)
        .is_ok()
    {
        // When it does not take the page, there is nobody to tell.
        let _ = poll_fn(|cx| match client.poll_flush(cx) {
            Poll::Pending => deadline.poll(cx).map(|()| Err(ClientFault::Gone)),
            flushed => flushed,
        })
        .await;
    }
    let duration = started.elapsed();
    let view = worker.view();
    let uri = uri.path_and_query().map_or("", |uri| uri.as_str());
    worker.record(
        &view,
        &Record {
            started: SystemTime::now() - duration,
            duration,
            request_id: request_id.as_str(),
            client: conn.peer.ip(),
            method: method.as_str().as_bytes(),
            host: "",
            path: path_of(uri.as_bytes(), view.settings.query_strings),
            status: failure.status(),
            bytes_in: 0,
            bytes_out: client.sent,
            balancer: None,
            pool: None,
            endpoint: None,
            upstream: None,
            attempts: 0,
            error: Some(failure.as_str()),
            tls: conn.tls_version(),
            protocol: "HTTP/2",
        },
    );
}

/// The client's side of one exchange.
struct H2 {
    method: Method,
    receive: RecvStream,
    piece: Bytes,
    received: u64,
    trailers: Option<HeaderMap>,
    respond: SendResponse<Bytes>,
    /// Once the head of the answer is out.
    send: Option<SendStream<Bytes>>,
    /// The body of an answer of our own, as far as it is not taken yet.
    waiting: Bytes,
    sent: u64,
}

impl H2 {
    fn reset(&mut self, reason: Reason) {
        match &mut self.send {
            Some(send) => send.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// Sends the head of an answer. A stream that is gone is noticed where its body is sent.
    fn send_head(&mut self, response: Response<()>, ends: bool) {
        self.send = self.respond.send_response(response, ends).ok();
    }

    /// Room for at most `wanted` bytes of body.
    fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<Result<usize, ClientFault>> {
        let Some(send) = &mut self.send else {
            return Poll::Ready(Err(ClientFault::Gone));
        };
        send.reserve_capacity(wanted.min(PIECE_MAX));
        while send.capacity() == 0 {
            match ready!(send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(ClientFault::Gone)),
            }
        }
        Poll::Ready(Ok(send.capacity().min(wanted)))
    }

    fn send_data(&mut self, data: Bytes, ends: bool) -> Result<(), ClientFault> {
        let send = self.send.as_mut().ok_or(ClientFault::Gone)?;
        send.send_data(data, ends).map_err(|_| ClientFault::Gone)
    }
}

impl Client for H2 {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, ClientFault>> {
        while self.piece.is_empty() {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.received += data.len() as u64;
                    self.piece = data;
                }
                Some(Err(_)) => return Poll::Ready(Err(ClientFault::Gone)),
                None => {
                    let trailers = ready!(self.receive.poll_trailers(cx));
                    return Poll::Ready(match trailers {
                        Ok(trailers) => {
                            self.trailers = trailers;
                            Ok(Next::End)
                        }
                        Err(_) => Err(ClientFault::Gone),
                    });
                }
            }
        }
        Poll::Ready(Ok(Next::Piece))
    }

    fn piece(&self) -> &[u8] {
        &self.piece
    }

    fn advance(&mut self, count: usize) {
        self.piece.advance(count);
        // Fails for a stream that is gone, which needs no more room.
        let _ = self.receive.flow_control().release_capacity(count);
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.trailers.iter().flatten();
        fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut self.send {
            Some(send) => send.poll_reset(cx),
            None => self.respond.poll_reset(cx),
        };
        reset.map(|_| ())
    }

    fn interim(&mut self, answer: &Answer<'_>) -> Result<(), EncodeFault> {
        let response = response(answer.head.status, answer.forwarded())?;
        // A stream that is gone is noticed elsewhere.
        let _ = self.respond.send_informational(response);
        Ok(())
    }

    fn respond(&mut self, answer: &Answer<'_>) -> Result<(), EncodeFault> {
        let head = answer.head;
        let mut response = response(head.status, answer.forwarded())?;
        if let Some(length) = head.content_length.filter(|_| head.status != 204) {
            response
                .headers_mut()
                .insert(http::header::CONTENT_LENGTH, length.into());
        }
        self.send_head(response, head.body == BodyLength::Empty);
        Ok(())
    }

    fn answer<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
        body: &[u8],
        _closes: bool,
    ) -> Result<(), EncodeFault> {
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut response = response(status, fields)?;
        let bare = matches!(status, 204 | 304);
        if !bare {
            response
                .headers_mut()
                .insert(http::header::CONTENT_LENGTH, body.len().into());
        }
        let ends = self.method == Method::Head || bare || body.is_empty();
        if !ends {
            self.waiting = Bytes::copy_from_slice(body);
        }
        self.send_head(response, ends);
        Ok(())
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<Result<usize, ClientFault>> {
        let room = ready!(self.poll_room(cx, piece.len()))?;
        self.send_data(Bytes::copy_from_slice(&piece[..room]), false)?;
        self.sent += room as u64;
        Poll::Ready(Ok(room))
    }

    fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault> {
        let trailers = headers(trailers)?;
        if let Some(send) = self.send.as_mut().filter(|_| !trailers.is_empty()) {
            // Fails for a stream that has ended, with its head or by the client.
            let _ = send.send_trailers(trailers);
        } else {
            let _ = self.send_data(Bytes::new(), true);
        }
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientFault>> {
        while !self.waiting.is_empty() {
            let room = ready!(self.poll_room(cx, self.waiting.len()))?;
            let data = self.waiting.split_to(room);
            self.sent += room as u64;
            self.send_data(data, self.waiting.is_empty())?;
        }
        Poll::Ready(Ok(()))
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn raw(&mut self) -> Option<(&mut Stream, &mut Buffer)> {
        None
    }
}

fn response<'a>(
    status: u16,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Response<()>, EncodeFault> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| EncodeFault::StatusLine)?;
    *response.headers_mut() = headers(fields)?;
    Ok(response)
}

fn headers<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<HeaderMap, EncodeFault> {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name).map_err(|_| EncodeFault::FieldName)?;
        let value = HeaderValue::from_bytes(value).map_err(|_| EncodeFault::FieldValue)?;
        map.append(name, value);
    }
    Ok(map)
}
