//! The interface of a local check.

use crate::host_root::HostRoot;
use crate::settings::{CheckSettings, Timing};
use nodegate_readiness::{Outcome, Reason};
use std::net::IpAddr;
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
    /// Runs the check once. A reason is a one-word code and a detail, by which an operator can act. It
    /// may contain text from outside, which is shortened before it is shown.
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a>;
}

/// The facts of the Node that a check may use, from the agent's cache.
#[derive(Clone, Debug, Default)]
pub struct KnownNode {
    /// The Node's `InternalIP`s; none if they are not known.
    pub internal_ips: Vec<IpAddr>,
    /// The time since the last proof that the cache is current; `None` if there was none.
    pub heard: Option<Duration>,
    /// True while the cache can't be trusted.
    pub stale: bool,
}

/// A check of the registry.
pub struct Definition {
    /// The name in requests and settings.
    pub name: &'static str,
    pub(crate) timing: Timing,
    pub(crate) new: fn(&mut Context<'_>) -> Arc<dyn Check>,
}

/// The input for the creation of a check.
pub(crate) struct Context<'a> {
    pub(crate) host: &'a HostRoot,
    /// The operator's settings of this check.
    pub(crate) settings: CheckSettings,
    /// The timeout of a run, for a check with several parts that must report which one hangs.
    pub(crate) timeout: Duration,
}

/// The time for which a result is valid beyond the end of the next run, and for which a request waits beyond
/// the timeout: a timer may be late on a busy node. nodegate-server allows a request the same.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

/// Returns the reason of a run that exceeded this limit.
pub(crate) fn timeout_reason(limit: Duration) -> Reason {
    Reason::new("Timeout").with_amount("after", humantime::format_duration(limit))
}
