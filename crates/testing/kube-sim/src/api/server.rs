//! The parts of an API server, and the server as a tower service without a socket.

// The service shares everything with the API server behind sockets: authentication, the fault switches, watches with
// streamed bodies. It uses tokio's clock only, so it runs under paused time.

use crate::api::auth::Tokens;
use crate::counters::Counters;
use crate::faults::etcd::Etcd;
use crate::faults::health::{Distribution, Health};
use crate::faults::requests::Faults;
use crate::store::Store;
use crate::wire::reply::{self, Body, StreamCut};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{BoxError, Service};

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// True if a request without a token is `system:anonymous`, who may read health and version. Otherwise it
    /// is the administrator, as on the insecure port that API servers once had.
    pub anonymous: bool,
    /// The distribution that the simulator imitates.
    pub distribution: Distribution,
}

/// The simulated API server, without its sockets. Clones are other servers on the same etcd.
#[derive(Clone)]
pub(crate) struct Api {
    /// The number of the server; 0 is the first.
    pub number: usize,
    /// The store of all objects.
    pub store: Arc<Store>,
    /// The users and their tokens.
    pub tokens: Arc<Tokens>,
    /// The fault switches of the API.
    pub faults: Arc<Faults>,
    pub counters: Arc<Counters>,
    /// The server's link to etcd.
    pub etcd: Arc<Etcd>,
    /// The failing parts of the server's health.
    pub health: Arc<Health>,
    pub settings: Settings,
}

impl Api {
    pub(crate) fn new(store: Arc<Store>, settings: Settings) -> Self {
        Api {
            number: 0,
            store,
            tokens: Arc::new(Tokens::new()),
            faults: Arc::default(),
            counters: Arc::default(),
            etcd: Arc::default(),
            health: Arc::default(),
            settings,
        }
    }
}

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
