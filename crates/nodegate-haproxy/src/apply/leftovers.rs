//! Servers that HAProxy still has for removed nodes.

use crate::apply::dynamic;
use crate::haproxy::socket::Runtime;
use std::collections::BTreeSet;

/// Servers that could not be deleted yet, and nodes whose own server stays until the next reload.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Servers that still have connections, as `backend/server`.
    pub(crate) servers: Vec<String>,
    /// The names of the nodes.
    pub(crate) nodes: BTreeSet<String>,
}

impl Leftovers {
    /// Returns true if HAProxy still has servers of a removed node.
    pub(crate) fn has(&self, node: &str) -> bool {
        let of_node = |server: &String| server.split_once('/').is_some_and(|(_, name)| name == node);
        self.nodes.contains(node) || self.servers.iter().any(of_node)
    }

    /// Deletes servers whose connections have ended; returns true if some are left.
    pub(crate) async fn delete(&mut self, runtime: &Runtime) -> bool {
        let servers = std::mem::take(&mut self.servers);
        if !servers.is_empty() {
            self.servers = dynamic::delete(runtime, servers.clone()).await.unwrap_or(servers);
        }
        !self.servers.is_empty()
    }
}
