//! Decides about an eviction: a pure function of the Pod, the Node, the agent's reply and the time.

mod case;
mod decide;
mod message;
#[cfg(test)]
mod tests;
mod why;

pub(crate) use case::{AgentReply, Drain, EvictWhen, Limits, NodeView, PodView};
pub(crate) use decide::{decide, out_for, pod_is_free};
pub(crate) use why::{Answer, Decision, Why};
