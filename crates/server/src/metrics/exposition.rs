//! `/metrics` in both formats.

use super::process::Process;
use super::state::StateCollector;
use super::text;
use crate::app::Wiring;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
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

    /// `OpenMetrics` 1.0.0.
    pub(crate) fn open_metrics(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.own)?;
        encode_registry(&mut text, &self.process)?;
        encode_eof(&mut text)?;
        Ok(text)
    }

    /// Prometheus text 0.0.4.
    pub(crate) fn prometheus(&self) -> Result<String, fmt::Error> {
        self.open_metrics().map(|text| text::from_open_metrics(&text))
    }
}
