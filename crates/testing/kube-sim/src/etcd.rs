//! What a simulator's one etcd and its several API servers can be made to do.

use crate::faults::etcd::Lost;
use crate::server::ApiServer;
use crate::sim::Sim;
use crate::store::Backup;
use std::io;

impl Sim {
    /// Returns a copy of what etcd holds now.
    pub fn back_up_etcd(&self) -> Backup {
        self.store().back_up()
    }

    /// etcd is restored from a copy: what was written since never was, and versions go on from the copy's.
    ///
    /// API servers that run meanwhile go on with what their caches hold, and wait for changes behind a version that does not
    /// exist yet, while consistent reads are answered from the copy. A restart ends that ([`ApiServer::restart`], after
    /// [`ApiServer::kill`]); then a watch from a version that does not exist yet is taken, and silent.
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

    /// [`ApiServer::cut_off_from_etcd`] of the first.
    pub fn cut_off_from_etcd(&self, plurals: &[&str]) {
        self.first().cut_off_from_etcd(plurals);
    }

    /// [`ApiServer::mend_etcd`] of the first.
    pub fn mend_etcd(&self) {
        self.first().mend_etcd();
    }
}
