//! An API server that is asked without a socket, as tower has it.
//!
//! Behind it is what is behind the sockets: who asks, the fault switches, watches whose bodies go on. Nothing in it looks at
//! another clock than tokio's, so that it runs under paused time.

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
    /// The connection is closed in place of an answer.
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
