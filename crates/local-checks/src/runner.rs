//! Runs the local checks.

use crate::cycle::{Cycle, Demand};
use crate::local_checks::LocalChecks;
use crate::timing::{SLACK, Timing};
use nodegate_readiness::unconfirmed::{FIRST_RESULT_WITHIN, KUBELET};
use nodegate_readiness::{Begins, Board, CheckId, OnUnknown, Timeline};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

/// The number of its intervals after which the check `kubelet` runs although nothing asks for it: a minute by
/// default.
const INTERVALS_TO_A_LOOK: u32 = 12;

/// Runs local checks in the background and starts them on use. Dropping it stops all of them.
pub struct Runner {
    board: Arc<Board>,
    timeline: Timeline,
    slots: Vec<Slot>,
    /// Ends the tasks of the checks. Each check has one task for the life of the runner, asleep while the
    /// check is not wanted. There is never a second one to race with, and nothing to lock.
    tasks: AbortHandle,
}

#[derive(Clone)]
struct Slot {
    id: CheckId,
    is_eager: bool,
    timeout: Duration,
    demand: Arc<Demand>,
    /// Changes with each result; closed when the task is gone.
    results: watch::Receiver<()>,
}

impl Runner {
    /// Starts the checks of the board's catalog on the runtime of `handle`; the catalog has them by name.
    /// Checks that begin at the start never stop. The others start on use, or when the verdict needs them.
    /// The local checks among the default checks must begin at the start, because a request without names
    /// does not start them.
    pub fn start(checks: &LocalChecks, board: &Arc<Board>, timeline: Timeline, handle: &Handle) -> Self {
        let mut tasks = JoinSet::new();
        let mut slots = Vec::new();
        for id in board.catalog().local_ids() {
            let idle = match board.catalog().local(id).map(|check| check.begins) {
                Some(Begins::AtStart) => None,
                Some(Begins::OnDemand) => Some(checks.idle),
                // No request may start the check, but a verdict that depends on it may.
                Some(Begins::Never) => Some(Duration::ZERO),
                None => continue,
            };
            let name = board.catalog().name(id);
            let Some(entry) = checks.entries.iter().find(|entry| entry.name == name) else { continue };
            let demand = Arc::new(Demand::default());
            let (tell, results) = watch::channel(());
            slots.push(Slot {
                id,
                is_eager: idle.is_none(),
                timeout: entry.timing.timeout,
                demand: Arc::clone(&demand),
                results,
            });
            let cycle = Cycle {
                id,
                name: entry.name.clone(),
                timing: entry.timing,
                check: Arc::clone(&entry.check),
                board: Arc::clone(board),
                timeline,
                idle,
                look_after: look_after(name, &entry.timing, board),
                demand,
                results: tell,
            };
            tasks.spawn_on(cycle.run(), handle);
        }
        let tasks = handle.spawn(tell_of_ended(tasks)).abort_handle();
        let demands: Vec<_> = slots.iter().map(|slot: &Slot| (slot.id, slot.demand.clone())).collect();
        board.when_needed(move |needed| {
            demands.iter().filter(|(id, _)| *id == needed).for_each(|(_, demand)| demand.wake());
        });
        Self { board: Arc::clone(board), timeline, slots, tasks }
    }

    /// Starts each of these checks that is not running, and resolves when each has a valid result: at once
    /// for those that have one. It resolves in any case after the longest timeout among them and a little
    /// more; then the board reports `NoRecentResult`. Any number of callers share one run.
    ///
    /// It may be awaited on another runtime than that of the checks, and uses the timers of that runtime:
    /// even if the background is stuck, a request is not. Dropping the future stops nothing.
    pub fn activate(&self, ids: &[CheckId]) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        // The checks start before the future is first polled, so that all of them run in parallel.
        let waiting: Vec<Slot> = ids.iter().filter_map(|id| self.demand(*id)).collect();
        Box::pin(async move {
            let started = Instant::now();
            for mut slot in waiting {
                let time_limit = slot.timeout + SLACK;
                // It is too late, or the runner is gone: either way the board has the answer.
                let _ = timeout_at(started + time_limit, slot.results.changed()).await;
            }
        })
    }

    /// Resolves when each eager check has its first result, with the limit of [`Runner::activate`].
    pub fn eager_ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let eager = self.slots.iter().filter(|slot| slot.is_eager).map(|slot| slot.id);
        self.activate(&eager.collect::<Vec<_>>())
    }

    /// Resolves when the check that decides the verdict now, if there is one, has a valid result. Its limits
    /// are that of [`Runner::activate`], and the time for which the previous verdict holds.
    pub fn needed_ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let ready = self.activate(self.board.needed().as_slice());
        Box::pin(async move {
            let _ = timeout_at(Instant::now() + FIRST_RESULT_WITHIN, ready).await;
        })
    }

    /// Records the demand for a check; returns its slot if there is a result to wait for.
    fn demand(&self, id: CheckId) -> Option<Slot> {
        let mut slot = self.slots.iter().find(|slot| slot.id == id)?.clone();
        // This comes before the board is read: a result in between is then seen twice rather than missed.
        slot.results.mark_unchanged();
        let now = self.timeline.at(nodegate_clock::now());
        slot.demand.ask(now);
        let published = self.board.published();
        let result = published.state.local_result(self.board.catalog(), id);
        let valid = result.is_some_and(|result| now <= result.good_until);
        (!valid).then_some(slot)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

/// Returns the time after which the check `kubelet` runs once although nothing asks for it. `--on-unknown=local`
/// will depend on the kubelet's port when it is too late to correct a setting.
fn look_after(name: &str, timing: &Timing, board: &Board) -> Option<Duration> {
    let depends = name == KUBELET && board.policy().on_unknown == OnUnknown::Local;
    depends.then_some(timing.interval * INTERVALS_TO_A_LOOK)
}

/// Holds the tasks, none of which ends by itself, and logs if one does: the board only reports
/// `NoRecentResult` for its check.
async fn tell_of_ended(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        let error = ended.err().map(tracing::field::display);
        tracing::error!(error, "the task of a local check has ended; restart the agent and report this");
    }
}
