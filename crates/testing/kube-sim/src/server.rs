//! Several API servers on one etcd, and their links to it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::server::Api;
use crate::api::service::ApiService;
use crate::faults::etcd::Lost;
use crate::net::Net;

/// One of a simulator's API servers. All have the same certificate, tokens, counters and fault switches ([`FaultScope::servers`]
/// names those that a fault hits); connections and the link to etcd are each one's own. Clones are the same server.
///
/// [`FaultScope::servers`]: crate::FaultScope::servers
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) api: Arc<Api>,
    pub(crate) net: Arc<Net>,
}

impl ApiServer {
    /// Another one on the same etcd.
    fn beside(&self, number: usize) -> io::Result<Self> {
        let api = Arc::new(Api { number, etcd: Arc::default(), ..self.api.as_ref().clone() });
        let net = self.net.beside(api.clone())?;
        Ok(ApiServer { api, net })
    }

    /// Which one it is: 0 is the first.
    pub fn number(&self) -> usize {
        self.api.number
    }

    /// `http://127.0.0.1:port` or `https://…`.
    pub fn url(&self) -> String {
        let scheme = if self.net.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.net.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.net.address
    }

    /// Returns true if requests can be answered at all (neither killed nor frozen).
    pub fn is_up(&self) -> bool {
        self.net.is_up()
    }

    /// It as a service, which is asked without a socket.
    pub fn service(&self) -> ApiService {
        self.net.service()
    }

    // --- its link to etcd ---

    /// Cuts it off from etcd, for these resources or, if none is named, for all. It goes on answering from its caches. What
    /// is written otherwise (by [`crate::Sim::cordon`], by another server) it does not learn.
    pub fn cut_off_from_etcd(&self, plurals: &[&str]) {
        self.api.etcd.lose(Lost::Everything, &self.api.store, plurals);
    }

    /// Its caches of these resources (of all, if none is named) get no more changes from etcd, while what is asked of etcd
    /// itself is answered: consistent reads, and writes.
    pub fn lose_streams_of_etcd(&self, plurals: &[&str]) {
        self.api.etcd.lose(Lost::Stream, &self.api.store, plurals);
    }

    /// Ends both: what was held back arrives all at once.
    pub fn mend_etcd(&self) {
        self.api.etcd.mend();
    }

    // --- its connections ---

    /// It is killed: port closed, connections reset. What is stored is kept.
    pub async fn kill(&self) {
        self.net.kill().await;
    }

    /// It is started again on the same port. Its caches are those of an etcd that was restored meanwhile.
    pub async fn restart(&self) -> io::Result<()> {
        self.api.etcd.started_again();
        self.net.restart().await
    }

    /// As SIGSTOP: everything stays open, nothing answers.
    pub fn freeze(&self) {
        self.net.freeze();
    }

    /// Ends [`ApiServer::freeze`], [`ApiServer::half_open`], [`ApiServer::blackhole_new`] and [`ApiServer::ignore_new`].
    pub fn heal(&self) {
        self.net.heal();
    }

    /// Every packet of the connections open now is dropped, both ways; new connections work.
    pub fn half_open(&self) {
        self.net.half_open();
    }

    /// Packets of new connections are dropped: connecting times out.
    pub fn blackhole_new(&self) -> io::Result<()> {
        self.net.blackhole_new()
    }

    /// New connections are accepted by the kernel and never served.
    pub fn ignore_new(&self) {
        self.net.ignore_new();
    }

    /// Resets every open connection.
    pub fn reset_connections(&self) {
        self.net.reset_connections();
    }
}

/// All API servers of a simulator.
pub(crate) struct ApiServers {
    pub(crate) first: ApiServer,
    others: Mutex<Vec<ApiServer>>,
}

impl ApiServers {
    /// One alone.
    pub(crate) fn new(first: ApiServer) -> Self {
        ApiServers { first, others: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ApiServer>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts another one.
    pub(crate) fn add(&self) -> io::Result<ApiServer> {
        let mut others = self.lock();
        let server = self.first.beside(others.len() + 1)?;
        others.push(server.clone());
        Ok(server)
    }

    /// Returns the first one first.
    pub(crate) fn all(&self) -> Vec<ApiServer> {
        std::iter::once(&self.first).chain(&*self.lock()).cloned().collect()
    }
}
