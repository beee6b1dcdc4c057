//! The metrics of the gate. The values of each label are a closed set.

use crate::decision::{AgentReply, Answer, ERROR, Why};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

/// The bounds of a hold, in seconds.
const HOLDS: [f64; 10] = [0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0];

/// Counters by their labels: names and values.
type Counters<const N: usize> = Family<[(&'static str, &'static str); N], Counter>;

/// The metrics of the gate.
#[derive(Debug)]
pub struct GateMetrics {
    reviews: Counters<2>,
    unacknowledged: Counter,
    lookups: Counters<1>,
    pub(crate) hold: Histogram,
    pub(crate) held_pods: Gauge,
    pub(crate) self_check: Gauge,
    pub(crate) certificate_expiry: Gauge,
}

impl GateMetrics {
    /// Returns the metrics, and the registry with all families.
    pub fn new() -> (Self, Registry) {
        let mut registry = Registry::with_prefix("nodegate_gate");
        let all = &mut registry;
        let help =
            "Time from the first refused eviction of a pod to the allowed one, as one replica saw both";
        let hold = Histogram::new(HOLDS);
        all.register_with_unit("hold", help, Unit::Seconds, hold.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "What this program was built from", build);
        let metrics = Self {
            reviews: register(all, "reviews", "Reviews of evictions, by the answer and its reason"),
            unacknowledged: register(all, "unacknowledged", "Evictions that went on without acknowledgement"),
            lookups: register(all, "agent_lookups", "Lookups of agents for reviews, by the result"),
            hold,
            held_pods: register(
                all,
                "held_pods",
                "Pods whose eviction this replica refused in the last 30 s",
            ),
            self_check: register(
                all,
                "self_check_passed",
                "1 while self-checks come back as reviews, 0 if evictions are not held or no self-check has come back for three minutes",
            ),
            certificate_expiry: register(
                all,
                "certificate_expiry_timestamp_seconds",
                "When the serving certificate expires, in seconds since 1970; 0 without a certificate",
            ),
        };
        // Alerts on rates need the series before the first event.
        for result in ["summary", "unreachable", "wrong_agent", "overloaded"] {
            let _ = metrics.lookups.get_or_create(&[("result", result)]);
        }
        let _ = metrics.reviews.get_or_create(&[("answer", "allowed"), ("why", ERROR)]);
        (metrics, registry)
    }

    pub(crate) fn reviewed(&self, answer: Answer, why: Why) {
        self.reviews.get_or_create(&[("answer", answer.as_str()), ("why", why)]).inc();
        if answer == Answer::AllowedUnacknowledged {
            self.unacknowledged.inc();
        }
    }

    pub(crate) fn looked_up(&self, reply: &AgentReply) {
        let result = reply.as_ref().map_or_else(|(why, _)| *why, |_| "summary");
        self.lookups.get_or_create(&[("result", result)]).inc();
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
