//! Queries a running agent: one HTTP client with its limits, the identity of the agent, and every sentence for
//! people about an answer.
//!
//! `nodegate status`, `nodegate wait`, `kubectl nodegate` and the agent's own page use this crate; the answers themselves
//! are those of nodegate-agent-api. An address does not identify an agent, because networks of two clusters may overlap:
//! [`NodeIdentity::confirm`] compares name and UID of the Node.

pub mod acknowledgement;
mod ask;
mod console;
pub mod hints;
mod identity;
pub mod sentence;
mod text;
mod wait;

pub use ask::{AgentJson, AgentReply, AskError, MAX_REPLY, ask_drain, get, parse, refusal};
pub use console::{Console, colour};
pub use identity::{NodeIdentity, WrongAgent, agent_addresses};
pub use text::{health_text, prober_answer, status_text};
pub use wait::{PAUSE, Progress, WAIT_WITHIN, WaitEnd, WaitSettings, WaitTimeout, Waiting};

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
