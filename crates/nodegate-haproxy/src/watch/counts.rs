//! Counters of the traffic with the API server.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// Requests, events and restarts of all watches.
#[derive(Debug, Default)]
pub struct Counts {
    requests: Family<Request, Counter>,
    events: Counter,
    restarts: Family<Kind, Counter>,
}

impl Counts {
    /// Registers the counters.
    pub fn register(&self, all: &mut Registry) {
        all.register(
            "api_requests",
            "Requests to the API server; code is none without an answer",
            self.requests.clone(),
        );
        all.register("watch_events", "Objects received from the API server", self.events.clone());
        all.register("watch_restarts", "Watches begun anew, by the reason", self.restarts.clone());
    }

    pub(crate) fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&Request { verb, code }).inc();
    }

    pub(super) fn event(&self) {
        self.events.inc();
    }

    pub(super) fn restart(&self, kind: &'static str) {
        self.restarts.get_or_create(&Kind { kind }).inc();
    }
}
