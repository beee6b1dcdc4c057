//! Runs the local checks in the background: from the start, or from the first request that names one until the requests
//! end.

use crate::check::{KnownNode, SLACK, timeout_reason};
use crate::local_checks::{Entry, LocalChecks};
use futures::FutureExt;
use nodegate_readiness::board::IDLE;
use nodegate_readiness::ready_history::{FIRST_RESULT_WITHIN, KUBELET};
use nodegate_readiness::{
    AtomicMoment, Board, CheckId, Damper, LocalResult, Moment, OnUnknown, Outcome, Reason, StartMode,
    Timeline,
};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// The number of its intervals after which the check `kubelet` runs although nothing asks for it.
const INTERVALS_TO_A_LOOK: u32 = 12;
/// The interval at which a check that ran before the Node was known looks for it.
const LOOK_FOR_NODE: Duration = Duration::from_millis(50);

/// Runs local checks in the background and starts them on use. Dropping it stops all of them.
pub struct Runner {
    board: Arc<Board>,
    scheduled: Vec<Arc<ScheduledCheck>>,
    /// The tasks of the checks, one for each, asleep while the check is not wanted.
    _tasks: JoinSet<()>,
}

/// A check with everything that it needs to run.
struct ScheduledCheck {
    id: CheckId,
    entry: Entry,
    board: Arc<Board>,
    timeline: Timeline,
    /// The time without requests after which the check stops; `None` if it never stops.
    idle: Option<Duration>,
    /// The time after which an idle check runs once; `None` if nothing will depend on it.
    idle_look_after: Option<Duration>,
    /// The time of the last request that named it.
    asked: AtomicMoment,
    /// Makes it test again whether it is idle.
    wake: Arc<Notify>,
    /// Changes with each result; closed when the runner is gone.
    results: watch::Sender<()>,
}

impl Runner {
    /// Starts the checks of the board's catalog on the runtime of `handle`. Checks that begin at the start
    /// never stop. The others start on use, or when the verdict needs them. A request without names starts
    /// none.
    pub fn start(checks: &LocalChecks, board: &Arc<Board>, timeline: Timeline, handle: &Handle) -> Self {
        let mut tasks = JoinSet::new();
        let mut scheduled = Vec::new();
        for id in board.catalog().local_ids() {
            let idle = match board.catalog().local(id).map(|check| check.begins) {
                Some(StartMode::AtStart) => None,
                Some(StartMode::OnDemand) => Some(IDLE),
                // No request may start the check, but a verdict that depends on it may.
                Some(StartMode::Never) => Some(Duration::ZERO),
                None => continue,
            };
            let name = board.catalog().name(id);
            let Some(entry) = checks.entries.iter().find(|entry| entry.name == name) else { continue };
            // The verdict will depend on the kubelet's port.
            let depends = name == KUBELET && board.policy().on_unknown == OnUnknown::Local;
            let check = Arc::new(ScheduledCheck {
                id,
                entry: entry.clone(),
                board: Arc::clone(board),
                timeline,
                idle,
                idle_look_after: depends.then_some(entry.timing.interval * INTERVALS_TO_A_LOOK),
                asked: AtomicMoment::default(),
                wake: Arc::default(),
                results: watch::Sender::new(()),
            });
            tasks.spawn_on(Arc::clone(&check).run(), handle);
            scheduled.push(check);
        }
        let wakes: Vec<_> = scheduled.iter().map(|check| (check.id, Arc::clone(&check.wake))).collect();
        let _ = board.on_need.set(Box::new(move |needed| {
            wakes.iter().filter(|(id, _)| *id == needed).for_each(|(_, wake)| wake.notify_one());
        }));
        Self { board: Arc::clone(board), scheduled, _tasks: tasks }
    }

    /// Starts each of these checks that is not running, and resolves when each has a valid result, or after
    /// the longest timeout and a little more; then the board reports `NoRecentResult`. All callers share one
    /// run.
    ///
    /// The wait uses the timers of the runtime that awaits it: even if the background is stuck, a request is not.
    pub fn activate(&self, ids: &[CheckId]) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        // The checks start before the future is first polled, so that all of them run in parallel.
        let waiting: Vec<_> = ids.iter().filter_map(|id| self.ask(*id)).collect();
        Box::pin(async move {
            let started = Instant::now();
            for (mut results, time_limit) in waiting {
                // The result is too late, or the runner is gone: either way the board has the answer.
                let _ = timeout_at(started + time_limit, results.changed()).await;
            }
        })
    }

    /// Resolves when each check that begins at the start has its first result, with the limit of [`Runner::activate`].
    pub async fn eager_ready(&self) {
        let eager = self.scheduled.iter().filter(|check| check.idle.is_none()).map(|check| check.id);
        self.activate(&eager.collect::<Vec<_>>()).await;
    }

    /// Resolves when the check that decides the verdict now, if there is one, has a valid result, within the
    /// limits of [`Runner::activate`] and of the previous verdict.
    pub async fn needed_ready(&self) {
        let _ = timeout(FIRST_RESULT_WITHIN, self.activate(self.board.needed().as_slice())).await;
    }

    /// Records the demand for a check. Returns its results and the time limit if there is one to wait for.
    fn ask(&self, id: CheckId) -> Option<(watch::Receiver<()>, Duration)> {
        let check = self.scheduled.iter().find(|check| check.id == id)?;
        // The receiver is taken before the board is read: a result in between is then seen twice rather than missed.
        let results = check.results.subscribe();
        let now = check.now();
        check.asked.advance(now);
        check.wake.notify_one();
        let state = self.board.state();
        let result = state.local_result(id);
        let valid = result.is_some_and(|result| now <= result.good_until);
        (!valid).then_some((results, check.entry.timing.timeout + SLACK))
    }
}

