//! Parses an agent's `/status.json`.

use crate::get::{AgentReply, GetError};
use bytes::Bytes;
use nodegate_readiness::status::Status;
use std::time::Duration;

/// The path of an agent's whole state.
pub const STATUS_PATH: &str = "/status.json";

/// An agent's answer.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The parsed answer.
    pub status: Status,
    /// The body as received.
    pub body: Bytes,
}

/// The reason why a query of an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no answer.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The whole answer did not arrive in time.
    #[error("no whole answer within {}", humantime::format_duration(*.0))]
    Late(Duration),
    /// The answer has another status than 200.
    #[error("{STATUS_PATH} answered HTTP {0}{hint}", hint = hint(*.0))]
    Refused(u16),
    /// The answer does not come from a nodegate agent.
    #[error("the answer to {STATUS_PATH} is not one of nodegate: {0}")]
    Foreign(serde_json::Error),
}

impl AskError {
    /// Returns a short form for a table.
    pub fn short(&self) -> String {
        match self {
            Self::Get(error) => error.short().to_owned(),
            Self::Late(_) => "no answer in time".to_owned(),
            Self::Refused(code) => format!("HTTP {code}"),
            Self::Foreign(_) => "no agent of nodegate".to_owned(),
        }
    }
}

fn hint(code: u16) -> &'static str {
    if code == 404 { "; an agent with --metrics-addr answers there" } else { "" }
}

/// Parses the reply to [`STATUS_PATH`].
pub fn understand(reply: AgentReply) -> Result<Answered, AskError> {
    if reply.status != 200 {
        return Err(AskError::Refused(reply.status));
    }
    let status = serde_json::from_slice(&reply.body).map_err(AskError::Foreign)?;
    Ok(Answered { status, body: reply.body })
}
