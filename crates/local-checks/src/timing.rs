//! The interval of a check, the timeout of a run, and the number of runs in a row that change its result.

use nodegate_readiness::Reason;
use std::num::NonZeroU32;
use std::time::Duration;

/// The names of its parts in settings.
pub(crate) const KEYS: [&str; 4] = ["interval", "timeout", "rise", "fall"];

/// The default interval. It takes a dead component out of the pool within a few probes of the load balancer,
/// and ten checks cost the node only two wake-ups a second.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// The default timeout. A component that crashed refuses the connection at once; the timeout is only for one
/// that hangs or starves. Five seconds is the documented timeout of `okd_router_1936`, and takes a node out
/// for being stuck, not for being busy.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timing of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time from the start of a run to the start of the next.
    pub interval: Duration,
    /// The maximum duration of a run. It may be longer than the interval: runs that a slow one covers are
    /// skipped.
    pub timeout: Duration,
    /// Passes in a row that end a failure.
    pub rise: NonZeroU32,
    /// Failures in a row that end a pass.
    pub fall: NonZeroU32,
}

/// The time for which a result is valid beyond the end of the next run, and for which a request waits beyond
/// the timeout: a node whose CPU is throttled or short may run a timer some hundred milliseconds late, which
/// is no failure of the check. nodegate-server allows a request the same.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

impl Timing {
    /// The timing of every check that has none of its own, without settings.
    pub const USUAL: Self = Self::new(DEFAULT_INTERVAL, DEFAULT_TIMEOUT);

    /// Returns a timing with a rise and a fall of 1.
    ///
    /// Load balancers count for themselves (HAProxy's own default is fall 3, rise 2). Counting on both sides
    /// would multiply, and a dead node would stay in the pool for minutes.
    pub const fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, rise: NonZeroU32::MIN, fall: NonZeroU32::MIN }
    }

    /// Returns the time for which a result may be shown: the next run begins within the interval and ends
    /// within the timeout.
    pub(crate) fn good_for(&self) -> Duration {
        self.interval + self.timeout + SLACK
    }
}

/// Returns the reason of a run that exceeded this limit.
pub(crate) fn timeout_reason(limit: Duration) -> Reason {
    Reason::new("Timeout").counting("after", humantime::format_duration(limit))
}
