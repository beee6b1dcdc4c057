//! API servers on one etcd, and their links to it.

// The service uses tokio's clock only, so it runs under paused time.

use crate::api_parts::Api;
use crate::faults::etcd::Lost;
use crate::net::Net;
use crate::wire::reply::{Body, StreamCut};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tower::{BoxError, Service};

/// One of a simulator's API servers, which is also a service without a socket. Clones are the same server.
/// All share certificate, tokens, counters and fault switches; connections and the link to etcd are its own.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) api: Arc<Api>,
    pub(crate) net: Arc<Net>,
}

/// Faults of its connections are those of its sockets.
impl Deref for ApiServer {
    type Target = Net;

    fn deref(&self) -> &Net {
        &self.net
    }
}

impl ApiServer {
    /// Returns the server with this number on the same etcd, without sockets.
    pub(crate) fn beside(&self, number: usize) -> Self {
        let (etcd, health) = (Arc::default(), Arc::default());
        let api = Arc::new(Api { number, etcd, health, ..self.api.as_ref().clone() });
        let net = Net::without_sockets(api.clone(), self.net.address());
        ApiServer { api, net }
    }

    /// Cuts the server off from etcd for these resources (none: for all): it answers from its caches.
    pub fn cut_off_from_etcd(&self, plurals: &[&str]) {
        self.api.etcd.lose(Lost::Everything, &self.api.store, plurals);
    }

    /// Stops the changes from etcd to the caches of these resources (none: of all). etcd still answers.
    pub fn lose_streams_of_etcd(&self, plurals: &[&str]) {
        self.api.etcd.lose(Lost::Stream, &self.api.store, plurals);
    }

    /// Mends both kinds of cuts. All changes that were held back arrive at once.
    pub fn mend_etcd(&self) {
        self.api.etcd.mend();
    }

    /// Lets these parts of `/readyz` fail, and no others. `/livez` has `etcd`, too.
    pub fn fail_readyz(&self, parts: &[&str]) {
        self.api.health.fail(parts);
    }

    /// Takes the parts that ask etcd out of `/readyz`, as in OpenShift. `/livez` keeps its own.
    pub fn take_etcd_out_of_readyz(&self) {
        self.api.health.readyz_without_etcd.store(true, Ordering::Relaxed);
    }

    /// Starts the server again on the same port, with the content of an etcd that was restored meanwhile.
    pub async fn restart(&self) -> io::Result<()> {
        self.api.etcd.started_again();
        self.net.restart().await
    }
}

impl<B> Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    /// The error means that the server closes the connection in place of an answer.
    type Error = StreamCut;
    type Future = BoxFuture<'static, Result<Response<Body>, StreamCut>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamCut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.api.clone().serve(request))
    }
}
