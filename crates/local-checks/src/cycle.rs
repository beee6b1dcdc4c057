//! Runs one check in the background, from the first request that names it until the requests end.

use crate::check::{Check, KnownNode, SLACK, Timing, timeout_reason};
use futures::FutureExt;
use nodegate_readiness::{
    AtomicMoment, Board, CheckId, Damper, LocalResult, Moment, Outcome, Timeline, Verdict,
};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The interval at which a check that ran before the Node was known looks for it.
const LOOK_FOR_NODE: Duration = Duration::from_millis(50);

/// The demand for a check: the time of the last request that named it.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    asked: AtomicMoment,
    wake: Notify,
}

impl Demand {
    pub(crate) fn ask(&self, now: Moment) {
        self.asked.advance(now);
        self.wake();
    }

    /// Makes the cycle test again whether it is idle.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// A check with everything that it needs to run.
pub(crate) struct Cycle {
    pub(crate) id: CheckId,
    pub(crate) name: String,
    pub(crate) timing: Timing,
    pub(crate) check: Arc<dyn Check>,
    pub(crate) board: Arc<Board>,
    pub(crate) timeline: Timeline,
    /// The time without requests after which the check stops; `None` if it never stops.
    pub(crate) idle: Option<Duration>,
    /// The time after which the check runs once although nothing asks for it.
    pub(crate) look_after: Option<Duration>,
    pub(crate) demand: Arc<Demand>,
    pub(crate) results: watch::Sender<()>,
}

/// The results so far, and the verdict that was logged last.
type Memory = (Damper, Option<Verdict>);

impl Cycle {
    pub(crate) async fn run(self) {
        loop {
            // A wake-up alone proves no demand: it may be left over from before a stop.
            while self.is_idle() {
                tokio::select! {
                    biased;
                    () = self.demand.wake.notified() => {}
                    () = self.look() => {}
                }
            }
            self.run_until_idle().await;
            self.board.set_local(self.id, None, self.now(), nodegate_clock::wall());
            tracing::debug!(check = self.name, "no request uses this local check; stopping it");
        }
    }

    /// Runs the check once after a while, although nothing asks for it, if the agent has to know of it
    /// beforehand.
    async fn look(&self) {
        let Some(after) = self.look_after else { return pending().await };
        sleep(after).await;
        let outcome = self.outcome().await;
        self.board.set_kubelet(outcome, self.now(), nodegate_clock::wall());
    }

    async fn run_until_idle(&self) {
        let mut memory = (Damper::new(self.timing.rise, self.timing.fall), None);
        let knew_node = self.knows_node();
        self.run_once(&mut memory).await;
        // This phase keeps checks that started together from running in step.
        let phase = self.timing.interval.mul_f64(0.5 + fastrand::f64() / 2.0);
        let mut due = Instant::now() + phase;
        if !knew_node {
            due = self.until_node_known(due).await;
        }
        loop {
            sleep_until(due).await;
            if self.is_idle() {
                return;
            }
            self.run_once(&mut memory).await;
            due = next_due(due, self.timing.interval, Instant::now());
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
        self.board.published().state.node.exists().is_some()
    }

    async fn run_once(&self, memory: &mut Memory) {
        let started = Instant::now();
        let outcome = memory.0.observe(self.outcome().await);
        let duration = started.elapsed();
        self.log(&outcome, memory);
        let at = self.now();
        if self.look_after.is_some() {
            self.board.set_kubelet(outcome.clone(), at, nodegate_clock::wall());
        }
        // The next run begins within the interval and ends within the timeout.
        let good_until = at.plus(self.timing.interval + self.timing.timeout + SLACK);
        let result = LocalResult { outcome, duration, at, good_until };
        self.board.set_local(self.id, Some(result), at, nodegate_clock::wall());
        self.results.send_replace(());
    }

    /// Runs the check once, within its timeout. A panic costs only this run.
    async fn outcome(&self) -> Outcome {
        let limit = self.timing.timeout;
        // The call itself is inside: a check may panic before it returns its future.
        let node = self.known_node();
        let run = AssertUnwindSafe(async { self.check.run(&node).await }).catch_unwind();
        match timeout(limit, run).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Outcome::fail("Panicked"),
            Err(_) => Outcome::Fail(timeout_reason(limit)),
        }
    }

    fn known_node(&self) -> KnownNode {
        // Freshness is read before the state, because a state is published before its proof is recorded.
        let freshness = self.board.freshness(self.now());
        let internal_ips = self.board.published().state.node.internal_ips().to_vec();
        let name = self.board.node_name().unwrap_or_default().to_owned();
        KnownNode { name, internal_ips, heard: freshness.age, stale: freshness.stale }
    }

    /// Logs changes of verdict only: the reason of a check that keeps failing may count seconds.
    fn log(&self, outcome: &Outcome, memory: &mut Memory) {
        let verdict = outcome.verdict();
        if memory.1.replace(verdict) == Some(verdict) {
            return;
        }
        match outcome {
            Outcome::Pass => tracing::info!(check = self.name, "local check passes"),
            Outcome::Draining(reason) => {
                tracing::info!(check = self.name, reason = reason.as_str(), "local check drains");
            }
            Outcome::Fail(reason) => {
                tracing::warn!(check = self.name, reason = reason.as_str(), "local check fails");
            }
        }
    }

    fn is_idle(&self) -> bool {
        let Some(idle) = self.idle else { return false };
        if self.board.needed() == Some(self.id) {
            return false;
        }
        let asked = self.demand.asked.get().max(self.board.last_asked(self.id));
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
    // It is less than an interval, so it fits; otherwise the next run would just be later.
    now + interval.saturating_sub(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}
