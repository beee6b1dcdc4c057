//! What `/metrics` has.

use super::process::Process;
use super::state::StateCollector;
use crate::answer::app::Wiring;
use nodegate_exposition::Format;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

pub(crate) struct Exposition {
    own: Registry,
    /// The `process_` families carry no prefix of ours: every dashboard knows them by these names.
    process: Registry,
}

impl Exposition {
    pub(crate) fn new(wiring: &Wiring) -> Self {
        let mut own = Registry::with_prefix("nodegate");
        own.register_collector(Box::new(StateCollector {
            board: Arc::clone(&wiring.board),
            timeline: wiring.timeline,
            metrics: Arc::clone(&wiring.metrics),
            version: wiring.version,
            revision: wiring.revision,
        }));
        let mut process = Registry::with_prefix("process");
        process.register_collector(Box::new(Process));
        Self { own, process }
    }

    pub(crate) fn registry_mut(&mut self) -> &mut Registry {
        &mut self.own
    }

    pub(crate) fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        format.encode(&[&self.own, &self.process])
    }
}
