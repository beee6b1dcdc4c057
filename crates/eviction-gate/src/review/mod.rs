//! Turns a review into its answer.

mod admission_review;
mod gate;
mod limit;
mod notices;

pub(crate) use admission_review::{answer_json, parse};
pub(crate) use gate::{Gate, GateSettings, LookupArgs};
pub(crate) use limit::ReviewLimit;

/// The start of the name of the Pod that a self-check evicts. The Pod does not exist.
pub(crate) const SELF_CHECK: &str = "nodegate-eviction-gate-self-check-";

/// Returns the message of the denial of a self-check.
pub(crate) fn has_seen(name: &str) -> String {
    format!("the eviction gate has seen {name}")
}
