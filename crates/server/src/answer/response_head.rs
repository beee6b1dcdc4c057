//! The head of a response. It reuses the header map of its request. hyper passes the same map to the next
//! request of the connection, so a kept connection allocates none.

use super::body::AnswerBody;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use nodegate_readiness::Verdict;

static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
static ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
static CLOSE: HeaderValue = HeaderValue::from_static("close");
pub(super) static JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) static TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(super) static HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// A response, and the verdict in it if it has one.
pub(super) type Answered = (Response<AnswerBody>, Option<Verdict>);

/// A response that is there, or one that must wait.
pub(super) enum Answering {
    Now(Answered),
    Later(BoxFuture<'static, Answered>),
}

impl From<Response<AnswerBody>> for Answering {
    fn from(response: Response<AnswerBody>) -> Self {
        Self::Now((response, None))
    }
}

/// The response headers collected so far; a status and a body complete the response.
pub(super) struct ResponseHead(HeaderMap);

impl ResponseHead {
    /// Takes over the header map of a request.
    pub(super) fn new(mut headers: HeaderMap) -> Self {
        headers.clear();
        headers.insert(CACHE_CONTROL, NO_STORE.clone());
        Self(headers)
    }

    /// Adds the `Allow` header.
    pub(super) fn allow(&mut self) {
        self.0.insert(ALLOW, ALLOWED.clone());
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

    /// Answers 200 with a text, or this status with an error.
    pub(super) fn result<T: Into<Bytes>, E: Into<Bytes>>(
        self,
        result: Result<T, E>,
        or: StatusCode,
    ) -> Response<AnswerBody> {
        match result {
            Ok(text) => self.text(StatusCode::OK, text),
            Err(error) => self.text(or, error),
        }
    }
}
