//! The timeouts and intervals of the gate, which no operator needs to change.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The longest time for the answer to a review, of which a request to the API server may take half. It is less than
    /// `timeoutSeconds` of the webhook configuration (3).
    pub(crate) review: Duration,
    /// The timeout of a request to an agent.
    pub(crate) agent: Duration,
    /// The time between two self-checks: evictions of a Pod that does not exist, which must come back as reviews.
    pub(crate) self_check: Duration,
    /// The time between two checks of each draining Node.
    pub(crate) recheck: Duration,
    /// The time from SIGTERM to the exit. Meanwhile the gate answers reviews, and API servers learn that it shuts down.
    pub(crate) shutdown: Duration,
}

impl Times {
    /// Returns the times of this process. In a debug build, tests on a busy machine may set others by changes such as
    /// `review=30000,shutdown=0`, in milliseconds; the last one counts.
    pub(crate) fn new() -> Self {
        let changes = std::env::var("NODEGATE_GATE_TEST_TIMES").ok().filter(|_| cfg!(debug_assertions));
        let time = |name: &str, millis: u64| {
            let mut changes = changes.as_deref().unwrap_or_default().rsplit(',');
            let changed =
                changes.find_map(|change| change.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
            Duration::from_millis(changed.unwrap_or(millis))
        };
        Self {
            review: time("review", 2500),
            agent: time("agent", 1000),
            self_check: time("self_check", 60_000),
            recheck: time("recheck", 5000),
            shutdown: time("shutdown", 5000),
        }
    }
}
