//! The metrics of the server and the board, and the exposition of all; `crates/agent/src/assembly.rs` adds those of
//! the watches and of the connections.

mod board_metrics;
mod counters;
mod prober_metrics;
mod process;

pub(crate) use board_metrics::StateCollector;
pub use counters::Metrics;

use nodegate_http::Format;
use process::Process;
use prometheus_client::registry::Registry;
use std::fmt;

/// The metric families of the agent.
pub(crate) struct Registries {
    pub(crate) own: Registry,
    /// The `process_` families. They have no prefix, because every dashboard expects these names.
    process: Registry,
}

impl Registries {
    pub(crate) fn new(state: StateCollector) -> Self {
        let mut own = Registry::with_prefix("nodegate");
        own.register_collector(Box::new(state));
        let mut process = Registry::with_prefix("process");
        process.register_collector(Box::new(Process));
        Self { own, process }
    }

    pub(crate) fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        format.encode(&[&self.own, &self.process])
    }
}
