//! The counters of connections.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The counters of the connections of one program. All its listeners share them.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCounts {
    pub(crate) open: Gauge,
    pub(crate) denied: Counter,
    pub(crate) evicted: Counter,
    pub(crate) refused: Counter,
}

impl ConnectionCounts {
    /// Adds the four families `connections`, `connections_denied`, `connections_evicted` and
    /// `connections_refused` to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections", self.open.clone());
        let counters = [
            ("denied", "because --allow-from does not name their client", &self.denied),
            ("evicted", "to make room for new ones", &self.evicted),
            ("refused", "unread because too many came at once", &self.refused),
        ];
        for (what, why, counter) in counters {
            let help = format!("Connections closed {why}");
            registry.register(format!("connections_{what}"), help, counter.clone());
        }
    }
}
