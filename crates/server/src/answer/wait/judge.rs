//! The task that judges for all waiting requests.

use crate::answer::app::App;
use nodegate_readiness::probers::{Goal, WaitJudgement};
use nodegate_readiness::status::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The least time between two judgements, so that frequent probes cost no more.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. Some conditions change by time alone: a silent prober is gone, a new agent has listened
/// for long enough, the cache gets stale.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl App {
    /// Has the goals judged for a request that has a slot. One task does that for all, as long as
    /// any request waits.
    pub(super) fn start_to_judge(self: &Arc<Self>) {
        self.waiters.start_to_judge(|| {
            self.probers.wake.want(true);
            tokio::spawn(judge(Arc::clone(self)));
        });
        self.probers.wake.wake();
    }

    /// Returns the judgement for each goal, of the node and then of each watched Service.
    fn judgements(&self, status: &Status, unchanged_for: Duration) -> Vec<WaitJudgement> {
        // A Service that has been out for long waits for slow balancers: a rollout takes it out, no fault.
        let services = self.board.catalog().services().map(|service| status.of_service(&service.to_string()));
        let services =
            services.flatten().map(|status| Goal::ALL.map(|goal| status.judge_wait(goal, Duration::ZERO)));
        let node = Goal::ALL.map(|goal| status.judge_wait(goal, unchanged_for));
        [node].into_iter().chain(services).flatten().collect()
    }
}

/// Judges after each probe and each flip, and once a second, until no request waits.
async fn judge(app: Arc<App>) {
    while !app.waiters.stops_to_judge(|| app.probers.wake.want(false)) {
        let now = app.now();
        let (status, unchanged_for) = app.probers.status(&app.board, app.version, now);
        app.waiters.judge(now, app.judgements(&status, unchanged_for));
        drop(status);
        sleep(PAUSE).await;
        let _ = timeout(LONGEST_PAUSE, app.probers.wake.woken()).await;
    }
}
