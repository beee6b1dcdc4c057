//! The interface of a local check.

use nodegate_readiness::{AddressFamilies, Outcome};
use std::pin::Pin;

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
    /// shown. `node` has the families of the Node's addresses, as far as they are known.
    fn run(&self, node: AddressFamilies) -> Run<'_>;
}
