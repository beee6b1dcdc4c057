//! How a running agent is asked: one HTTP client with its limits, the model of the answer, and whose agent it is.
//!
//! `nodegate status`, `nodegate wait` and `kubectl nodegate` all ask through this crate. The model of the answer is
//! [`Status`], which the agent renders and this crate reads. An address does not identify an agent, because networks of
//! two clusters may overlap: [`NodeIdentity::confirm`] compares name and UID of the Node.

mod answer;
mod get;
mod identity;

pub use answer::{Answered, AskError, STATUS_PATH, understand};
pub use get::{Connection, GetError, MOST, Reply, get};
pub use identity::{NodeIdentity, WrongAgent};
pub use nodegate_readiness::status::Status;

use std::net::SocketAddr;
use std::time::Duration;

/// Asks the agent at an address for everything it knows, within `timeout`. Whose agent answered is for the caller to
/// confirm.
pub async fn ask(address: SocketAddr, timeout: Duration) -> Result<Answered, AskError> {
    let reply = tokio::time::timeout(timeout, get(address, STATUS_PATH)).await;
    understand(reply.map_err(|_| AskError::Late(timeout))??)
}

/// Returns text from elsewhere without the characters that would steer a terminal.
pub fn harmless(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{fffd}")
}
