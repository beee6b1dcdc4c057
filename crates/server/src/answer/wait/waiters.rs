//! The waiting requests, and the judgement that all of them share.

use super::wait_clients::PodSettings;
use super::wait_slots::WaitSlots;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{Goal, WaitJudgement};
use std::mem::discriminant;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(in crate::answer) struct Waiters {
    pub(super) slots: WaitSlots,
    pub(super) pods: OnceLock<PodSettings>,
    judged: Mutex<Judged>,
    /// The signal that wakes the waiting requests.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Judged {
    /// True while the task that judges runs.
    is_running: bool,
    /// True if a request has come since the latest judgement.
    is_awaited: bool,
    /// The moment of the latest judgement.
    at: Option<Moment>,
    /// The judgement for each goal by its discriminant: those of the node, and those of each Service.
    goals: Vec<WaitJudgement>,
}

impl Waiters {
    /// Lowers the numbers of slots to fit a listener's connections.
    pub(in crate::answer) fn limit(&self, max_connections: usize) {
        self.slots.limit(max_connections);
    }

    /// Wakes all waiting requests, which judge again.
    pub(in crate::answer) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Returns the judgement for a goal of the node or of the Service with this index; `None` if there has been
    /// none since `asked`.
    pub(super) fn judgement(
        &self,
        goal: Goal,
        service: Option<usize>,
        asked: Moment,
    ) -> Option<WaitJudgement> {
        let judged = self.judged();
        let first = service.map_or(0, |index| (index + 1) * Goal::ALL.len());
        judged.goals.get(first + goal as usize).filter(|_| judged.at.is_some_and(|at| at >= asked)).cloned()
    }

    /// Stores judgements, and wakes the requests if one of them may end. Requests are not woken by news that
    /// only change the reason for a hold.
    pub(super) fn judge(&self, at: Moment, goals: Vec<WaitJudgement>) {
        let mut judged = self.judged();
        let same = judged.goals.len() == goals.len()
            && judged.goals.iter().zip(&goals).all(|(old, new)| discriminant(old) == discriminant(new));
        let wakes = judged.is_awaited || !same;
        *judged = Judged { is_running: true, is_awaited: false, at: Some(at), goals };
        drop(judged);
        if wakes {
            self.changed.notify_waiters();
        }
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request waits, and calls `start` if no task judges yet.
    pub(super) fn start_to_judge(&self, start: impl FnOnce()) {
        let mut judged = self.judged();
        judged.is_awaited = true;
        if !judged.is_running {
            judged.is_running = true;
            start();
        }
    }

    /// Returns true if no request waits, so that the task ends. Calls `stop` before another task may start.
    pub(super) fn stops_to_judge(&self, stop: impl FnOnce()) -> bool {
        let mut judged = self.judged();
        let stops = self.slots.are_free();
        if stops {
            *judged = Judged::default();
            stop();
        }
        stops
    }
}
