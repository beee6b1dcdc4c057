//! The interface of a local check.

use nodegate_readiness::{AddressFamilies, Outcome};
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

/// A run in progress.
pub type Run<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A local check, which runs in the background.
///
/// The [`Runner`](crate::Runner) never has two runs of a check in flight. It drops a run that takes longer
/// than the check's timeout. Such a run must leave nothing behind: no spawned task, no open socket. A call
/// that can't be cancelled goes through [`DedicatedThread`](crate::DedicatedThread), never through
/// `spawn_blocking`.
pub trait Check: Send + Sync {
    /// Runs the check once. A reason is a word or two by which an operator can act, such as
    /// `ConnectionRefused` or `HTTP 503`. It may contain text from outside, which is shortened before it is
    /// shown.
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

impl KnownNode {
    /// Returns the families of the Node's addresses, as far as they are known.
    pub(crate) fn families(&self) -> AddressFamilies {
        self.internal_ips.iter().copied().collect()
    }
}
