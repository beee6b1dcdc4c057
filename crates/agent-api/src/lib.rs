//! The JSON of an agent as plain data, which the agent renders and every other program parses: `/status.json`
//! ([`Status`]), `/drain.json` ([`DrainSummary`]) and `/wait` ([`WaitReply`]).

mod drain;
mod predecessor;
mod status;
mod summary;

pub use drain::{DrainStatus, ServiceStatus, Traffic, WaitingFor};
pub use nodegate_readiness::probers::{
    AckSettings, Goal, HaproxyReport, NO_PROBERS, ProberRecord, Standing, WaitState,
};
pub use predecessor::Predecessor;
pub use status::{CacheStatus, CheckStatus, FACTS_FORMAT, Status};
pub use summary::{DRAIN_SUMMARY_BYTES, DrainSummary, WaitReply};

/// The path of an agent's whole state.
pub const STATUS_PATH: &str = "/status.json";
/// The path of the progress of a drain.
pub const DRAIN_PATH: &str = "/drain.json";
