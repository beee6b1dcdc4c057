//! Runs the local checks.

use crate::check::{SLACK, Timing};
use crate::cycle::{Cycle, Demand};
use crate::local_checks::LocalChecks;
use nodegate_readiness::ready_history::{FIRST_RESULT_WITHIN, KUBELET};
use nodegate_readiness::{Begins, Board, CheckId, OnUnknown, Timeline};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// The number of its intervals after which the check `kubelet` runs although nothing asks for it.
const INTERVALS_TO_A_LOOK: u32 = 12;

/// Runs local checks in the background and starts them on use. Dropping it stops all of them.
pub struct Runner {
    board: Arc<Board>,
    timeline: Timeline,
    slots: Vec<Slot>,
    /// The tasks of the checks, one for each, asleep while the check is not wanted.
    _tasks: JoinSet<()>,
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
    /// Starts the checks of the board's catalog on the runtime of `handle`. Checks that begin at the start
    /// never stop. The others start on use, or when the verdict needs them. A request without names starts
    /// none.
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
        let demands: Vec<_> = slots.iter().map(|slot: &Slot| (slot.id, slot.demand.clone())).collect();
        let _ = board.on_need.set(Box::new(move |needed| {
            demands.iter().filter(|(id, _)| *id == needed).for_each(|(_, demand)| demand.wake());
        }));
        Self { board: Arc::clone(board), timeline, slots, _tasks: tasks }
    }

    /// Starts each of these checks that is not running, and resolves when each has a valid result, or after
    /// the longest timeout and a little more; then the board reports `NoRecentResult`. All callers share one
    /// run.
    ///
    /// It uses the timers of the runtime that awaits it: even if the background is stuck, a request is not.
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

    /// Resolves when the check that decides the verdict now, if there is one, has a valid result, within the
    /// limits of [`Runner::activate`] and of the previous verdict.
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
        let result = published.state.local_result(id);
        let valid = result.is_some_and(|result| now <= result.good_until);
        (!valid).then_some(slot)
    }
}

/// Returns when the check `kubelet` runs although nothing asks for it: `--on-unknown=local` will depend on
/// its port.
fn look_after(name: &str, timing: &Timing, board: &Board) -> Option<Duration> {
    let depends = name == KUBELET && board.policy().on_unknown == OnUnknown::Local;
    depends.then_some(timing.interval * INTERVALS_TO_A_LOOK)
}