impl ScheduledCheck {
    async fn run(self: Arc<Self>) {
        loop {
            // A wake-up alone proves no demand: it may be left over from before a stop.
            while self.is_idle() {
                tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = self.look() => {}
                }
            }
            self.run_until_idle().await;
            self.board.set_local(self.id, None, self.now(), nodegate_clock::wall());
            tracing::debug!(check = self.entry.name, "no request uses this local check; stopping it");
        }
    }

    /// Runs the check once after a while, although nothing asks for it, if the agent has to know of it
    /// beforehand.
    async fn look(&self) {
        let Some(after) = self.idle_look_after else { return pending().await };
        sleep(after).await;
        let outcome = self.outcome().await;
        self.board.set_kubelet(outcome, self.now(), nodegate_clock::wall());
    }

    async fn run_until_idle(&self) {
        let mut damper = Damper::new(self.entry.timing.rise, self.entry.timing.fall);
        let knew_node = self.knows_node();
        self.run_once(&mut damper).await;
        // This phase keeps checks that started together from running in step.
        let phase = self.entry.timing.interval.mul_f64(0.5 + fastrand::f64() / 2.0);
        let mut due = Instant::now() + phase;
        if !knew_node {
            due = self.until_node_known(due).await;
        }
        loop {
            sleep_until(due).await;
            if self.is_idle() {
                return;
            }
            self.run_once(&mut damper).await;
            due = next_due(due, self.entry.timing.interval, Instant::now());
        }
    }

    /// Waits until `due`, or until the Node is known: a run without its addresses may have missed a port.
    async fn until_node_known(&self, due: Instant) -> Instant {
        while !self.knows_node() && Instant::now() < due {
            sleep_until(due.min(Instant::now() + LOOK_FOR_NODE)).await;
        }
        Instant::now()
    }

    fn knows_node(&self) -> bool {
        self.board.state().node.exists().is_some()
    }

    async fn run_once(&self, damper: &mut Damper) {
        let started = Instant::now();
        let outcome = damper.observe(self.outcome().await);
        let duration = started.elapsed();
        self.log(&outcome);
        let at = self.now();
        if self.idle_look_after.is_some() {
            self.board.set_kubelet(outcome.clone(), at, nodegate_clock::wall());
        }
        // The next run begins within the interval and ends within the timeout.
        let good_until = at.plus(self.entry.timing.interval + self.entry.timing.timeout + SLACK);
        let result = LocalResult { outcome, duration, at, good_until };
        self.board.set_local(self.id, Some(result), at, nodegate_clock::wall());
        self.results.send_replace(());
    }

    /// Runs the check once, within its timeout. A panic costs only this run.
    async fn outcome(&self) -> Outcome {
        let limit = self.entry.timing.timeout;
        // The call itself is inside: a check may panic before it returns its future.
        let node = self.known_node();
        let run = AssertUnwindSafe(async { self.entry.check.run(&node).await }).catch_unwind();
        match timeout(limit, run).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Outcome::fail("Panicked"),
            Err(_) => Outcome::Fail(timeout_reason(limit)),
        }
    }

    fn known_node(&self) -> KnownNode {
        // Freshness is read before the state, because a state is published before its proof is recorded.
        let freshness = self.board.freshness(self.now());
        let internal_ips = self.board.state().node.internal_ips().to_vec();
        KnownNode { internal_ips, heard: freshness.age, stale: freshness.stale }
    }

    /// Logs changes of verdict only: the reason of a check that keeps failing may count seconds.
    fn log(&self, outcome: &Outcome) {
        let state = self.board.state();
        let last = state.local_result(self.id);
        if last.is_some_and(|last| last.outcome.verdict() == outcome.verdict()) {
            return;
        }
        let (check, reason) = (self.entry.name.as_str(), outcome.reason().map(Reason::as_str));
        match outcome {
            Outcome::Pass => tracing::info!(check, "local check passes"),
            Outcome::Draining(_) => tracing::info!(check, reason, "local check drains"),
            Outcome::Fail(_) => tracing::warn!(check, reason, "local check fails"),
        }
    }

    fn is_idle(&self) -> bool {
        let Some(idle) = self.idle else { return false };
        if self.board.needed() == Some(self.id) {
            return false;
        }
        let asked = self.asked.get().max(self.board.last_requested(self.id));
        asked.is_none_or(|asked| self.now().since(asked) > idle)
    }

    fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }
}

/// Returns the first multiple of the interval after `now`. tokio's `Interval` would start a run at once after
/// a slow one, and a check that hangs would run without a pause.
fn next_due(due: Instant, interval: Duration, now: Instant) -> Instant {
    let nanos = now.saturating_duration_since(due).as_nanos() % interval.as_nanos().max(1);
    // The delay is less than an interval, so it fits; otherwise the next run would just be later.
    now + interval.saturating_sub(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}
