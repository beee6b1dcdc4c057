//! The interface of a local check.

use nodegate_readiness::{AddressFamilies, Outcome};
use std::pin::Pin;

/// One run under way.
pub type Run<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A local check: what one background run of it does.
///
/// The [`Runner`](crate::Runner) never has two runs of a check in flight. A run that takes longer than the check's
/// timeout is dropped, and must then leave nothing behind: no spawned task, no open socket. Whatever can't be
/// cancelled goes through [`DedicatedThread`](crate::DedicatedThread), never through `spawn_blocking`.
pub trait Check: Send + Sync {
    /// Looks once. A reason is a word or two by which an operator can act, `ConnectionRefused` or `HTTP 503`; it may
    /// hold text from the outside, which is shortened before it is shown. `node` has the families of the Node's addresses,
    /// as far as they are known.
    fn run(&self, node: AddressFamilies) -> Run<'_>;
}
