//! The interval of a check, the timeout of a run, and the number of runs in a row that change its result.

use nodegate_readiness::Reason;
use std::num::NonZeroU32;
use std::time::Duration;

/// What an operator calls its parts.
pub(crate) const KEYS: [&str; 4] = ["interval", "timeout", "rise", "fall"];

/// Often enough that a dead component is out of the pool within a few questions of the load balancer, rarely enough that
/// ten checks cost the node two wake-ups a second.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// A component that crashed refuses the connection at once; the timeout is only for one that hangs or starves. Five
/// seconds is what `okd_router_1936` is documented with, and it takes a node out for being stuck, not for being busy.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timing of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the beginning of a run to the beginning of the next.
    pub interval: Duration,
    /// How long one run may take. It may be longer than the interval: runs that a slow one covers are skipped.
    pub timeout: Duration,
    /// Passes in a row that end a failure.
    pub rise: NonZeroU32,
    /// Failures in a row that end a pass.
    pub fall: NonZeroU32,
}

/// What a result is good for beyond the end of the next run, and what a request waits beyond the timeout: a node whose
/// CPU is throttled or short may run a timer some hundred milliseconds late, which is no failure of the check.
/// nodegate-server gives a request the same.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

impl Timing {
    /// What holds for every check that has no timing of its own, if nothing is set.
    pub const USUAL: Self = Self::new(DEFAULT_INTERVAL, DEFAULT_TIMEOUT);

    /// Returns a check that is believed at once in both directions.
    ///
    /// Rise and fall are 1 because load balancers count for themselves (HAProxy's own default is fall 3, rise 2):
    /// counting on both sides would multiply, and a dead node would stay in the pool for minutes.
    pub const fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, rise: NonZeroU32::MIN, fall: NonZeroU32::MIN }
    }

    /// How long a result may be shown: the next run begins within the interval and ends within the timeout.
    pub(crate) fn good_for(&self) -> Duration {
        self.interval + self.timeout + SLACK
    }
}

/// Returns the reason of what took longer than this.
pub(crate) fn timeout_reason(limit: Duration) -> Reason {
    Reason::new("Timeout").counting("after", humantime::format_duration(limit))
}
