//! Several API servers on one etcd, and their links to it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::api::server::Api;
use crate::api::service::ApiService;
use crate::net::Net;
use crate::sim::Sim;

/// Another API server on the same etcd, with the same certificate; gone when dropped. It shares tokens, fault switches for
/// requests and counters with the first, and has connections and a link to etcd of its own.
pub struct Server {
    net: Arc<Net>,
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.net.address
    }

    /// The API server as a service, which is asked without a socket.
    pub fn service(&self) -> ApiService {
        self.net.service()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.net.stop();
    }
}

impl Sim {
    /// Starts another API server on the same etcd.
    pub fn another_server(&self) -> io::Result<Server> {
        let first = &self.inner.api;
        let api = Api { etcd: Arc::default(), ..first.as_ref().clone() };
        Ok(Server { net: self.inner.net.beside(Arc::new(api))? })
    }

    /// Cuts the first API server off from etcd, for these resources or, if none is named, for all. It goes on answering
    /// from its caches. What is written otherwise (by [`Sim::cordon`], by another server) it does not learn.
    pub fn cut_off_from_etcd(&self, plurals: &[&str]) {
        self.inner.api.etcd.cut(self.store(), plurals);
    }

    /// Ends that: what was held back arrives all at once.
    pub fn mend_etcd(&self) {
        self.inner.api.etcd.mend();
    }
}
