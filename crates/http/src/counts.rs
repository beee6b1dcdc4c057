//! The counters of connections.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of the connections of one program. All its listeners share them.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl ConnectionCounts {
    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        let closed = self.closed.load(Ordering::Relaxed);
        self.opened.load(Ordering::Relaxed).saturating_sub(closed)
    }

    /// Encodes the four families `connections`, `connections_denied`, `connections_evicted` and
    /// `connections_refused`, for a collector.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let open = encoder.encode_descriptor("connections", "Open connections.", None, MetricType::Gauge)?;
        ConstGauge::new(self.open()).encode(open)?;
        let counters = [
            (
                "connections_denied",
                "Connections closed at once because --allow-from does not name their client.",
                &self.denied,
            ),
            ("connections_evicted", "Connections closed to make room for new ones.", &self.evicted),
            (
                "connections_refused",
                "Connections closed at once because all others were busy.",
                &self.refused,
            ),
        ];
        for (name, help, count) in counters {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count.load(Ordering::Relaxed)).encode(family)?;
        }
        Ok(())
    }

    pub(crate) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
