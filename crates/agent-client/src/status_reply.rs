//! Parses the answers of agents to `/status.json` and `/drain.json`, for all commands and the gate.

use crate::get::{AgentReply, GetError};
use bytes::Bytes;
use nodegate_readiness::probers::DrainSummary;
use nodegate_readiness::status::Status;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The path of an agent's whole state.
pub const STATUS_PATH: &str = "/status.json";

/// The path of the progress of a drain.
pub const DRAIN_PATH: &str = "/drain.json";

/// The answer of an agent to `/status.json`.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The body as a status.
    pub status: Status,
    /// The body as received.
    pub body: Bytes,
}

/// The reason why a query of an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The name of the host could not be looked up.
    #[error("could not look the name up: {0}")]
    Lookup(String),
    /// There is no answer.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The whole answer did not arrive in time.
    #[error("no whole answer within {}", humantime::format_duration(*.0))]
    Late(Duration),
    /// The answer has another status than 200.
    #[error("{0} answered HTTP {1}{hint}", hint = hint(.0, *.1))]
    Refused(&'static str, u16),
    /// The answer does not come from a nodegate agent.
    #[error("the answer to {0} is not one of nodegate: {1}")]
    Foreign(&'static str, serde_json::Error),
}

impl AskError {
    /// Returns a short form for a table.
    pub fn short(&self) -> String {
        match self {
            Self::Lookup(_) => "no such host".to_owned(),
            Self::Get(error) => error.short().to_owned(),
            Self::Late(_) => "no answer in time".to_owned(),
            Self::Refused(_, code) => format!("HTTP {code}"),
            Self::Foreign(..) => "no agent of nodegate".to_owned(),
        }
    }
}

fn hint(path: &str, code: u16) -> &'static str {
    if code == 404 && path == STATUS_PATH { "; an agent with --metrics-addr answers there" } else { "" }
}

/// Parses the reply to [`STATUS_PATH`].
pub fn parse_status(reply: AgentReply) -> Result<Answered, AskError> {
    let status = parse(STATUS_PATH, &reply)?;
    Ok(Answered { status, body: reply.body })
}

/// Parses the reply to [`DRAIN_PATH`].
pub(crate) fn parse_drain(reply: &AgentReply) -> Result<DrainSummary, AskError> {
    parse(DRAIN_PATH, reply)
}

fn parse<T: DeserializeOwned>(path: &'static str, reply: &AgentReply) -> Result<T, AskError> {
    if reply.status != 200 {
        return Err(AskError::Refused(path, reply.status));
    }
    serde_json::from_slice(&reply.body).map_err(|error| AskError::Foreign(path, error))
}
