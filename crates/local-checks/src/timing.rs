//! The interval of a check, the timeout of a run, and the number of runs in a row that change its result.

use crate::options::{OptionKey, Options};
use nodegate_program::{duration, number};
use nodegate_readiness::Reason;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

const INTERVAL: OptionKey = OptionKey::new::<Millis<100, 3_600_000>>("interval");
/// A request that first names a check waits for as long as its timeout.
const TIMEOUT: OptionKey = OptionKey::new::<Millis<10, 300_000>>("timeout");
const RISE: OptionKey = OptionKey::new::<Row>("rise");
const FALL: OptionKey = OptionKey::new::<Row>("fall");

/// The settings that every check has.
pub(crate) const KEYS: [OptionKey; 4] = [INTERVAL, TIMEOUT, RISE, FALL];

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

/// Returns the timing with what an operator has set of it.
pub(crate) fn set(defaults: Timing, options: &Options) -> Timing {
    Timing {
        interval: options.get(INTERVAL).map_or(defaults.interval, |Millis::<100, 3_600_000>(set)| set),
        timeout: options.get(TIMEOUT).map_or(defaults.timeout, |Millis::<10, 300_000>(set)| set),
        rise: options.get(RISE).map_or(defaults.rise, |Row(set)| set),
        fall: options.get(FALL).map_or(defaults.fall, |Row(set)| set),
    }
}

/// A setting: a duration of at least `LEAST` and at most `MOST` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Millis<const LEAST: u64, const MOST: u64>(pub(crate) Duration);

impl<const LEAST: u64, const MOST: u64> FromStr for Millis<LEAST, MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(Duration::from_millis(LEAST)..=Duration::from_millis(MOST))(text).map(Self)
    }
}

/// A setting: the number of runs in a row.
struct Row(NonZeroU32);

impl FromStr for Row {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MOST: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
        number(NonZeroU32::MIN..=MOST, "takes a whole number from 1 to 100")(text).map(Self)
    }
}
