//! Responses: bodies, headers, and special answers.

use crate::store::status::ApiStatus;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// The error of a stream that a fault has cut. On it, hyper drops the connection (or resets the stream).
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stream cut by a fault switch")]
pub struct StreamCut;

pub type Body = UnsyncBoxBody<Bytes, StreamCut>;

pub(crate) type ApiReply = Response<Body>;

pub(crate) fn json(code: StatusCode, bytes: impl Into<Bytes>) -> ApiReply {
    typed(code, "application/json", bytes)
}

pub(crate) fn typed(code: StatusCode, media_type: &'static str, bytes: impl Into<Bytes>) -> ApiReply {
    let body = Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync();
    let mut reply = json_body(body);
    *reply.status_mut() = code;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// Returns a response with JSON that comes bit by bit.
pub(crate) fn json_body(body: Body) -> ApiReply {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Returns a response with a `Status`. The API server ends its JSON with a newline.
pub(crate) fn status(status: &ApiStatus) -> ApiReply {
    let mut reply = json(status.http_code(), status.json() + "\n");
    if let Some(seconds) = status.retry_after() {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status.http_code() == StatusCode::FORBIDDEN { unsniffed(reply) } else { reply }
}

fn unsniffed(mut reply: ApiReply) -> ApiReply {
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// Returns an answer in plain text, as Go's `http.Error` does.
pub(crate) fn plain(code: StatusCode, text: impl Into<Bytes>) -> ApiReply {
    unsniffed(typed(code, "text/plain; charset=utf-8", text))
}

/// Returns the answer of Go's `http.NotFound`.
pub(crate) fn plain_not_found() -> ApiReply {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns the answer of flow control when its queues are full: text, not a `Status`.
pub(crate) fn too_many_requests(retry_after: u32) -> ApiReply {
    let mut reply = plain(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after.max(1)));
    reply
}

/// A mark in the extensions of an answer: its connection takes no further requests.
#[derive(Clone, Copy, Debug)]
pub struct GoAway;

/// Returns a mark for no answer: the connection is closed, as Go's server does when a handler is aborted.
pub(crate) fn abandoned() -> ApiReply {
    let mut reply = json(StatusCode::OK, "");
    reply.extensions_mut().insert(StreamCut);
    reply
}
