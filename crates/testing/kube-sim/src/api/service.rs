//! An API server without a socket, as a tower service.

// It shares everything with the API server behind sockets: authentication, the fault switches, watches with
// streamed bodies. It uses tokio's clock only, so it runs under paused time.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use tower::{BoxError, Service};

use super::server::Api;
use crate::wire::reply::{self, Body, StreamCut};

/// One API server. Clones are the same one.
#[derive(Clone)]
pub struct ApiService {
    api: Arc<Api>,
}

impl ApiService {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api }
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    /// The error means that the server closes the connection in place of an answer.
    type Error = StreamCut;
    type Future = BoxFuture<'static, Result<Response<Body>, StreamCut>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamCut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.api.clone();
        Box::pin(async move {
            let reply = api.serve(request).await;
            if reply::is_abandoned(&reply) { Err(StreamCut) } else { Ok(reply) }
        })
    }
}
