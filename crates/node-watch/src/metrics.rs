//! Metrics of the watches: counts, and ages and addresses that are computed at each scrape so that they can't drift.

use crate::freshness::Transitions;
use nodegate_kube_follow::FailureReason;
use nodegate_readiness::{AtomicMoment, Board, Timeline};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of API server addresses that are kept. They rarely change; the oldest is dropped.
const MAX_SERVERS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    resource: &'static str,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestartLabels {
    resource: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: String,
}

/// The metrics of the watches; label values are closed sets.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    events: Family<EventLabels, Counter>,
    restarts: Family<RestartLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    pub(crate) node_proved: AtomicMoment,
    pub(crate) lease_renewed: AtomicMoment,
    last_event: AtomicMoment,
    /// The address of each API server, and whether it answered its last request.
    servers: Mutex<VecDeque<(String, bool)>>,
    transitions: Arc<Transitions>,
}

impl WatchMetrics {
    /// Returns the counts of the state machine's transitions.
    pub fn transitions(&self) -> Arc<Transitions> {
        self.transitions.clone()
    }

    /// Records whether the API server at `address` answered its last request.
    pub(crate) fn server(&self, address: &str, up: bool) {
        if address.is_empty() {
            return;
        }
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        // A failed connection is counted under the name. An address is known now, and nothing would ever renew the
        // entry of the name.
        servers.retain(|server| server.0 == address || server.0.parse::<SocketAddr>().is_ok());
        if let Some(server) = servers.iter_mut().find(|server| server.0 == address) {
            server.1 = up;
            return;
        }
        if servers.len() == MAX_SERVERS {
            servers.pop_front();
        }
        servers.push_back((address.to_owned(), up));
        debug_assert!(servers.len() <= MAX_SERVERS);
    }

    /// Adds the families to a registry, whose prefix is `nodegate`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry, board: Arc<Board>, timeline: Timeline) {
        // The series exist from the start, because the alerts use increase(), which misses the event that
        // creates a series.
        for resource in ["nodes", "leases"] {
            let reason = FailureReason::Unresponsive.to_string();
            drop(self.restarts.get_or_create(&RestartLabels { resource, reason }));
        }
        registry.register("watch_events", "Objects received from the API server", self.events.clone());
        registry.register(
            "watch_restarts",
            "Watch restarts after a failure, by reason",
            self.restarts.clone(),
        );
        registry.register(
            "api_requests",
            "Requests sent to the API server; code is none where no answer came",
            self.requests.clone(),
        );
        registry.register_collector(Box::new(Gauges { metrics: self.clone(), board, timeline }));
    }

    pub(crate) fn event(&self, resource: &'static str, r#type: &'static str, timeline: Timeline) {
        self.events.get_or_create(&EventLabels { resource, r#type }).inc();
        if resource == "nodes" {
            self.last_event.advance(timeline.at(nodegate_clock::now()));
        }
    }

    pub(crate) fn restart(&self, resource: &'static str, reason: FailureReason) {
        self.restarts.get_or_create(&RestartLabels { resource, reason: reason.to_string() }).inc();
    }

    pub(crate) fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&RequestLabels { verb, code }).inc();
    }
}

/// The gauges of the streams, of the last event and of the API servers, read at each scrape.
struct Gauges {
    metrics: Arc<WatchMetrics>,
    board: Arc<Board>,
    timeline: Timeline,
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.metrics.fmt(f)
    }
}

impl Gauges {
    fn proofs(&self, mut family: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.timeline.at(nodegate_clock::now());
        let own = [("node", &self.metrics.node_proved), ("lease", &self.metrics.lease_renewed)];
        for (stream, proved) in own {
            if let Some(proved) = proved.get() {
                let age = now.since(proved).as_secs_f64();
                family.encode_family(&[("stream", stream)])?.encode_gauge(&age)?;
            }
        }
        let catalog = self.board.catalog();
        for id in catalog.ids().filter(|id| catalog.name(*id).starts_with("service:")) {
            if let Some(age) = self.board.proof_age(id, now) {
                let stream = [("stream", catalog.name(id))];
                family.encode_family(&stream)?.encode_gauge(&age.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(last) = self.metrics.last_event.get() {
            let age = ConstGauge::new(self.timeline.at(nodegate_clock::now()).since(last).as_secs_f64());
            let help = "Time since the Node was last received, in a list or an event.";
            let unit = Some(&Unit::Seconds);
            age.encode(encoder.encode_descriptor("last_event_age", help, unit, age.metric_type())?)?;
        }
        let help = "Time since a stream was last proved: the Node itself, the Lease by its renewal, each watched Service.";
        self.proofs(encoder.encode_descriptor(
            "stream_proof_age",
            help,
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?)?;
        let help =
            "1 if the last request to the API server at this address was answered, 0 if not, or with 5xx.";
        let mut family = encoder.encode_descriptor("api_server_up", help, None, MetricType::Gauge)?;
        for (address, up) in &*self.metrics.servers.lock().unwrap_or_else(PoisonError::into_inner) {
            family.encode_family(&[("address", address.as_str())])?.encode_gauge(&u64::from(*up))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_named_once_and_not_too_many() {
        let readings = WatchMetrics::default();
        for number in 0..20 {
            readings.server(&format!("10.0.0.{number}:6443"), number % 2 == 0);
            readings.server("10.0.0.19:6443", false);
        }
        let servers = readings.servers.lock().unwrap().clone();
        assert_eq!(servers.len(), MAX_SERVERS);
        assert_eq!(servers.iter().filter(|(address, up)| address == "10.0.0.19:6443" && !up).count(), 1);
    }

    #[test]
    fn a_name_is_forgotten_once_its_address_is_known() {
        let readings = WatchMetrics::default();
        let servers = || Vec::from(readings.servers.lock().unwrap().clone());
        readings.server("api.example:6443", false);
        assert_eq!(servers(), [("api.example:6443".to_owned(), false)]);
        readings.server("10.0.0.1:6443", true);
        assert_eq!(servers(), [("10.0.0.1:6443".to_owned(), true)]);
    }
}
