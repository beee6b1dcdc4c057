//! The counters of answers and flips.

use crate::route::Route;
use http::StatusCode;
use nodegate_http::ConnectionCounts;
use nodegate_readiness::flips::RECOVERED;
use nodegate_readiness::{Flip, Verdict};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The maximum number of reasons that become label values. Reasons come from the API server and from programs
/// on the node, so their number is otherwise unbounded.
const MAX_REASONS: usize = 64;
const OTHER_REASON: &str = "Other";
/// The maximum length of a reason in a label; longer reasons are cut.
pub(super) const MAX_REASON_CHARS: usize = 128;

/// The statuses that the agent chooses itself, and the classes of those that a client chooses with `?drain=`.
const CODES: [&str; 12] =
    ["200", "400", "404", "405", "429", "500", "503", "504", "2xx", "3xx", "4xx", "5xx"];

/// What is wrong with a request that gets no verdict.
const STRAYS: [&str; 5] = ["tls", "http2", "malformed", "method", "path"];

/// Counters by their labels: names and values.
type Counters<const N: usize, V = &'static str> = Family<[(&'static str, V); N], Counter>;

/// The counters; label values are closed sets, or bounded.
#[derive(Default)]
pub struct Metrics {
    requests: Counters<2>,
    answers: Counters<2>,
    /// The counters of each route by status and by verdict, so that a probe need not find them by their labels.
    by_code: [[OnceLock<Counter>; CODES.len()]; Route::ALL.len()],
    by_verdict: [[OnceLock<Counter>; 3]; Route::ALL.len()],
    strays: Counters<1>,
    flips: Counters<3, String>,
    reasons: Mutex<BTreeSet<String>>,
    pub(crate) fail_open: Counter,
    pub(crate) connections: ConnectionCounts,
}

impl Metrics {
    /// Adds the families to a registry. The first series exist from the start: an alert counts flips to Ready with
    /// `increase()`, which does not see a flip that creates its series.
    pub(super) fn register(&self, registry: &mut Registry) {
        for verdict in [Verdict::Draining, Verdict::NotReady] {
            self.count_flip(verdict, Verdict::Ready, RECOVERED.to_owned()).inc_by(0);
        }
        self.requests.get_or_create(&[("path", "/health"), ("code", "200")]).inc_by(0);
        self.answers
            .get_or_create(&[("question", "/health"), ("verdict", Verdict::Ready.as_str())])
            .inc_by(0);
        registry.register("flips", "Changes of verdict", self.flips.clone());
        registry.register("http_requests", "HTTP requests answered", self.requests.clone());
        let help = "Answers to load balancers by verdict, agent-checks included";
        registry.register("answers", help, self.answers.clone());
        for kind in STRAYS {
            self.strays.get_or_create(&[("kind", kind)]).inc_by(0);
        }
        let help = "Requests that get no verdict, by what is wrong with them";
        registry.register("stray_requests", help, self.strays.clone());
        let help = "Answers that were better than the last known facts because the cache was stale";
        registry.register("fail_open", help, self.fail_open.clone());
        self.connections.register(registry);
    }

    /// Counts a flip; the board must call this.
    pub fn flip(&self, flip: &Flip) {
        let reason = flip.reason.label().chars().take(MAX_REASON_CHARS).collect();
        self.count_flip(flip.from, flip.to, reason).inc();
    }

    fn count_flip(&self, from: Verdict, to: Verdict, reason: String) -> Counter {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = reasons.contains(&reason) || reasons.len() < MAX_REASONS;
        let reason = if is_shown { reason } else { OTHER_REASON.to_owned() };
        if is_shown {
            reasons.insert(reason.clone());
        }
        let labels = [("from", from.to_string()), ("to", to.to_string()), ("reason", reason)];
        self.flips.get_or_create_owned(&labels)
    }

    /// Counts an answer on a route.
    pub(crate) fn answered(&self, route: Route, status: StatusCode) {
        // A status itself comes before its class.
        let is_of_class = |code: &str| code.ends_with("xx") && code.get(..1) == status.as_str().get(..1);
        let code = CODES.iter().position(|code| *code == status.as_str() || is_of_class(code));
        let code = code.unwrap_or(CODES.len() - 1);
        let counter = self.by_code.get(route as usize).and_then(|codes| codes.get(code));
        if let (Some(counter), Some(code)) = (counter, CODES.get(code)) {
            let labels = [("path", route.path()), ("code", code)];
            counter.get_or_init(|| self.requests.get_or_create_owned(&labels)).inc();
        }
    }

    /// Counts the verdict in an answer on a route, whatever status the client chose for it.
    pub(crate) fn count_verdict(&self, route: Route, verdict: Verdict) {
        if let Some(counter) = self.by_verdict.get(route as usize).and_then(|of| of.get(verdict as usize)) {
            let labels = [("question", route.path()), ("verdict", verdict.as_str())];
            counter.get_or_init(|| self.answers.get_or_create_owned(&labels)).inc();
        }
    }

    /// Counts a request that gets no verdict, by one of [`STRAYS`].
    pub(crate) fn stray(&self, kind: &'static str) {
        debug_assert!(STRAYS.contains(&kind));
        self.strays.get_or_create(&[("kind", kind)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::Reason;

    fn flip(metrics: &Metrics, reason: Reason) {
        metrics.flip(&Flip { at_unix_ms: 0, age_ms: 0, from: Verdict::Ready, to: Verdict::NotReady, reason });
    }

    fn count(metrics: &Metrics, reason: &str) -> u64 {
        metrics.count_flip(Verdict::Ready, Verdict::NotReady, reason.to_owned()).get()
    }

    #[test]
    fn the_reasons_of_flips_are_bounded() {
        let metrics = Metrics::default();
        for n in 0..100 {
            flip(&metrics, Reason::new(format!("Reason{n}")));
        }
        // Amounts are no part of the label.
        flip(&metrics, Reason::new("Reason0").with_amount("for", "5s"));
        flip(&metrics, Reason::new("x".repeat(5000)));
        assert_eq!(metrics.reasons.lock().unwrap().len(), MAX_REASONS);
        assert_eq!((count(&metrics, "Reason0"), count(&metrics, OTHER_REASON)), (2, 37));
    }
}
