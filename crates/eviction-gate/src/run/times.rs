//! The timeouts and intervals of the gate, which no operator needs to change.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The longest time for the answer to a review, of which a request to the API server may take half. It is less than
    /// `timeoutSeconds` of the webhook configuration (3).
    pub(super) review: Duration,
    /// The timeout of a request to an agent.
    pub(super) agent: Duration,
    /// The time between two self-checks: evictions of a Pod that does not exist, which must come back as reviews.
    pub(super) self_check: Duration,
    /// The time between two checks of each draining Node.
    pub(super) recheck: Duration,
    /// The time from SIGTERM to the exit. Meanwhile the gate answers reviews, and API servers learn that it shuts down.
    pub(super) shutdown: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            review: Duration::from_millis(2500),
            agent: Duration::from_secs(1),
            self_check: Duration::from_mins(1),
            recheck: Duration::from_secs(5),
            shutdown: Duration::from_secs(5),
        }
    }
}

impl Times {
    /// Returns the times of this process. In a debug build, tests on a busy machine may set others.
    pub(super) fn new() -> Self {
        let times = Self::default();
        #[cfg(debug_assertions)]
        let times = times.changed(&std::env::var("NODEGATE_GATE_TEST_TIMES").unwrap_or_default());
        times
    }

    /// Reads changes such as `review=30000,shutdown=0`, in milliseconds.
    #[cfg(debug_assertions)]
    fn changed(mut self, changes: &str) -> Self {
        for (name, millis) in changes.split(',').filter_map(|change| change.split_once('=')) {
            let Ok(millis) = millis.parse() else { continue };
            let time = match name {
                "review" => &mut self.review,
                "agent" => &mut self.agent,
                "self_check" => &mut self.self_check,
                "recheck" => &mut self.recheck,
                _ => &mut self.shutdown,
            };
            *time = Duration::from_millis(millis);
        }
        self
    }
}
