//! What an agent says of itself and its node, read.

use crate::get::{GetError, Reply};
use bytes::Bytes;
use nodegate_readiness::status::Status;
use std::time::Duration;

/// The path of everything that an agent knows.
pub const STATUS_PATH: &str = "/status.json";

/// What an agent said.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The answer, read.
    pub status: Status,
    /// The same as it was sent.
    pub body: Bytes,
}

/// Why nothing was learned from an agent.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no answer.
    #[error(transparent)]
    Get(#[from] GetError),
    /// There is no whole answer in time.
    #[error("no whole answer within {}", humantime::format_duration(*.0))]
    Late(Duration),
    /// The answer has another status than 200.
    #[error("{STATUS_PATH} answered HTTP {0}{hint}", hint = hint(*.0))]
    Refused(u16),
    /// The answer is none of an agent's.
    #[error("the answer to {STATUS_PATH} is not one of nodegate: {0}")]
    Foreign(serde_json::Error),
}

impl AskError {
    /// Returns the same in few words, for a table.
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

/// Reads the reply to [`STATUS_PATH`].
pub fn understand(reply: Reply) -> Result<Answered, AskError> {
    if reply.status != 200 {
        return Err(AskError::Refused(reply.status));
    }
    let status = serde_json::from_slice(&reply.body).map_err(AskError::Foreign)?;
    Ok(Answered { status, body: reply.body })
}
