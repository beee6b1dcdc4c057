//! Decides about an eviction: a pure function of the Pod, the Node, the agent's reply and the time.

mod case;
mod decide;
mod message;
#[cfg(test)]
mod tests;
mod why;

pub use case::{AgentReply, Drain, EvictWhen, GatePods, HoldMode, Limits, NodeView, PodView};
pub use decide::{decide, node_is_free, pod_is_free};
pub use why::{Answer, Decision, Why};
