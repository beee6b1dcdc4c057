//! The load balancer: the acknowledgement must come, and neither too early nor without probers.

use crate::oracle::KINDS;
use nodegate_agent_api::DrainStatus;
use nodegate_readiness::probers::{FALL, MAX_INTERVAL};
use std::time::{Duration, Instant};

/// The time after which an agent knows its probers, and those that may become regular.
const KNOWS_PROBERS: Duration = MAX_INTERVAL.saturating_mul(2);
/// The time within which the balancer has had `FALL` answers and has probed again: every 900 ms.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// One load balancer, with a probe request of each kind.
pub(crate) struct Balancer {
    began: Instant,
    /// For each kind of probe request, the number of answers in a row that take the node out.
    out_in_a_row: [u32; KINDS.len()],
    /// The time since which all answers have been fresh and have taken the node out.
    out_since: Option<Instant>,
}

impl Balancer {
    /// Returns a balancer that probes an agent that has listened since `began`.
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, out_in_a_row: [0; KINDS.len()], out_since: None }
    }

    pub(crate) fn received(&mut self, kind: usize, takes_out: bool) {
        let in_a_row = &mut self.out_in_a_row[kind];
        *in_a_row = if takes_out { *in_a_row + 1 } else { 0 };
        // It may be too short for a flip: the agent notices at its next second that the cache is stale.
        self.out_since = self.out_since.filter(|_| takes_out);
    }

    /// Returns whether the agent reports the acknowledgement; the error says that this is wrong. The agent's verdict left Ready,
    /// or came back, at `last_pool_change`. `fresh` is of the last answers.
    pub(crate) fn judge(
        &mut self,
        drain: &DrainStatus,
        last_pool_change: Instant,
        fresh: bool,
    ) -> Result<bool, String> {
        let now = nodegate_clock::now();
        let listened = now.saturating_duration_since(self.began);
        let out = fresh && self.out_in_a_row.iter().all(|in_a_row| *in_a_row > 0);
        self.out_since = out.then(|| self.out_since.unwrap_or(now).max(last_pool_change));
        let out_for = self.out_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let acknowledged = drain.acknowledged == Some(true);
        if !acknowledged && listened > KNOWS_PROBERS + ACKNOWLEDGED_WITHIN && out_for > ACKNOWLEDGED_WITHIN {
            let why = (drain.acknowledged, &drain.not_known, &drain.waiting_for);
            return Err(format!(
                "not acknowledged {:.1} s after the node left: {why:?}",
                out_for.as_secs_f64()
            ));
        }
        if acknowledged && listened < MAX_INTERVAL {
            return Err(format!("acknowledged after {:.1} s", listened.as_secs_f64()));
        }
        if acknowledged && self.out_in_a_row.iter().any(|in_a_row| *in_a_row <= FALL) {
            return Err(format!(
                "acknowledged, after {:?} answers in a row that take the node out",
                self.out_in_a_row
            ));
        }
        Ok(acknowledged)
    }
}
