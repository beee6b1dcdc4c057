//! HTTP on one connection: what is known is answered at once, and hyper does the rest.

use super::activity::Activity;
use super::connections::ConnectionSlot;
use super::known_heads::{Exchange, KnownHeads};
use super::requests::{MAX_HEAD_BYTES, RequestHandler};
use super::stream::{CHUNK, Stream};
use crate::answer::App;
use hyper::server::conn::http1;
use std::future::poll_fn;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::ReadBuf;

/// What all connections of one listener share.
pub(crate) struct Http {
    builder: http1::Builder,
    known_heads: Mutex<KnownHeads>,
    /// See [`ServeOptions::metrics_moved_to`](crate::ServeOptions::metrics_moved_to).
    metrics_moved_to: Option<SocketAddr>,
}

impl Http {
    pub(super) fn new(metrics_moved_to: Option<SocketAddr>) -> Self {
        Self { builder: builder(), known_heads: Mutex::default(), metrics_moved_to }
    }

    /// Whoever answers the requests of a connection.
    pub(super) fn handler(&self, app: Arc<App>, activity: Arc<Activity>, peer: IpAddr) -> RequestHandler {
        RequestHandler::new(app, activity, peer, self.metrics_moved_to)
    }

    /// Held for as long as one answer takes to be found and sent, and never across an await.
    pub(super) fn known_heads(&self) -> MutexGuard<'_, KnownHeads> {
        self.known_heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    // hyper's own timer would cost each request an allocation and would cut a kept connection like a slow one; the
    // sweep tells them apart. Half-closed clients (`nc -N`) still get their answer.
    http.header_read_timeout(None)
        .half_close(true)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    http
}

/// A connection, until nothing more is to be read from it.
pub(super) struct Connection {
    http: Arc<Http>,
    activity: Arc<Activity>,
    state: State,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a connection that is kept is in a task, which is a box of its own"
)]
enum State {
    /// All that was received has been answered; what comes next is compared with what is known.
    Between(Stream, RequestHandler),
    /// hyper parses and answers.
    Parsing(http1::Connection<Stream, RequestHandler>),
    Ended,
}

/// What came of waiting for the next request.
enum Next {
    Answered,
    /// It is for hyper to parse.
    Unknown,
    /// There is none.
    End,
}

impl Connection {
    pub(super) fn new(http: &Arc<Http>, stream: Stream, handler: RequestHandler) -> Self {
        let (http, activity) = (Arc::clone(http), Arc::clone(handler.activity()));
        Self { http, activity, state: State::Between(stream, handler) }
    }

    /// Goes on until it must wait; then, at the end, gives the stream to be closed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Stream>> {
        loop {
            match &mut self.state {
                State::Between(stream, handler) => match ready!(poll_next(stream, handler, &self.http, cx)) {
                    Next::Answered => {}
                    Next::Unknown => self.begin_to_parse(),
                    Next::End => return Poll::Ready(self.end()),
                },
                State::Parsing(connection) => {
                    let polled = connection.poll_without_shutdown(cx);
                    if let Poll::Ready(Err(error)) = &polled {
                        tracing::debug!(%error, "connection ended");
                    }
                    if polled.is_pending() && !self.activity.is_settled() {
                        return Poll::Pending;
                    }
                    self.end_parsing(polled.is_ready());
                    if polled.is_ready() {
                        return Poll::Ready(self.end());
                    }
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn end(&mut self) -> Option<Stream> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Between(stream, _) => Some(stream),
            State::Parsing(_) | State::Ended => None,
        }
    }

    fn begin_to_parse(&mut self) {
        self.state = match mem::replace(&mut self.state, State::Ended) {
            State::Between(stream, handler) => {
                State::Parsing(self.http.builder.serve_connection(stream, handler))
            }
            other => other,
        };
    }

    /// hyper's buffers go with it: a connection that is kept costs next to nothing between two requests.
    fn end_parsing(&mut self, ends: bool) {
        let State::Parsing(connection) = mem::replace(&mut self.state, State::Ended) else { return };
        let http1::Parts { io: mut stream, read_buf, service: handler, .. } = connection.into_parts();
        if let (Some((head, answer)), Some(told), true) =
            (stream.exchanged(), handler.take_told(), read_buf.is_empty())
        {
            self.http.known_heads().remember(Exchange { head, answer, told, ends });
        }
        stream.give_back(&read_buf);
        self.state = State::Between(stream, handler);
    }
}

/// Waits for a request, and answers it if it is known.
fn poll_next(stream: &mut Stream, handler: &RequestHandler, http: &Http, cx: &mut Context<'_>) -> Poll<Next> {
    if stream.has_unread() {
        return Poll::Ready(Next::Unknown);
    }
    let mut room = [MaybeUninit::uninit(); CHUNK];
    let mut received = ReadBuf::uninit(&mut room);
    if ready!(stream.poll_unsent(cx)).is_err() || handler.has_ended() {
        return Poll::Ready(Next::End);
    }
    if ready!(stream.poll_receive(cx, &mut received)).is_err() {
        return Poll::Ready(Next::End);
    }
    let received = received.filled();
    if received.is_empty() {
        return Poll::Ready(Next::End);
    }
    let mut known_heads = http.known_heads();
    let Some(answer) = handler.answer_known(&mut known_heads, received) else {
        stream.give_back(received);
        return Poll::Ready(Next::Unknown);
    };
    Poll::Ready(if stream.send_or_keep(answer).is_ok() { Next::Answered } else { Next::End })
}

/// A connection on which not all is done that was to be done at once.
#[expect(clippy::large_enum_variant, reason = "it goes from here into a task, which is a box of its own")]
pub(super) enum Unfinished {
    /// There are requests to be waited for, or answers.
    Open(Connection),
    /// The last answer must be given time to arrive.
    Closing(Stream),
}

/// Does what can be done without waiting, in which hyper has its first look at a request. If that is all, a connection needs
/// neither a task nor a slot among those who stay.
pub(super) fn answer_at_once(mut connection: Connection) -> Option<Unfinished> {
    // What is unfinished gets a task, and a task begins with a poll.
    let mut context = Context::from_waker(Waker::noop());
    match connection.poll(&mut context) {
        Poll::Pending => Some(Unfinished::Open(connection)),
        Poll::Ready(stream) => {
            let mut stream = stream?;
            (!stream.finish()).then_some(Unfinished::Closing(stream))
        }
    }
}

impl Unfinished {
    /// The rest of the connection's life.
    pub(super) async fn finish(self, slot: ConnectionSlot) {
        match self {
            Self::Open(mut connection) => {
                if let Some(stream) = poll_fn(|cx| connection.poll(cx)).await {
                    stream.close().await;
                }
            }
            Self::Closing(stream) => stream.linger().await,
        }
        drop(slot);
    }
}
