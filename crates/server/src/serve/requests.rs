//! What hyper hands on and what it is given back, and what the sweep and the known heads are told of it.

use super::activity::Activity;
use super::known_heads::{KnownHeads, Room};
use crate::answer::{App, ResponseFuture, Told};
use bytes::Bytes;
use futures::future::Either;
use http::header::CONNECTION;
use http::{Request, Response, Version};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::Service;
use std::cell::Cell;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// More than any load balancer or proxy sends in front of a probe. It is also hyper's smallest buffer.
pub(super) const MAX_HEAD_BYTES: usize = 8192;

/// Answers the requests of one connection.
pub(super) struct RequestHandler {
    app: Arc<App>,
    activity: Arc<Activity>,
    peer: IpAddr,
    metrics_moved_to: Option<SocketAddr>,
    /// How many requests hyper has handed on since it was given something to parse.
    parsed: Cell<u32>,
    /// What was told to the first of them.
    told: Cell<Option<Told>>,
}

impl RequestHandler {
    pub(super) fn new(
        app: Arc<App>,
        activity: Arc<Activity>,
        peer: IpAddr,
        metrics_moved_to: Option<SocketAddr>,
    ) -> Self {
        let (parsed, told) = Default::default();
        Self { app, activity, peer, metrics_moved_to, parsed, told }
    }

    /// What was told since this was last asked, if that was one answer that may be given again.
    pub(super) fn take_told(&self) -> Option<Told> {
        let told = self.told.take();
        if self.parsed.replace(0) == 1 { told } else { None }
    }

    /// Answers what is known, if that is still the answer.
    pub(super) fn answer_known<'a>(
        &self,
        known_heads: &mut KnownHeads,
        received: &[u8],
        room: &'a mut Room,
    ) -> Option<&'a [u8]> {
        let now = self.app.now();
        let answer = known_heads.answer_again(received, &self.app, self.peer, now, room)?;
        if answer.ends {
            self.activity.end_after_answer();
        }
        self.activity.end(now, false);
        Some(answer.bytes)
    }

    /// What is going on on the connection.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Whether the last answer has been given.
    pub(super) fn has_ended(&self) -> bool {
        self.activity.ends_after_answer()
    }
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
        let (response, told) = self.app.respond_on(request, now, Some(self.peer), self.metrics_moved_to);
        let requests = self.parsed.get().saturating_add(1);
        self.parsed.set(requests);
        self.told.set(told.filter(|_| requests == 1 && !body_left));
        match response {
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
