//! The interface of a local check.

use crate::host_root::HostRoot;
use crate::options::{AnyKey, Options};
use nodegate_readiness::{Outcome, Reason};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A run in progress.
pub type Run<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A local check, which runs in the background.
///
/// A run that takes longer than the check's timeout is dropped. It must leave nothing behind: no spawned
/// task, no open socket. A call that can't be cancelled goes through `DedicatedThread`.
pub trait Check: Send + Sync {
    /// Runs the check once. A reason is a word or two by which an operator can act, such as `HTTP 503`. It
    /// may contain text from outside, which is shortened before it is shown.
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a>;
}

/// The facts of the Node that a check may use, from the agent's cache.
#[derive(Clone, Debug, Default)]
pub struct KnownNode {
    /// The name of the Node.
    pub name: String,
    /// The Node's `InternalIP`s; none if they are not known.
    pub internal_ips: Vec<IpAddr>,
    /// The time since the API server was last heard; `None` if it never was.
    pub heard: Option<Duration>,
    /// True while the cache can't be trusted.
    pub stale: bool,
}

/// A check with its default settings.
pub struct Definition {
    /// The name in requests and settings.
    pub name: &'static str,
    /// Its settings besides its timing.
    pub options: &'static [&'static dyn AnyKey],
    pub(crate) timing: Timing,
    pub(crate) new: fn(&Context<'_>) -> Arc<dyn Check>,
}

/// The input for the creation of a check.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) host: &'a HostRoot,
    /// The operator's settings of this check.
    pub(crate) options: &'a Options,
    /// The timeout of a run, for a check with several parts that must report which one hangs.
    pub(crate) timeout: Duration,
}

/// The default timeout, for a component that hangs or starves; one that crashed refuses the connection at
/// once. It is the documented timeout of `okd_router_1936`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which a result is valid beyond the end of the next run, and for which a request waits beyond
/// the timeout: a timer may be late on a busy node. nodegate-server allows a request the same.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

/// The timing of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time from the start of a run to the start of the next.
    pub interval: Duration,
    /// The maximum duration of a run. The next one skips the intervals that it covered.
    pub timeout: Duration,
    /// Passes in a row that end a failure.
    pub rise: NonZeroU32,
    /// Failures in a row that end a pass.
    pub fall: NonZeroU32,
}

impl Timing {
    /// The timing of a check that has none of its own: a dead component leaves the pool within a few probes,
    /// and ten checks cost the node two wake-ups a second.
    pub const USUAL: Self = Self::new(Duration::from_secs(5), DEFAULT_TIMEOUT);

    /// Returns a timing with a rise and a fall of 1. Load balancers count for themselves, and counting on
    /// both sides would multiply.
    pub const fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, rise: NonZeroU32::MIN, fall: NonZeroU32::MIN }
    }
}

/// Returns the reason of a run that exceeded this limit.
pub(crate) fn timeout_reason(limit: Duration) -> Reason {
    Reason::new("Timeout").with_amount("after", humantime::format_duration(limit))
}
