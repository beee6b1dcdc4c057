//! The JSON of `/wait`, which everybody asks who waits for an acknowledgement.

use crate::summary::DrainSummary;
use nodegate_readiness::probers::{Goal, ProberRecord, WaitState};
use serde::{Deserialize, Serialize};

/// The answer to `/wait?format=json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReply {
    /// The goal that was asked for.
    pub goal: Goal,
    /// The Service that was asked for, in place of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// How the wait stands.
    pub state: WaitState,
    /// The same in words: what is missing and why.
    pub why: String,
    /// The interval of the slowest regular prober, in milliseconds; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// The progress as in `/drain.json`, of the node or of the Service.
    pub drain: DrainSummary,
    /// The probers that are regular or were so lately, at most [`WaitReply::MAX_PROBERS`].
    pub probers: Vec<ProberRecord>,
}

impl WaitReply {
    /// The most probers in an answer.
    pub const MAX_PROBERS: usize = 64;
}
