//! The loop that applies the plan, and looks whether HAProxy still runs it.

use crate::apply::applier::{Applied, Applier, ApplyError, Running};
use crate::apply::config_file::Stamp;
use crate::plan::desired::Desired;
use crate::plan::removal_limit::Retained;
use crate::run::report::{LastingError, NoNodePasses, Reported};
use crate::run::shared::{InEffect, Shared};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// The time without changes that ends a burst.
const QUIET: Duration = Duration::from_millis(100);
/// The longest wait for the end of a burst.
const BURST: Duration = Duration::from_secs(1);
/// The interval between looks at HAProxy, at the file and at the template.
const LOOK: Duration = Duration::from_secs(2);
/// The shortest delay after a failure, and the longest one.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

struct Applying {
    shared: Arc<Shared>,
    applier: Applier,
    wanted: Option<Arc<Desired>>,
    /// True while the plan, the template or HAProxy differ from what was applied last.
    is_due: bool,
    /// The time before which nothing is tried, after a failure.
    not_before: Instant,
    wait: Duration,
    reloaded: Option<Instant>,
    template: Option<Stamp>,
    error: LastingError,
    elsewhere: LastingError,
    none_passes: NoNodePasses,
    left_out: Reported,
    was_applied: bool,
}

/// Runs forever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut desired = shared.desired.subscribe();
    let mut task = Applying {
        applier: Applier::new(shared.setup.tools.clone()),
        shared,
        wanted: None,
        is_due: false,
        not_before: Instant::now(),
        wait: RETRY.0,
        reloaded: None,
        template: None,
        error: LastingError::new("can't apply the configuration; HAProxy keeps the loaded one; retrying"),
        elsewhere: LastingError::new("the running HAProxy does not prove the configuration"),
        none_passes: NoNodePasses::default(),
        left_out: Reported::default(),
        was_applied: false,
    };
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        task.shared.health.beat();
        tokio::select! {
            changed = desired.changed() => {
                if changed.is_err() { return }
                task.wanted = end_of_burst(&mut desired).await;
                task.is_due = true;
                // The change may be what an operator does about the failure.
                task.not_before = task.not_before.min(Instant::now() + task.shared.setup.reload_interval);
            }
            () = sleep_until(task.next()), if task.is_due && task.wanted.is_some() => {}
            _ = look.tick() => task.look().await,
        }
        if task.is_due && Instant::now() >= task.next() {
            task.apply().await;
        }
        task.shared.metrics.set_pending(task.is_due);
    }
}

impl Applying {
    /// Returns the time of the next attempt.
    fn next(&self) -> Instant {
        let paced = self.reloaded.map(|at| at + self.shared.setup.reload_interval);
        paced.map_or(self.not_before, |paced| paced.max(self.not_before))
    }

    /// Looks whether HAProxy runs what was applied, and whether the template has changed.
    async fn look(&mut self) {
        let stamp = self.applier.template_stamp();
        if self.template != stamp && self.applier.hash().is_some() {
            self.is_due = true;
        }
        if self.wanted.is_some() && !self.applier.left_out().is_empty() {
            // A port that another program had may be free, and an address may have come.
            self.is_due = true;
        }
        if self.wanted.is_none() {
            return;
        }
        let running = self.applier.running().await;
        let reason = match running {
            Running::Proven => None,
            Running::Elsewhere(reason) => Some(reason),
            Running::Absent => Some("HAProxy is not running".to_owned()),
            Running::Unknown(error) => Some(error.to_string()),
        };
        let Shared { health, metrics, applied, .. } = self.shared.as_ref();
        let in_effect = applied.borrow().clone();
        if let Some(reason) = &reason {
            self.is_due = true;
            applied.send_if_modified(|applied| applied.take().is_some());
            if self.was_applied {
                self.elsewhere.tell(reason);
            }
        } else if let Some(in_effect) = in_effect {
            self.elsewhere.end("the running HAProxy proves the configuration again");
            let passing = self.applier.passing(&in_effect.runs).await;
            metrics.set_passing(passing.as_ref());
            self.none_passes.look(passing.as_ref());
        }
        metrics.set_applied(reason.is_none());
        health.set_unproven(reason);
    }

    async fn apply(&mut self) {
        let Some(wanted) = self.wanted.clone() else { return };
        let mut desired = Desired::clone(&wanted);
        let template = self.applier.template_stamp();
        let outcome = self.applier.apply(&mut desired, true).await;
        self.template = template;
        let metrics = self.shared.metrics.clone();
        if self.applier.take_foreign_change() {
            metrics.foreign_change();
            tracing::warn!("another program has changed the configuration file");
        }
        let left_out = self.applier.left_out().to_vec();
        self.left_out.report(&left_out, &Retained::default());
        metrics.left_out(&left_out);
        match outcome {
            Ok(applied) => self.succeeded(applied, desired, left_out),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &ApplyError) {
        self.shared.metrics.failed(error.kind());
        self.error.tell(&error.to_string());
        if !self.was_applied {
            self.shared.health.set_unproven(Some(error.to_string()));
        }
        if matches!(error, ApplyError::Reload(_) | ApplyError::CommandFailed(_)) {
            self.reloaded = Some(Instant::now());
        }
        self.not_before = Instant::now() + self.wait.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.wait = (self.wait * 2).min(RETRY.1);
        debug_assert!((RETRY.0..=RETRY.1).contains(&self.wait), "{:?}", self.wait);
    }

    fn succeeded(
        &mut self,
        applied: Applied,
        desired: Desired,
        left_out: Vec<crate::plan::desired::Problem>,
    ) {
        self.error.end("the configuration is applied again");
        self.wait = RETRY.0;
        let frontends = desired.frontends.len();
        let Shared { metrics, health, applied: in_effect, .. } = self.shared.as_ref();
        let hash = self.applier.hash();
        match applied {
            Applied::Reloaded => {
                tracing::info!(frontends, hash, "configuration applied");
                metrics.reloaded();
                self.reloaded = Some(Instant::now());
            }
            Applied::Unchanged if in_effect.borrow().is_none() => {
                tracing::info!(frontends, hash, "HAProxy runs the configuration");
            }
            Applied::Written if !self.was_applied => {
                tracing::info!(frontends, "configuration written; waiting for HAProxy");
            }
            Applied::Unchanged | Applied::Written | Applied::Postponed => {}
        }
        self.is_due = !matches!(applied, Applied::Reloaded | Applied::Unchanged);
        // HAProxy may be started, and another program may release a port.
        self.not_before =
            Instant::now() + if self.is_due || !left_out.is_empty() { LOOK } else { Duration::ZERO };
        metrics.loaded(hash, desired.server_count(), frontends);
        if self.is_due {
            self.was_applied |= applied == Applied::Written;
            health.set_unproven(Some("HAProxy is not running".to_owned()));
            metrics.set_applied(false);
            return;
        }
        self.was_applied = true;
        health.set_unproven(None);
        metrics.set_applied(true);
        self.elsewhere.end("the running HAProxy proves the configuration again");
        in_effect.send_replace(Some(Arc::new(InEffect { runs: Arc::new(desired), left_out })));
    }
}

/// Waits for the end of a burst of changes. Returns the last plan.
async fn end_of_burst(desired: &mut Receiver<Option<Arc<Desired>>>) -> Option<Arc<Desired>> {
    let last = Instant::now() + BURST;
    loop {
        let now = desired.borrow_and_update().clone();
        let quiet = (Instant::now() + QUIET).min(last);
        tokio::select! {
            changed = desired.changed() => if changed.is_err() || Instant::now() >= last { return now },
            () = sleep_until(quiet) => return now,
        }
    }
}
