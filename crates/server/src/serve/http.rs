//! HTTP with hyper, on the runtime: hyper parses all unknown heads, and keeps their connections.

use super::acceptor::is_on_this_node;
use super::activity::Activity;
use super::connections::{ConnectionSlot, Connections};
use super::fast_path::Rest;
use super::kept::Poller;
use super::known_heads::KnownHeads;
use super::lesson::Lesson;
use super::proxy_header;
use super::stream::SocketStream;
use crate::answer::{AnswerBody, App, Client, ResponseFuture, log_answer};
use futures::future::{Either, ready};
use http::header::CONNECTION;
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest head in bytes, more than any load balancer or proxy sends in a probe. It is also hyper's
/// smallest buffer.
const MAX_HEAD_BYTES: usize = 8192;

/// The state shared by all connections of one listener.
pub(crate) struct Http {
    pub(super) app: Arc<App>,
    pub(super) connections: Arc<Connections>,
    known_heads: Mutex<KnownHeads>,
    /// The set of connections that wait for their next request.
    pub(super) poller: Poller,
    /// See [`ServeOptions::accept_proxy`](crate::ServeOptions::accept_proxy).
    pub(super) accept_proxy: bool,
    /// See [`ServeOptions::metrics_moved_to`](crate::ServeOptions::metrics_moved_to).
    metrics_moved_to: Option<SocketAddr>,
    builder: http1::Builder,
}

impl Http {
    pub(super) fn new(
        app: Arc<App>,
        connections: Arc<Connections>,
        accept_proxy: bool,
        metrics_moved_to: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let (known_heads, poller, builder) = (Mutex::default(), Poller::new()?, builder());
        Ok(Self { app, connections, known_heads, poller, accept_proxy, metrics_moved_to, builder })
    }

    pub(super) fn known_heads(&self) -> MutexGuard<'_, KnownHeads> {
        self.known_heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a connection over to hyper until its end.
    pub(super) fn parse(
        self: &Arc<Self>,
        slot: ConnectionSlot,
        socket: TcpStream,
        peer: IpAddr,
        activity: Arc<Activity>,
        rest: Rest,
    ) {
        let http = Arc::clone(self);
        let on_this_node = is_on_this_node(peer, &socket);
        slot.spawn(|slot| async move {
            let stream = SocketStream::new(socket, Arc::clone(&activity));
            converse(http, stream, peer, on_this_node, activity, rest).await;
            drop(slot);
        });
    }
}

fn builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    // hyper's own timer would cost each request an allocation, and would close a kept connection like a slow
    // one; the sweep tells them apart. Half-closed clients (`nc -N`) still get their answer.
    http.header_read_timeout(None)
        .half_close(true)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    http
}

/// Serves a connection from its first unknown request to its end.
async fn converse(
    http: Arc<Http>,
    mut stream: SocketStream,
    peer: IpAddr,
    on_this_node: bool,
    activity: Arc<Activity>,
    rest: Rest,
) {
    let Rest { mut received, may_be_proxied, unsent, ends } = rest;
    if may_be_proxied && skip_proxy_header(&mut stream, &mut received).await.is_err() {
        return;
    }
    if stream.send_all(&unsent).await.is_err() {
        return;
    }
    if !ends {
        let lesson = Lesson::new(Arc::clone(&http), peer);
        stream.attend(Arc::clone(&lesson), received);
        let handler = RequestHandler {
            app: Arc::clone(&http.app),
            activity,
            peer,
            on_this_node,
            metrics_moved_to: http.metrics_moved_to,
            lesson,
        };
        let mut connection = http.builder.serve_connection(stream, handler);
        let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
        let http1::Parts { io, service: handler, .. } = connection.into_parts();
        stream = io;
        match ended {
            Ok(()) => handler.lesson.ended(),
            Err(error) => tracing::debug!(%error, "connection ended"),
        }
    }
    stream.close().await;
}

/// Reads until the end of a possible PROXY header in `received` is clear, and removes the header.
async fn skip_proxy_header(stream: &mut SocketStream, received: &mut Vec<u8>) -> io::Result<()> {
    loop {
        match proxy_header::find(received) {
            Ok(Some(length)) => {
                received.drain(..length);
                return Ok(());
            }
            Ok(None) => {
                let more = stream.hear(proxy_header::MOST).await;
                if more.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                received.extend(more);
            }
            Err(proxy_header::Malformed) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Answers the requests of one connection.
struct RequestHandler {
    app: Arc<App>,
    activity: Arc<Activity>,
    peer: IpAddr,
    on_this_node: bool,
    metrics_moved_to: Option<SocketAddr>,
    lesson: Arc<Lesson>,
}

impl Service<Request<Incoming>> for RequestHandler {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        debug_assert!(head_bytes(&request) <= MAX_HEAD_BYTES, "hyper refuses longer heads");
        let now = self.app.now();
        let body_left = !request.body().is_end_stream();
        if body_left || self.app.is_closing() || asks_to_close(&request) {
            self.activity.end_after_answer();
        }
        // Answers with a verdict are logged where they are recorded.
        let uri = tracing::enabled!(tracing::Level::DEBUG).then(|| request.uri().clone());
        let client = Client { address: Some(self.peer), on_this_node: self.on_this_node };
        let (response, told) = self.app.respond_on(request, now, client, self.metrics_moved_to);
        let uri = uri.filter(|_| told.is_none());
        self.lesson.parsed(told.filter(|_| !body_left));
        match response {
            Either::Left(response) => {
                self.activity.end(now, body_left);
                let response = response.into_inner();
                if let (Some(uri), Ok(response)) = (uri, &response) {
                    log_answer(Some(self.peer), &uri, response.status());
                }
                Either::Left(ready(response))
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

/// Returns true if hyper ends the connection after this request. hyper knows more ways to ask for that; those
/// cost one packet more.
fn asks_to_close(request: &Request<Incoming>) -> bool {
    let mut values = request.headers().get_all(CONNECTION).iter();
    match (values.next(), values.next()) {
        (None, _) => request.version() == Version::HTTP_10,
        (Some(value), None) => value.as_bytes().eq_ignore_ascii_case(b"close"),
        _ => false,
    }
}

/// Returns the least number of bytes that the head can have had when sent.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>()
}
