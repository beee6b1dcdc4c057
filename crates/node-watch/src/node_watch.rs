//! What the loops work with: the settings and handles of all of them, and the progress of the first connection.

use crate::metrics::WatchMetrics;
use nodegate_kube_follow::Connector;
use nodegate_readiness::{Board, Liveness, Moment, Timeline};
use std::sync::Arc;
use tokio::sync::watch;

/// The settings and handles of the loops.
#[derive(Clone)]
pub struct NodeWatch {
    /// The name of the own Node.
    pub node_name: String,
    /// The transport of the clients.
    pub connector: Connector,
    /// The board for facts and proof.
    pub board: Arc<Board>,
    /// Converts instants to moments.
    pub timeline: Timeline,
    /// The driver's liveness reports.
    pub liveness: Arc<Liveness>,
    /// The counters of events and requests.
    pub metrics: Arc<WatchMetrics>,
}

impl NodeWatch {
    pub(crate) fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }
}

/// The progress of the first connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// The API server has not answered yet.
    Connecting,
    /// No client could be built, because credentials or a usable kubeconfig are missing; the agent retries.
    NoClient,
    /// The Node, or its absence, has been read once, and the watched Services, as far as that is allowed.
    Synced,
}

/// A handle on the startup. Each follower has a clone, and drops it when its first list is complete or can't be had.
/// With the last one, the startup is synced.
pub(crate) type FirstList = Arc<LastDrop>;

pub(crate) struct LastDrop(pub(crate) watch::Sender<Startup>);

impl Drop for LastDrop {
    fn drop(&mut self) {
        self.0.send_replace(Startup::Synced);
    }
}
