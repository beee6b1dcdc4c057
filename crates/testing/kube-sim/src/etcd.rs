//! Operations on a simulator's etcd and its API servers.

use crate::faults::etcd::Lost;
use crate::server::ApiServer;
use crate::sim::Sim;
use crate::store::Backup;
use std::io;

impl Sim {
    /// Returns a copy of etcd's current content.
    pub fn back_up_etcd(&self) -> Backup {
        self.store().back_up()
    }

    /// Restores etcd from a copy. Later writes are lost, and versions continue from the copy's version.
    ///
    /// API servers that run meanwhile continue with the content of their caches. They wait for changes after
    /// a version that does not exist yet, while etcd answers consistent reads from the copy. A restart ends
    /// that ([`ApiServer::restart`], after [`ApiServer::kill`]). After it, the API server accepts a watch
    /// from a version that does not exist yet, and the watch stays silent.
    pub fn restore_etcd(&self, backup: &Backup) {
        for server in self.servers() {
            server.api.etcd.lose(Lost::History, self.store(), &[]);
        }
        self.store().restore(backup);
    }

    /// Returns all API servers, the first one first.
    pub fn servers(&self) -> Vec<ApiServer> {
        self.inner.servers.all()
    }

    /// Starts another API server on the same etcd.
    pub fn another_server(&self) -> io::Result<ApiServer> {
        self.inner.servers.add()
    }

    /// Calls [`ApiServer::cut_off_from_etcd`] of the first server.
    pub fn cut_off_from_etcd(&self, plurals: &[&str]) {
        self.first().cut_off_from_etcd(plurals);
    }

    /// Calls [`ApiServer::mend_etcd`] of the first server.
    pub fn mend_etcd(&self) {
        self.first().mend_etcd();
    }
}
