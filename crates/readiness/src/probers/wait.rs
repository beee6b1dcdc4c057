//! Decides about everybody who waits for an acknowledgement: hooks, commands, a host that goes down.

use super::acknowledgement::{Judgement, PoolChange, Unknown};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Who waits for a node that has been `NotReady` for longer goes on: its balancers have had time enough.
const OUT_FOR: Duration = Duration::from_mins(1);

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Every balancer has acknowledged that the node is out.
    Acknowledged,
    /// Every balancer has acknowledged that the node is out, and no session is left.
    Released,
    /// Every balancer has acknowledged that the node is ready.
    Ready,
}

impl Goal {
    /// All goals.
    pub const ALL: [Self; 3] = [Self::Acknowledged, Self::Released, Self::Ready];

    /// Returns the word of `--for`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Released => "released",
            Self::Ready => "ready",
        }
    }

    /// Returns the pool change that balancers must acknowledge.
    pub fn pool_change(self) -> PoolChange {
        match self {
            Self::Acknowledged | Self::Released => PoolChange::Out,
            Self::Ready => PoolChange::Back,
        }
    }
}

/// How a wait stands. One table of docs/acknowledgement.md has what each of those who wait does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitState {
    /// The goal has been reached.
    Reached,
    /// Nothing takes the node or the Service out.
    InService,
    /// The node is cordoned, and in the pool because too many others are drained.
    Kept,
    /// The node has been `NotReady` for so long that waiting is of no use.
    NotReadyForLong,
    /// No balancer probes, and none is required.
    NoProbers,
    /// The balancers have acknowledged, and nothing counts the sessions.
    SessionsNotCounted,
    /// The goal may yet be reached.
    Waiting,
    /// It is not known yet whether the goal has been reached.
    NotKnown,
}

impl WaitState {
    /// Returns true if `/wait` answers 200: there is nothing to wait for.
    pub fn ends_wait(self) -> bool {
        matches!(self, Self::Reached | Self::InService | Self::Kept | Self::NotReadyForLong | Self::NoProbers)
    }

    /// Returns true if the node or Service is in service, and may be about to go out.
    pub fn is_in_service(self) -> bool {
        matches!(self, Self::InService | Self::Kept)
    }

    /// Returns the state of a wait. `sessions` is whether one is left, if that is counted; `not_ready_for` is for how
    /// long the node has been `NotReady`.
    pub fn of(
        goal: Goal,
        judgement: &Judgement,
        sessions: Sessions,
        not_ready_for: Option<Duration>,
    ) -> Self {
        let is_turned = judgement.change == goal.pool_change();
        let state = match judgement.acknowledgement {
            Err(Unknown::NoProbers) if is_turned => Self::NoProbers,
            Ok(true) if is_turned => match (goal, sessions) {
                (Goal::Released, Sessions::Left | Sessions::Unknown) => Self::Waiting,
                (Goal::Released, Sessions::NotCounted) => Self::SessionsNotCounted,
                _ => Self::Reached,
            },
            Err(Unknown::Stale | Unknown::Misconfigured) => Self::NotKnown,
            _ if !is_turned && judgement.change == PoolChange::Back => Self::InService,
            Err(_) if is_turned => Self::NotKnown,
            _ => Self::Waiting,
        };
        let is_long =
            goal.pool_change() == PoolChange::Out && not_ready_for.is_some_and(|time| time > OUT_FOR);
        if is_long && state != Self::Reached { Self::NotReadyForLong } else { state }
    }
}

/// The sessions of a node's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// None is left.
    Ended,
    /// Some are left.
    Left,
    /// They have not been counted lately.
    Unknown,
    /// Nothing counts them.
    NotCounted,
}
