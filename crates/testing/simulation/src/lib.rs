//! Plays hours of faults in seconds, for `make simulate` and a short test.
//!
//! The whole agent, as `crates/agent` assembles it, runs under tokio's paused time, with one runtime for each
//! seed, against kube-sim's API without sockets. A seed defines a world and its plans of faults. An oracle
//! judges every answer. The same seed gives the same trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a simulation may panic"
)]
#![allow(missing_docs, reason = "a program of tests: what a name says is not said twice")]

mod agent;
mod balancer;
mod bounds;
mod broken_watches;
mod cluster;
mod connection;
#[cfg(test)]
mod drain_budget;
mod episode;
mod events;
mod fault;
mod network;
mod oracle;
mod plan;
mod report;
mod trace;
mod world;

pub use report::SimulationReport;
pub use world::{EpisodeOutcome, run};
