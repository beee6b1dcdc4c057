//! Decides about an eviction: a pure function of the Pod, the Node, the agent's reply and the time.

mod case;
mod decide;
#[cfg(test)]
mod tests;

pub(crate) use case::{AgentReply, Answer, Decision, Drain, EVICT_WHEN_WORDS, EvictWhen, Limits, Why};
pub(crate) use decide::{decide, out_for};
