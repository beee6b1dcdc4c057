//! The loop that brings the configuration file and HAProxy's structure to what is desired.

use crate::applier::{Applied, Applier};
use crate::desired::Desired;
use crate::guard::Held;
use crate::health::Loop;
use crate::layout::Layout;
use crate::report::Reported;
use crate::sync::{AUDIT, FIRST_RETRY, Shared};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

/// A burst of changes is over after so much quiet.
const QUIET: Duration = Duration::from_millis(100);
/// A burst is not waited for longer than this.
const BURST: Duration = Duration::from_secs(1);
/// How often the template is looked at, and deleting what could not be deleted is tried again.
const IDLE: Duration = Duration::from_secs(30);
/// The longest wait between attempts that fail.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// When to try again after a failure.
struct Retry {
    at: Option<Instant>,
    wait: Duration,
    error: String,
}

impl Retry {
    fn failed(&mut self, error: String) {
        let retry_ms = self.wait.as_millis();
        if error == self.error {
            tracing::debug!(error, retry_ms, "still not applied");
        } else {
            tracing::error!(error, retry_ms, "not applied; HAProxy goes on as it is");
        }
        self.error = error;
        self.at = Some(Instant::now() + self.wait.mul_f64(0.8 + 0.4 * fastrand::f64()));
        self.wait = (self.wait * 2).min(LAST_RETRY);
    }

    /// What is not running may be started soon, and a port that somebody has may be given back: an outgoing connection
    /// is enough to take one for a while.
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

/// Runs forever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut applier = Applier::new(shared.setup.tools.clone());
    let mut desired = shared.desired.subscribe();
    let mut retry = Retry::default();
    let mut busy = Reported::default();
    loop {
        shared.health.beat(Loop::Applier);
        let mut force = false;
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = shared.reload.notified() => force = true,
            () = sleep_until(retry.at.unwrap_or_else(|| Instant::now() + IDLE)) => applier.tidy().await,
        }
        settle_down(&mut desired).await;
        let Some(now) = desired.borrow_and_update().clone() else { continue };
        save_states(&shared).await;
        shared.metrics.pending(true);
        match applier.settle(&now, force).await {
            Ok(applied) => {
                retry.succeeded(applied, applier.problems().iter().any(|problem| problem.kind == "busy"));
                succeeded(&shared, applied, applier.layout());
            }
            Err(error) => {
                shared.metrics.failed(error.kind());
                retry.failed(error.to_string());
            }
        }
        busy.report(applier.problems(), Held::default());
    }
}

fn succeeded(shared: &Shared, applied: Applied, layout: Option<&Layout>) {
    shared.metrics.applied(applied);
    let running = applied != Applied::NotRunning;
    shared.metrics.pending(!running);
    if running {
        shared.health.applied();
    }
    if applied != Applied::Unchanged {
        let frontends = layout.map(|layout| layout.desired.frontends.len());
        tracing::info!(how = ?applied, frontends, "configuration applied");
    }
    shared.layout.send_replace(layout.cloned().map(Arc::new));
}

/// Waits for the end of a burst of changes.
async fn settle_down(desired: &mut Receiver<Option<Arc<Desired>>>) {
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

/// The next process must find the states; a HAProxy that does not answer must not keep us from writing its file.
async fn save_states(shared: &Shared) {
    let (done, saved) = oneshot::channel();
    if shared.save.try_send(done).is_ok() {
        let _ = tokio::time::timeout(AUDIT, saved).await;
    }
}
