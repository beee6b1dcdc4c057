//! A response: its head, and its body of bytes that responses may share, sent in slices.

use super::slots::Slot;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
static CLOSE: HeaderValue = HeaderValue::from_static("close");
pub(super) static JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) static TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(super) static HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The response headers collected so far; a status and a body complete the response. It reuses the header map of its
/// request: hyper passes the same map to the next request of the connection, so a keep-alive connection allocates none.
pub(super) struct ResponseHead(HeaderMap);

impl ResponseHead {
    /// Takes over the header map of a request.
    pub(super) fn new(mut headers: HeaderMap) -> Self {
        headers.clear();
        headers.insert(CACHE_CONTROL, NO_STORE.clone());
        Self(headers)
    }

    /// Makes hyper close the connection after this response.
    pub(super) fn close(&mut self) {
        self.0.insert(CONNECTION, CLOSE.clone());
    }

    pub(super) fn header(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.insert(name, value);
    }

    pub(super) fn finish(
        mut self,
        status: StatusCode,
        format: &HeaderValue,
        body: impl Into<AnswerBody>,
    ) -> Response<AnswerBody> {
        self.0.insert(CONTENT_TYPE, format.clone());
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        *response.headers_mut() = self.0;
        response
    }

    pub(super) fn text(self, status: StatusCode, body: impl Into<Bytes>) -> Response<AnswerBody> {
        self.finish(status, &TEXT, body.into() as Bytes)
    }

    /// Answers an error in the JSON of `/health`.
    pub(super) fn error(self, status: StatusCode, error: &str) -> Response<AnswerBody> {
        let body = format!("{{\"status\":\"error\",\"error\":{}}}", serde_json::json!(error));
        self.finish(status, &JSON, Bytes::from(body))
    }
}

/// The most bytes handed to hyper at a time. hyper copies the bytes that it sends, so a client that does not
/// read costs this much and not a whole answer.
const SLICE: usize = 8 * 1024;

/// The body of an answer.
#[derive(Debug, Default)]
pub struct AnswerBody {
    pub(super) left: Bytes,
    /// The slot of this answer, released when hyper has taken the last slice, and when that must have happened.
    pub(super) slot: Option<(Slot, Instant)>,
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self { left: bytes, slot: None }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        if self.slot.as_ref().is_some_and(|(_, until)| nodegate_clock::now() > *until) {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let length = self.left.len().min(SLICE);
        let slice = self.left.split_to(length);
        if self.left.is_empty() {
            self.slot = None;
        }
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::slots::{Holder, Slots};
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn slices_are_bounded_and_share_the_answer() {
        let whole = Bytes::from((0..=255).cycle().take(3 * SLICE + 1).collect::<Vec<u8>>());
        let mut body = AnswerBody::from(whole.clone());
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        let mut at = 0;
        while let Some(frame) = body.frame().now_or_never().unwrap() {
            let slice = frame.unwrap().into_data().unwrap();
            assert!(slice.len() <= SLICE);
            assert_eq!(slice.as_ptr(), whole[at..].as_ptr(), "it is not a copy");
            at += slice.len();
        }
        assert!(at == whole.len() && body.is_end_stream());
    }

    #[test]
    fn an_answer_that_takes_too_long_is_cut_off_and_leaves_its_slot() {
        let slots = Arc::<Slots>::default();
        let slot = slots.take(Holder::Node, 1, 1).unwrap();
        let until = nodegate_clock::now() + Duration::from_millis(1);
        let mut body = AnswerBody { left: vec![0; 2 * SLICE].into(), slot: Some((slot, until)) };
        while nodegate_clock::now() <= until {}
        let cut = body.frame().now_or_never().unwrap().unwrap();
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(body);
        assert!(slots.take(Holder::Node, 1, 1).is_some());
    }
}
