//! Decides whether `GET /wait` answers or holds a request.

use super::acknowledgement::{AckOverrides, Acknowledgement, PoolChange, Unknown, acknowledged, cant_see};
use super::drain_status::has_no_sessions;
use crate::age::Age;
use crate::check::Verdict;
use crate::status::Status;
use std::time::Duration;

/// A node that has been `NotReady` for longer holds no request: its balancers have had time enough.
const NOT_READY_FOR: Duration = Duration::from_mins(1);

/// The maximum number of probers in the reason for a hold.
const NAMED: usize = 8;

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every balancer has acknowledged that the node is out.
    Acknowledged,
    /// Every balancer has acknowledged that the node is out, and no session is left.
    Released,
    /// Every balancer has acknowledged that the node is ready.
    Ready,
}

impl Goal {
    /// All goals, in the order of their discriminants.
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

/// The decision about a request that waits for a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitJudgement {
    /// The node is in service and not going out. The request is held only for `settle`, because a drain may be
    /// about to begin.
    InService,
    /// The goal has been reached, or there is nothing to wait for. The text says why.
    Over(String),
    /// The goal may yet be reached. The text says why it has not.
    Waiting(String),
}

impl Status {
    /// Decides about requests that wait for this goal, by the agent's own settings. `unchanged_for` is the
    /// time since the last flip.
    pub fn judge_wait(&self, goal: Goal, unchanged_for: Duration) -> WaitJudgement {
        if goal.pool_change() == PoolChange::Out {
            match self.verdict {
                Some(Verdict::NotReady) if unchanged_for > NOT_READY_FOR => {
                    let age = Age(unchanged_for.as_millis());
                    return WaitJudgement::Over(format!("the node has been NotReady for {age}"));
                }
                Some(Verdict::Ready) if !self.cache.stale => return WaitJudgement::InService,
                _ => {}
            }
        }
        match acknowledged(self, goal.pool_change(), &AckOverrides::default()) {
            Acknowledgement::Unknown(unknown @ Unknown::NoProbers { .. }) => {
                WaitJudgement::Over(unknown.to_string())
            }
            Acknowledgement::Unknown(unknown) => WaitJudgement::Waiting(unknown.to_string()),
            Acknowledgement::NotYet { why, waiting_for } => {
                let probers = waiting_for.iter().take(NAMED);
                let probers = probers.map(|one| format!("{} {} ({})", one.prober, one.request, one.why));
                WaitJudgement::Waiting(why.into_iter().chain(probers).collect::<Vec<_>>().join("; "))
            }
            Acknowledgement::Yes { probers } => match (goal, has_no_sessions(self)) {
                (Goal::Released, Ok(false)) => {
                    WaitJudgement::Waiting("all acknowledged, but sessions are left".to_owned())
                }
                (Goal::Released, Err(why)) => WaitJudgement::Waiting(why),
                _ => WaitJudgement::Over(format!(
                    "{}: {}",
                    goal.as_str(),
                    balancers(probers, &self.cant_see_drains())
                )),
            },
        }
    }
}

/// Returns the number of balancers in words, and names those that can't see drains.
pub fn balancers(probers: usize, cant_see_drains: &[String]) -> String {
    match cant_see(cant_see_drains) {
        Some(who) => format!("{probers} of {} balancers; {who}", probers + cant_see_drains.len()),
        None if probers == 1 => "the one balancer that probes".to_owned(),
        None => format!("{probers} balancers"),
    }
}
