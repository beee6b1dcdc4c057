//! Holds the faults of the servers' processes and of the path to them, and the agent's use of the API.
//! `network.rs` keeps them.

use std::time::{Duration, Instant};

/// The faults of a server's process and of the path to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerFaults {
    pub(crate) killed: bool,
    pub(crate) frozen: bool,
    pub(crate) unreachable: bool,
    pub(crate) late: Duration,
}

/// The refusals of consistency checks that are still due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    /// The servers that refuse checks.
    pub(crate) servers: Vec<usize>,
    pub(crate) times: u32,
    pub(crate) code: u16,
    /// The `Retry-After` in seconds; 0 for none.
    pub(crate) retry_after: u32,
}

/// The agent's use of the API.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ApiUsage {
    /// The number of requests, answered or not.
    pub(crate) requests: u64,
    /// The number of connections that were opened.
    pub(crate) connections: u64,
    /// The largest number of connections that were open at once.
    pub(crate) most_open: usize,
    /// The time at which the last answered consistent read was sent.
    pub(crate) last_consistent_read: Option<Instant>,
    /// The time of the first request for Nodes since `Network::mark`.
    pub(crate) first_for_nodes: Option<Instant>,
}
