//! Hours of faults in seconds.
//!
//! The whole agent, as `crates/agent` assembles it, runs under tokio's paused time, one runtime a seed,
//! against the API of kube-sim without sockets. A seed makes a world and plans of faults in it; an oracle
//! judges every answer. The same seed gives the same trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a simulation may end where a scenario breaks off"
)]

mod agent;
mod balancer;
mod cost;
mod cut_off_kubelet;
mod episode;
pub mod events;
mod fault;
mod law;
mod link;
mod lives;
mod network;
pub mod oracle;
mod plan;
mod planned;
mod proof;
mod rare;
mod reach;
mod report;
mod second;
mod service;
mod silence;
mod site;
mod strangers;
mod trace;
pub mod truth;
mod world;

pub use report::SimulationReport;
pub use world::{EpisodeOutcome, run};
