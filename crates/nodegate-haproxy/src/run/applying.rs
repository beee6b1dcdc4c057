//! The loop that applies the plan, and looks whether HAProxy still runs it.

use crate::failure::{Failure, Lasting};
use crate::haproxy::applier::{Applied, Applier, passing};
use crate::haproxy::config_file::Stamp;
use crate::plan::{Desired, InEffect};
use crate::run::Shared;
use crate::run::planning::Reported;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// The wait for other changes of the same moment.
const BURST: Duration = Duration::from_millis(200);
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
    none_passed: bool,
    error: Lasting,
    elsewhere: Lasting,
    none_passes: Lasting,
    left_out: Reported,
}

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
        none_passed: false,
        error: Lasting::new("can't apply the configuration; retrying", "the configuration is applied again"),
        elsewhere: Lasting::new(
            "HAProxy does not prove the configuration",
            "HAProxy proves the configuration again",
        ),
        none_passes: Lasting::new("no node passes HAProxy's check", "nodes pass HAProxy's check again"),
        left_out: Reported::default(),
    };
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        task.shared.beat.send_replace(Instant::now());
        tokio::select! {
            changed = desired.changed() => {
                if changed.is_err() { return }
                sleep(BURST).await;
                task.wanted.clone_from(&desired.borrow_and_update());
                task.is_due = true;
                // The change may be what an operator does about the failure.
                task.not_before = task.not_before.min(Instant::now() + task.shared.setup.tools.reload_interval);
            }
            () = sleep_until(task.next()), if task.is_due && task.wanted.is_some() => {}
            _ = look.tick() => task.look().await,
        }
        if task.is_due && Instant::now() >= task.next() {
            task.apply().await;
        }
        task.shared.metrics.pending.set(task.is_due.into());
    }
}

impl Applying {
    fn next(&self) -> Instant {
        let paced = self.reloaded.map(|at| at + self.shared.setup.tools.reload_interval);
        paced.map_or(self.not_before, |paced| paced.max(self.not_before))
    }

    /// Looks whether HAProxy runs what was applied, and whether the template has changed.
    async fn look(&mut self) {
        if self.wanted.is_none() {
            return;
        }
        let is_edited = self.applier.hash().is_some() && self.template != self.applier.template_stamp();
        // A port that another program had may be free, and an address may have come.
        self.is_due |= is_edited || !self.applier.left_out.is_empty();
        let unproven = self.applier.prove().await.err();
        let Shared { metrics, applied, .. } = self.shared.as_ref();
        let in_effect = applied.borrow().clone();
        if let Some(failure) = unproven {
            self.is_due = true;
            if in_effect.is_ok() && failure.kind == "foreign" {
                metrics.failed(failure.kind);
            }
            if self.applier.hash().is_some() {
                self.elsewhere.tell(&failure.text);
            }
            self.unproven(failure.text);
        } else if let Ok(in_effect) = in_effect {
            self.elsewhere.end();
            let passing = passing(&self.shared.setup.tools, &in_effect.runs).await;
            metrics.set_passing(passing.as_ref());
            let none_passes = passing.is_some_and(|passing| !passing.values().any(|passes| *passes));
            // Servers of a new HAProxy may have no result yet.
            let lasts = std::mem::replace(&mut self.none_passed, none_passes);
            if none_passes && lasts {
                self.none_passes.tell("the last resort serves, if there is one; see --explain");
            } else if !none_passes {
                self.none_passes.end();
            }
        }
    }

    fn unproven(&self, reason: String) {
        self.shared.metrics.set_passing(None);
        self.shared.applied.send_if_modified(|applied| std::mem::replace(applied, Err(reason)).is_ok());
    }

    async fn apply(&mut self) {
        let Some(wanted) = self.wanted.clone() else { return };
        let mut desired = Desired::clone(&wanted);
        self.template = self.applier.template_stamp();
        let outcome = self.applier.apply(&mut desired).await;
        self.left_out.problems(&self.applier.left_out);
        match outcome {
            Ok(applied) => self.succeeded(applied, desired),
            Err(failure) => self.failed(&failure),
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.shared.metrics.failed(failure.kind);
        self.error.tell(&failure.text);
        if self.applier.hash().is_none() {
            self.unproven(failure.text.clone());
        }
        if matches!(failure.kind, "reload" | "proof") {
            self.reloaded = Some(Instant::now());
        }
        self.not_before = Instant::now() + self.wait.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.wait = (self.wait * 2).min(RETRY.1);
    }

    fn succeeded(&mut self, applied: Applied, desired: Desired) {
        self.error.end();
        self.wait = RETRY.0;
        let (frontends, hash) = (desired.frontends.len(), self.applier.hash().unwrap_or_default().to_owned());
        let Shared { metrics, applied: in_effect, .. } = self.shared.as_ref();
        if applied == Applied::Reloaded {
            metrics.reloads.inc();
            self.reloaded = Some(Instant::now());
        }
        self.is_due = applied == Applied::Written;
        if !self.is_due && (applied == Applied::Reloaded || in_effect.borrow().is_err()) {
            tracing::info!(frontends, hash, "HAProxy runs the configuration");
        }
        let left_out = self.applier.left_out.clone();
        // HAProxy may be started, and another program may release a port.
        let again = if self.is_due || !left_out.is_empty() { LOOK } else { Duration::ZERO };
        self.not_before = Instant::now() + again;
        if self.is_due {
            return self.unproven("HAProxy is not running".to_owned());
        }
        drop(in_effect.send_replace(Ok(Arc::new(InEffect { hash, runs: desired, left_out }))));
        self.elsewhere.end();
    }
}
