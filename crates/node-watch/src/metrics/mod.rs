//! Metrics of the watches: counts, and the age of their data.

mod gauges;

use crate::freshness::Transitions;
use gauges::{Gauges, Readings};
use nodegate_kube_follow::FailureReason;
use nodegate_readiness::{Board, Moment, Timeline};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    resource: &'static str,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestartLabels {
    resource: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: String,
}

/// Counters of the watches; label values are closed sets.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    events: Family<EventLabels, Counter>,
    restarts: Family<RestartLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    readings: Arc<Readings>,
    transitions: Arc<Transitions>,
}

impl WatchMetrics {
    /// Returns the counts of the state machine's transitions.
    pub fn transitions(&self) -> Arc<Transitions> {
        self.transitions.clone()
    }

    pub(crate) fn node_proved(&self, at: Moment) {
        self.readings.node_proved.advance(at);
    }

    pub(crate) fn lease_renewed(&self, at: Moment) {
        self.readings.lease_renewed.advance(at);
    }

    /// Records if the API server at this address answered its last request, which used this name.
    pub(crate) fn server(&self, address: &str, named: &str, up: bool) {
        self.readings.server(address, named, up);
    }

    /// Adds the families to a registry, whose prefix is `nodegate`.
    pub fn register(&self, registry: &mut Registry, board: Arc<Board>, timeline: Timeline) {
        // The series exist from the start, because the alerts use increase(), which misses the event that
        // creates a series.
        for resource in ["nodes", "leases"] {
            drop(
                self.restarts
                    .get_or_create(&RestartLabels { resource, reason: FailureReason::Unresponsive.as_str() }),
            );
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
        registry.register_collector(Box::new(Gauges { readings: self.readings.clone(), board, timeline }));
    }

    pub(crate) fn event(&self, resource: &'static str, r#type: &'static str, timeline: Timeline) {
        self.events.get_or_create(&EventLabels { resource, r#type }).inc();
        if resource == "nodes" {
            self.readings.last_event.advance(timeline.at(nodegate_clock::now()));
        }
    }

    pub(crate) fn restart(&self, resource: &'static str, reason: &'static str) {
        self.restarts.get_or_create(&RestartLabels { resource, reason }).inc();
    }

    pub(crate) fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&RequestLabels { verb, code }).inc();
    }
}
