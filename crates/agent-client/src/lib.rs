//! Queries a running agent: one HTTP client with its limits, the model of the answers, the identity of the
//! agent, and what people read of an answer.
//!
//! `nodegate status`, `nodegate wait` and `kubectl nodegate` all use this crate. The model of the answer is
//! [`Status`], which the agent renders and this crate parses. An address does not identify an agent, because
//! networks of two clusters may overlap: [`NodeIdentity::confirm`] compares name and UID of the Node.

mod address_types;
mod ask;
mod console;
mod health_reply;
mod hook_recipe;
mod identity;
pub mod sentence;
mod text;
mod wait;
mod wait_settings;

pub use address_types::AddressTypes;
pub use ask::{
    AgentReply, Answered, AskError, DRAIN_PATH, MOST, STATUS_PATH, ask, ask_drain, get, parse_status,
};
pub use console::Console;
pub use health_reply::{HealthCheck, NodeHealth, refusal};
pub use hook_recipe::hook_recipe;
pub use identity::{NodeIdentity, WrongAgent};
pub use nodegate_readiness::probers::DrainSummary;
pub use nodegate_readiness::status::Status;
pub use text::{health_text, status_text};
pub use wait::{Progress, WaitEnd, Waiting};
pub use wait_settings::{AckArgs, INTERVAL, PROBERS, TIMES, WaitSettings};

use nodegate_readiness::Verdict;

/// Returns the exit code of a verdict as monitoring plugins define it: OK, WARNING, CRITICAL, UNKNOWN.
pub fn exit_code(verdict: Option<Verdict>) -> u8 {
    match verdict {
        Some(Verdict::Ready) => 0,
        Some(Verdict::Draining) => 1,
        Some(Verdict::NotReady) => 2,
        None => nodegate_program::UNKNOWN,
    }
}
