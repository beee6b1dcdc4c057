//! Responses: bodies, headers, and special answers.

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};

use crate::store::status::ApiStatus;

/// The error of a stream that a fault has cut. On it, hyper drops the connection (or resets the stream).
#[derive(Debug, thiserror::Error)]
#[error("stream cut by a fault switch")]
pub struct StreamCut;

/// Any response body.
pub type Body = UnsyncBoxBody<Bytes, StreamCut>;

/// A response of the simulator.
pub(crate) type ApiReply = Response<Body>;

/// Go's net/http buffers this many bytes before it omits the Content-Length.
const SMALL: usize = 2_048;

/// Returns a whole body.
pub(crate) fn body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body in pieces, without a length.
pub(crate) fn chunks(pieces: Vec<Bytes>) -> Body {
    StreamBody::new(stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece))))).boxed_unsync()
}

/// Returns a response with a JSON body.
pub(crate) fn json(code: StatusCode, bytes: impl Into<Bytes>) -> ApiReply {
    typed(code, "application/json", bytes)
}

/// Returns a response with a body of any type.
pub(crate) fn typed(code: StatusCode, media_type: &'static str, bytes: impl Into<Bytes>) -> ApiReply {
    let bytes: Bytes = bytes.into();
    let length = bytes.len();
    let mut reply = if length > SMALL {
        Response::new(chunks(vec![bytes]))
    } else {
        let mut reply = Response::new(body(bytes));
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        reply
    };
    *reply.status_mut() = code;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// Returns a JSON response in pieces.
pub(crate) fn json_pieces(pieces: Vec<Bytes>) -> ApiReply {
    if pieces.iter().map(Bytes::len).sum::<usize>() <= SMALL {
        return json(StatusCode::OK, pieces.concat());
    }
    stream_reply(chunks(pieces))
}

/// Returns a response with a streamed body.
pub(crate) fn stream_reply(body: Body) -> ApiReply {
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
    if status.code == 403 {
        reply
            .headers_mut()
            .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    }
    reply
}

/// Returns the answer of Go's `http.NotFound`.
pub(crate) fn plain_not_found() -> ApiReply {
    let mut reply = typed(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n");
    reply
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    reply
}

/// Returns the answer of flow control when its queues are full: Go's `http.Error`, not a `Status`.
pub(crate) fn too_many_requests(retry_after: u32) -> ApiReply {
    let text = "Too many requests, please try again later.\n";
    let mut reply = typed(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text);
    let headers = reply.headers_mut();
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    headers.insert(RETRY_AFTER, HeaderValue::from(retry_after.max(1)));
    reply
}

/// Returns an empty body, for HEAD.
pub(crate) fn nothing() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A mark in the extensions of an answer: its connection takes no further requests.
#[derive(Clone, Copy, Debug)]
pub struct GoAway;

/// The mark of [`abandoned`].
#[derive(Clone)]
struct Abandoned;

/// Returns a mark for no answer: the connection is closed, as Go's server does when a handler is aborted.
pub(crate) fn abandoned() -> ApiReply {
    let mut reply = Response::new(nothing());
    reply.extensions_mut().insert(Abandoned);
    reply
}

/// Returns true if the request gets no answer.
pub(crate) fn is_abandoned(reply: &ApiReply) -> bool {
    reply.extensions().get::<Abandoned>().is_some()
}
