//! The metrics of nodegate, and their exposition.

mod board_metrics;
mod counters;
mod prober_metrics;
mod process;
mod registries;
mod status_label;

pub(crate) use board_metrics::StateCollector;
pub use counters::Metrics;
pub(crate) use registries::Registries;
