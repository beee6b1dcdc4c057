//! The loop that applies the desired configuration to the configuration file and to HAProxy's structure.

use crate::apply::applier::{Applied, Applier, ApplyError, Reload};
use crate::apply::pace::ReloadPace;
use crate::plan::desired::Desired;
use crate::plan::guard::Held;
use crate::run::health::Loop;
use crate::run::report::{Reported, tell_applied};
use crate::run::shared::{AUDIT, FIRST_RETRY, Shared};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

/// The time without changes that ends a burst.
const QUIET: Duration = Duration::from_millis(100);
/// The longest wait for the end of a burst.
const BURST: Duration = Duration::from_secs(1);
/// The interval between looks at the template. The deletion of remaining servers is retried at least this
/// often.
const IDLE: Duration = Duration::from_secs(30);
/// The longest delay between failing attempts.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// The time of the next attempt after a failure.
struct Retry {
    at: Option<Instant>,
    wait: Duration,
    error: String,
}

impl Retry {
    fn failed(&mut self, error: String) {
        let retry_ms = self.wait.as_millis();
        if error == self.error {
            tracing::debug!(error, retry_ms, "still can't apply the configuration");
        } else {
            tracing::error!(error, retry_ms, "can't apply the configuration; HAProxy keeps the loaded one");
        }
        self.error = error;
        self.at = Some(Instant::now() + self.wait.mul_f64(0.8 + 0.4 * fastrand::f64()));
        self.wait = (self.wait * 2).min(LAST_RETRY);
    }

    /// Records a success. Another attempt follows soon if HAProxy is not running, because it may be started,
    /// or if another program has a port, because it may release it. An outgoing connection is enough to take
    /// a port for a while.
    fn succeeded(&mut self, applied: Applied, left_out: bool) {
        let at = (applied == Applied::NotRunning || left_out).then(|| Instant::now() + AUDIT);
        *self = Self { at, ..Self::default() };
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { at: None, wait: FIRST_RETRY, error: String::new() }
    }
}

struct StructureTask {
    shared: Arc<Shared>,
    applier: Applier,
    retry: Retry,
    pace: ReloadPace,
    /// True if HAProxy lacks servers or backends, until a reload has worked.
    force: bool,
    last: Option<Applied>,
    left_out: Reported,
    /// The delay until the next deletion of servers. Some open connections end soon, and some take hours.
    tidy: Duration,
}

/// Runs forever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut desired = shared.desired.subscribe();
    let mut task = StructureTask {
        applier: Applier::new(shared.setup.tools.clone()),
        shared,
        retry: Retry::default(),
        pace: ReloadPace::of_all(),
        force: false,
        last: None,
        left_out: Reported::default(),
        tidy: IDLE,
    };
    loop {
        task.shared.health.beat(Loop::Applier);
        tokio::select! {
            changed = desired.changed() => {
                if changed.is_err() { return }
                task.shared.metrics.pending(true);
            }
            () = task.shared.reload.notified() => task.force = true,
            () = sleep_until(task.wakes()) => if !task.shared.setup.pause.is_on() { task.tidy().await },
        }
        task.shared.setup.pause.is_over(|| task.shared.health.beat(Loop::Applier)).await;
        end_of_burst(&mut desired).await;
        let Some(now) = desired.borrow_and_update().clone() else { continue };
        save_states(&task.shared).await;
        task.apply(&now).await;
    }
}

impl StructureTask {
    fn wakes(&self) -> Instant {
        let soonest = self.retry.at.into_iter().chain(self.applier.next_try()).min();
        soonest.unwrap_or_else(|| Instant::now() + self.tidy)
    }

    async fn tidy(&mut self) {
        let left = self.applier.tidy().await;
        self.tidy = if left { (self.tidy * 2).min(IDLE) } else { IDLE };
        debug_assert!((FIRST_RETRY..=IDLE).contains(&self.tidy), "{:?}", self.tidy);
    }

    async fn apply(&mut self, now: &Desired) {
        let metrics = self.shared.metrics.clone();
        metrics.pending(true);
        // Without a way to reload, no reload leaves a process behind.
        let allowed = self.pace.is_open(Instant::now()) || !self.shared.setup.tools.reloader.is_somebody();
        let outcome = self.applier.apply(now, Reload { wanted: self.force, allowed }).await;
        // These are set before the result, because a reader who waits for the result may look at them next.
        metrics.foreign_changes(self.applier.foreign_changes());
        metrics.left_out(self.applier.problems());
        self.shared.left_out.send_if_modified(|left_out| {
            let problems = self.applier.problems();
            let changed = left_out.as_slice() != problems;
            if changed {
                *left_out = problems.to_vec();
            }
            changed
        });
        match outcome {
            Ok(Applied::Postponed) => self.retry.at = self.pace.opens(),
            Ok(applied) => self.succeeded(applied),
            Err(error) => {
                if matches!(error, ApplyError::Reload(_)) {
                    self.pace.failed(Instant::now());
                }
                metrics.failed(error.kind());
                self.retry.failed(error.to_string());
            }
        }
        if let Some(until) = self.applier.waits_until() {
            metrics.pending(true);
            let at = self.pace.opens().map_or(until, |opens| opens.max(until));
            self.retry.at = self.retry.at.into_iter().chain([at]).min();
        }
        self.left_out.report(self.applier.problems(), &Held::default());
    }

    fn succeeded(&mut self, applied: Applied) {
        self.force = false;
        match applied {
            Applied::Reloaded => self.pace.reloaded(Instant::now()),
            Applied::Dynamic => self.tidy = FIRST_RETRY,
            _ => {}
        }
        let busy = self
            .applier
            .problems()
            .iter()
            .any(|problem| matches!(problem.kind, "busy" | "absent" | "forbidden"));
        self.retry.succeeded(applied, busy);
        let Shared { metrics, health, layout, .. } = self.shared.as_ref();
        metrics.applied(applied);
        let running = applied != Applied::NotRunning;
        metrics.pending(!running);
        health.set_serving(running);
        if running {
            metrics.loaded(self.applier.in_effect());
            health.applied();
        }
        let now = self.applier.layout();
        let known = match applied {
            Applied::Unchanged => true,
            Applied::NotRunning => self.last == Some(applied),
            _ => false,
        };
        if !known {
            tell_applied(applied, now.map(|layout| layout.desired.frontends.len()));
        }
        self.last = Some(applied);
        layout.send_replace(now.cloned().map(Arc::new));
    }
}

/// Waits for the end of a burst of changes.
async fn end_of_burst(desired: &mut Receiver<Option<Arc<Desired>>>) {
    let last = Instant::now() + BURST;
    loop {
        desired.borrow_and_update();
        let quiet = (Instant::now() + QUIET).min(last);
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = sleep_until(quiet) => return,
        }
        if Instant::now() >= last {
            return;
        }
    }
}

/// Saves the states for the next process. Waits at most [`AUDIT`], so that a HAProxy that does not answer
/// does not keep the configuration from being written.
async fn save_states(shared: &Shared) {
    let (done, saved) = oneshot::channel();
    if shared.save.try_send(done).is_ok() {
        let _ = tokio::time::timeout(AUDIT, saved).await;
    }
}
