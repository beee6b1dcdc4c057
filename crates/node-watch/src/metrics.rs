//! What is counted of the watches.

use crate::freshness::Transitions;
use nodegate_kube_follow::Reason;
use nodegate_readiness::{AtomicMoment, Moment, Timeline};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
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
    last_event: Arc<AtomicMoment>,
    lease_renewed: Arc<AtomicMoment>,
    transitions: Arc<Transitions>,
}

impl WatchMetrics {
    /// Which ways the freshness of the cache has gone.
    pub fn transitions(&self) -> Arc<Transitions> {
        self.transitions.clone()
    }

    pub(crate) fn lease_renewed(&self, at: Moment) {
        self.lease_renewed.advance(at);
    }

    /// Adds the families to a registry, whose prefix is `nodegate`.
    pub fn register(&self, registry: &mut Registry, timeline: Timeline) {
        // An alert counts these with increase(), which does not see the event that brings a series into being.
        for resource in ["nodes", "leases"] {
            drop(self.restarts.get_or_create(&RestartLabels { resource, reason: Reason::Deaf.as_str() }));
        }
        registry.register("watch_events", "Objects received from the API server", self.events.clone());
        registry.register(
            "watch_restarts",
            "Watches begun anew after a fault, by its reason",
            self.restarts.clone(),
        );
        registry.register(
            "api_requests",
            "Requests sent to the API server; code is none where no answer came",
            self.requests.clone(),
        );
        registry.register_collector(Box::new(LastEvent { last_event: self.last_event.clone(), timeline }));
    }

    pub(crate) fn event(&self, resource: &'static str, r#type: &'static str, timeline: Timeline) {
        self.events.get_or_create(&EventLabels { resource, r#type }).inc();
        if resource == "nodes" {
            self.last_event.advance(timeline.at(nodegate_clock::now()));
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

/// The age of the newest event, computed when asked so that it can't drift.
#[derive(Debug)]
struct LastEvent {
    last_event: Arc<AtomicMoment>,
    timeline: Timeline,
}

impl Collector for LastEvent {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(last) = self.last_event.get() else { return Ok(()) };
        let gauge = ConstGauge::new(self.timeline.at(nodegate_clock::now()).since(last).as_secs_f64());
        let help = "Time since the Node was last received, in a list or an event.";
        let unit = Some(&Unit::Seconds);
        gauge.encode(encoder.encode_descriptor("last_event_age", help, unit, gauge.metric_type())?)
    }
}
