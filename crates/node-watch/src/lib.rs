//! Watches the node's own Node object and its Lease, and keeps proof that the cache follows the API server.
//!
//! Three loops share the work: one follows the Node, one follows the Lease whose renewals are a free heartbeat, and the
//! guard asks the API server once when both have gone silent. Only this crate knows Kubernetes' client; what it learns
//! goes to the [`Board`] in the core's words.

mod backoff;
mod client;
mod follow;
mod guard;
mod lines;
mod metrics;
mod objects;
mod proof;
mod pulse;
mod resolver;

pub use backoff::Backoff;
pub use client::{ClientError, connect};
pub use metrics::WatchMetrics;
pub use pulse::Ear;

use nodegate_readiness::{Beats, Board, Timeline};
use proof::Proof;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How far the first connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// No answer yet.
    Connecting,
    /// No client could be built, for want of credentials or a usable kubeconfig; it is tried again.
    NoClient,
    /// The Node has been read (or its absence) once.
    Synced,
}

/// What the loops need to know.
#[derive(Clone)]
pub struct NodeWatch {
    /// The node's name.
    pub node_name: String,
    /// Freshness older than this is stale; the guard asks well before.
    pub stale_after: Duration,
    /// Where facts and proof go.
    pub board: Arc<Board>,
    /// Turns instants into moments.
    pub timeline: Timeline,
    /// Where the guard says that it is alive.
    pub beats: Arc<Beats>,
    /// What is counted.
    pub metrics: Arc<WatchMetrics>,
}

impl NodeWatch {
    /// Runs the loops on the current runtime, forever; dropping the future ends them and closes every connection.
    pub async fn run(self, startup: watch::Sender<Startup>) {
        let proof = Arc::new(Proof::new(self.board.clone(), self.timeline));
        let node = follow::node(&self, proof.clone(), startup);
        let lease = follow::lease(&self, proof.clone());
        let guard = guard::run(&self, proof.clone());
        tokio::join!(node, lease, guard);
    }
}
