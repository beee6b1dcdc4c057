//! The metrics of nodegate, and their exposition.

mod counters;
mod probers;
mod process;
mod registries;
mod state;
mod status_label;

pub use counters::Metrics;
pub(crate) use registries::Registries;
pub(crate) use state::StateCollector;
