//! Metrics of the watches: counts, and ages and addresses that are computed at each scrape so that they can't drift.

use crate::freshness::Transitions;
use nodegate_kube_follow::FailureReason;
use nodegate_program::{alone, gauge, seconds};
use nodegate_readiness::{AtomicMoment, Board, Timeline};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of API server addresses that are kept. They rarely change; the oldest is dropped.
const MAX_SERVERS: usize = 8;

/// The names and values of a metric's labels.
type Labels = [(&'static str, Cow<'static, str>); 2];

/// The metrics of the watches; label values are closed sets.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    events: Family<Labels, Counter>,
    restarts: Family<Labels, Counter>,
    requests: Family<Labels, Counter>,
    pub(crate) node_proved: AtomicMoment,
    pub(crate) lease_renewed: AtomicMoment,
    last_event: AtomicMoment,
    /// The address of each API server, and whether it answered its last request.
    servers: Mutex<VecDeque<(String, bool)>>,
    /// The counts of the state machine's transitions.
    pub transitions: Arc<Transitions>,
}

impl WatchMetrics {
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
    }

    /// Adds the families to a registry, whose prefix is `nodegate`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry, board: Arc<Board>, timeline: Timeline) {
        // The series exist from the start, because the alerts use increase(), which misses the event that
        // creates a series.
        for resource in ["nodes", "leases"] {
            drop(self.restarts.get_or_create(&restart_labels(resource, FailureReason::Unresponsive)));
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

    pub(crate) fn event(&self, resource: &'static str, kind: &'static str, timeline: Timeline) {
        self.events.get_or_create(&[("resource", resource.into()), ("type", kind.into())]).inc();
        if resource == "nodes" {
            self.last_event.advance(timeline.at(nodegate_clock::now()));
        }
    }

    pub(crate) fn restart(&self, resource: &'static str, reason: FailureReason) {
        self.restarts.get_or_create(&restart_labels(resource, reason)).inc();
    }

    pub(crate) fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or("none".into(), |code| code.to_string().into());
        self.requests.get_or_create(&[("verb", verb.into()), ("code", code)]).inc();
    }
}

fn restart_labels(resource: &'static str, reason: FailureReason) -> Labels {
    [("resource", resource.into()), ("reason", reason.to_string().into())]
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

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (now, catalog) = (self.timeline.at(nodegate_clock::now()), self.board.catalog());
        let ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let last = self.metrics.last_event.get().map(|at| alone(ms(now.since(at))));
        let help = "Time since the Node was last received, in a list or an event.";
        seconds(&mut encoder, "last_event_age", help, last)?;
        let own = [("node", &self.metrics.node_proved), ("lease", &self.metrics.lease_renewed)];
        let own = own.into_iter().filter_map(|(stream, proved)| Some((stream, now.since(proved.get()?))));
        let services = catalog.ids().filter(|id| catalog.name(*id).starts_with("service:"));
        let services = services.filter_map(|id| Some((catalog.name(id), self.board.proof_age(id, now)?)));
        let proved = own.chain(services).map(|(stream, age)| ([("stream", stream)], ms(age)));
        let help = "Time since a stream was last proved: the Node itself, the Lease by its renewal, each watched Service.";
        seconds(&mut encoder, "stream_proof_age", help, proved)?;
        let servers = self.metrics.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let up = servers.iter().map(|(address, up)| ([("address", address.as_str())], u64::from(*up)));
        let help =
            "1 if the last request to the API server at this address was answered, 0 if not, or with 5xx.";
        gauge(&mut encoder, "api_server_up", help, up)
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
        for (server, up) in [("api.example:6443", false), ("10.0.0.1:6443", true)] {
            readings.server(server, up);
            assert_eq!(Vec::from(readings.servers.lock().unwrap().clone()), [(server.to_owned(), up)]);
        }
    }
}
