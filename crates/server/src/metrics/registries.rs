//! The registries of `/metrics`.

use super::board_metrics::StateCollector;
use super::process::Process;
use nodegate_http::Format;
use prometheus_client::registry::Registry;
use std::fmt;

/// The metric families of the agent.
pub(crate) struct Registries {
    own: Registry,
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

    pub(crate) fn own_mut(&mut self) -> &mut Registry {
        &mut self.own
    }

    pub(crate) fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        format.encode(&[&self.own, &self.process])
    }
}
