//! What befalls the servers' processes and the way to them, and what is counted there.

use std::time::{Duration, Instant};

/// What is the matter with a server's process and its cable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    pub(crate) killed: bool,
    pub(crate) frozen: bool,
    pub(crate) unreachable: bool,
    pub(crate) late: Duration,
    pub(crate) late_services: Duration,
}

/// The consistency check is refused so many times more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    /// The servers that refuse it.
    pub(crate) servers: Vec<usize>,
    pub(crate) times: u32,
    pub(crate) code: u16,
    /// Seconds; 0 for none.
    pub(crate) retry_after: u32,
}

/// What the agent asked of the API.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ApiRequest {
    /// Requests, answered or not.
    pub(crate) requests: u64,
    /// Connections that were opened.
    pub(crate) connections: u64,
    /// The most connections that were open at once.
    pub(crate) most_open: usize,
    /// When the last consistent read was sent that was answered.
    pub(crate) last_consistent_read: Option<Instant>,
    /// The first request for Nodes since [`Network::mark`].
    pub(crate) first_for_nodes: Option<Instant>,
}
