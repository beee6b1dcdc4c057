//! The metrics of the gate. The values of each label are a closed set.

use crate::decision::{AgentReply, Answer, Why};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::time::Duration;

/// The bounds of a hold, in seconds.
const HOLDS: [f64; 10] = [0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0];

/// Counters by their labels: names and values.
type Counters<const N: usize> = Family<[(&'static str, &'static str); N], Counter>;

/// The metrics of the gate.
#[derive(Debug)]
pub struct GateMetrics {
    reviews: Counters<2>,
    unacknowledged: Counter,
    rejected: Counters<1>,
    lookups: Counters<1>,
    hold: Histogram,
    pub(crate) held_pods: Gauge,
    pub(crate) self_check: Gauge,
    pub(crate) certificate_expiry: Gauge,
}

impl Default for GateMetrics {
    fn default() -> Self {
        let metrics = Self {
            reviews: Family::default(),
            unacknowledged: Counter::default(),
            rejected: Family::default(),
            lookups: Family::default(),
            hold: Histogram::new(HOLDS),
            held_pods: Gauge::default(),
            self_check: Gauge::default(),
            certificate_expiry: Gauge::default(),
        };
        // Alerts on rates need the series before the first event.
        for why in ["bad_review", "too_many"] {
            let _ = metrics.rejected.get_or_create(&[("why", why)]);
        }
        for result in ["summary", "unreachable", "wrong_agent", "overloaded"] {
            let _ = metrics.lookups.get_or_create(&[("result", result)]);
        }
        for why in [Why::ERROR, Why::MAX_HOLD, Why::MISMATCH] {
            let _ = metrics.reviews.get_or_create(&[("answer", "allowed"), ("why", why.0)]);
        }
        metrics
    }
}

impl GateMetrics {
    /// Returns the registry with all families.
    pub fn registry(self: &Arc<Self>) -> Registry {
        let mut registry = Registry::with_prefix("nodegate_gate");
        let all = &mut registry;
        all.register("reviews", "Reviews of evictions, by the answer and its reason", self.reviews.clone());
        let help = "Evictions that went on although load balancers may not know";
        all.register("unacknowledged", help, self.unacknowledged.clone());
        let help = "Requests that are no review of an eviction, or too many, by the reason";
        all.register("rejected", help, self.rejected.clone());
        all.register("agent_lookups", "Lookups of agents for reviews, by the result", self.lookups.clone());
        let help =
            "Time from the first refused eviction of a pod to the allowed one, as one replica saw both";
        all.register_with_unit("hold", help, Unit::Seconds, self.hold.clone());
        let help = "Pods whose eviction this replica has refused within the last 30 s";
        all.register("held_pods", help, self.held_pods.clone());
        let help = "1 while self-checks come back as reviews, 0 if evictions are not held or no self-check has come back for three minutes";
        all.register("self_check_passed", help, self.self_check.clone());
        let help = "When the serving certificate expires, in seconds since 1970; 0 without a certificate";
        all.register("certificate_expiry_timestamp_seconds", help, self.certificate_expiry.clone());
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        all.register("build", "What this program was built from", Info::new(version));
        registry
    }

    pub(crate) fn reviewed(&self, answer: Answer, why: Why) {
        self.reviews.get_or_create(&[("answer", answer.as_str()), ("why", why.0)]).inc();
        if answer == Answer::AllowedUnacknowledged {
            self.unacknowledged.inc();
        }
    }

    /// Counts a request that is not answered as a review.
    pub(crate) fn rejected(&self, why: &'static str) {
        self.rejected.get_or_create(&[("why", why)]).inc();
    }

    pub(crate) fn looked_up(&self, reply: &AgentReply) {
        let result = match reply {
            AgentReply::Summary(_) => "summary",
            AgentReply::NoReply(_) => "unreachable",
            AgentReply::WrongAgent(_) => "wrong_agent",
            AgentReply::Overloaded => "overloaded",
        };
        self.lookups.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn held(&self, hold: Duration) {
        self.hold.observe(hold.as_secs_f64());
    }
}
