//! HTTP on one connection: hyper's part, and what the sweep is told of it.

use super::activity::Activity;
use super::connections::ConnectionSlot;
use super::stream::Stream;
use crate::answer::{App, ResponseFuture};
use bytes::Bytes;
use futures::future::Either;
use http::header::CONNECTION;
use http::{Request, Response, Version};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// More than any load balancer or proxy sends in front of a probe. It is also hyper's smallest buffer.
const MAX_HEAD_BYTES: usize = 8192;

pub(super) fn builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    // hyper's own timer would cost each request an allocation and would cut a kept connection like a slow one; the
    // sweep tells them apart. Half-closed clients (`nc -N`) still get their answer.
    http.header_read_timeout(None)
        .half_close(true)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    http
}

/// A connection on which not all is done that was to be done at once.
#[expect(clippy::large_enum_variant, reason = "it goes from here into a task, which is a box of its own")]
pub(super) enum Unfinished {
    /// There are requests to be waited for, or answers.
    Open(http1::Connection<Stream, RequestHandler>),
    /// The last answer must be given time to arrive.
    Closing(Stream),
}

/// Does what can be done without waiting. Most probes come as a connection of their own whose request is there already, and
/// need no more than that: no task, and no slot among those who stay.
pub(super) fn answer_at_once(
    mut connection: http1::Connection<Stream, RequestHandler>,
) -> Option<Unfinished> {
    // What is unfinished gets a task, and a task begins with a poll.
    let mut context = Context::from_waker(Waker::noop());
    // As in a task a panic is on stderr by now, and costs the one connection.
    let polled = catch_unwind(AssertUnwindSafe(|| connection.poll_without_shutdown(&mut context))).ok()?;
    match polled {
        Poll::Pending => Some(Unfinished::Open(connection)),
        Poll::Ready(result) => {
            let mut stream = ended(connection, result);
            (!stream.finish()).then_some(Unfinished::Closing(stream))
        }
    }
}

impl Unfinished {
    /// The rest of the connection's life.
    pub(super) async fn finish(self, slot: ConnectionSlot) {
        match self {
            Self::Open(mut connection) => {
                let result = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
                ended(connection, result).close().await;
            }
            Self::Closing(stream) => stream.linger().await,
        }
        drop(slot);
    }
}

fn ended(connection: http1::Connection<Stream, RequestHandler>, result: hyper::Result<()>) -> Stream {
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
    connection.into_parts().io
}

/// Whom hyper hands the requests of one connection.
pub(super) struct RequestHandler {
    pub(super) app: Arc<App>,
    pub(super) activity: Arc<Activity>,
    pub(super) peer: IpAddr,
    pub(super) metrics_moved_to: Option<SocketAddr>,
}

impl Service<Request<Incoming>> for RequestHandler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        debug_assert!(head_bytes(&request) <= MAX_HEAD_BYTES, "hyper refuses longer heads");
        let now = self.app.now();
        let body_left = !request.body().is_end_stream();
        if body_left || self.app.is_closing() || asks_to_close(&request) {
            self.activity.end_after_answer();
        }
        match self.app.respond_on(request, now, Some(self.peer), self.metrics_moved_to) {
            Either::Left(response) => {
                self.activity.end(now, body_left);
                Either::Left(response)
            }
            Either::Right(later) => {
                self.activity.begin();
                let (app, activity) = (Arc::clone(&self.app), Arc::clone(&self.activity));
                Either::Right(Box::pin(async move {
                    let response = later.await;
                    activity.end(app.now(), body_left);
                    response
                }))
            }
        }
    }
}

/// Whether hyper ends the connection after this request. It knows more ways to say so; those cost a packet more.
fn asks_to_close(request: &Request<Incoming>) -> bool {
    let mut values = request.headers().get_all(CONNECTION).iter();
    match (values.next(), values.next()) {
        (None, _) => request.version() == Version::HTTP_10,
        (Some(value), None) => value.as_bytes().eq_ignore_ascii_case(b"close"),
        _ => false,
    }
}

/// What a head has had at the least when it was sent.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>()
}
