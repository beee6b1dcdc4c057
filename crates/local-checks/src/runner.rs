//! The local checks as they run.

use crate::cycle::{Cycle, Demand};
use crate::local_checks::Probes;
use crate::timing::SLACK;
use nodegate_readiness::{Board, CheckId, Timeline};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Runs local checks in the background and starts them on use. Dropping it stops all of them.
pub struct Runner {
    board: Arc<Board>,
    timeline: Timeline,
    slots: Vec<Slot>,
    eager: Vec<CheckId>,
    /// One task a check for the life of the runner, asleep while the check is not wanted: there is never a second one
    /// to race with, and nothing to lock.
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Slot {
    id: CheckId,
    timeout: Duration,
    demand: Arc<Demand>,
    /// Changes with each result; closed when the task is gone.
    results: watch::Receiver<()>,
}

impl Runner {
    pub(crate) fn start(
        probes: &Probes,
        board: &Arc<Board>,
        timeline: Timeline,
        handle: &Handle,
        eager: &[CheckId],
    ) -> Self {
        let mut tasks = JoinSet::new();
        let mut slots = Vec::new();
        for id in board.catalog().local_ids() {
            let name = board.catalog().name(id);
            let Some(entry) = probes.entries.iter().find(|entry| entry.name == name) else { continue };
            let demand = Arc::new(Demand::default());
            let (tell, results) = watch::channel(());
            slots.push(Slot { id, timeout: entry.timing.timeout, demand: Arc::clone(&demand), results });
            let cycle = Cycle {
                id,
                name: entry.name.clone(),
                timing: entry.timing,
                probe: Arc::clone(&entry.probe),
                board: Arc::clone(board),
                timeline,
                idle: (!eager.contains(&id)).then_some(probes.idle),
                demand,
                results: tell,
            };
            tasks.spawn_on(cycle.run(), handle);
        }
        Self { board: Arc::clone(board), timeline, slots, eager: eager.to_vec(), _tasks: tasks }
    }

    /// Starts each of these checks that is not running, and resolves when each has a valid result: at once for those
    /// that have one, and in any case by the longest timeout among them and a little more, after which the board says
    /// `NoRecentResult`. Any number of callers share one run.
    ///
    /// It may be awaited on another runtime than the checks run on, and keeps time by the timers of that runtime: even
    /// if the background is stuck, a request is not. Dropping the future stops nothing.
    pub fn activate(&self, ids: &[CheckId]) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        // Started before the future is first polled, so that all of them run side by side.
        let waiting: Vec<Slot> = ids.iter().filter_map(|id| self.demand(*id)).collect();
        Box::pin(async move {
            let started = Instant::now();
            for mut slot in waiting {
                let patience = slot.timeout + SLACK;
                // Too late, or the runner is gone: either way the board says what there is to say.
                let _ = timeout_at(started + patience, slot.results.changed()).await;
            }
        })
    }

    /// Resolves when each eager check has its first result, bounded like [`Runner::activate`].
    pub fn eager_ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        self.activate(&self.eager)
    }

    /// Says that a check is wanted; gives its slot if there is a result to wait for.
    fn demand(&self, id: CheckId) -> Option<Slot> {
        let mut slot = self.slots.iter().find(|slot| slot.id == id)?.clone();
        // Before the look at the board: a result that comes between is then seen twice rather than missed.
        slot.results.mark_unchanged();
        let now = self.timeline.at(nodegate_clock::now());
        slot.demand.ask(now);
        let published = self.board.published();
        let result = published.state.local_result(self.board.catalog(), id);
        let valid = result.is_some_and(|result| now <= result.good_until);
        (!valid).then_some(slot)
    }
}
