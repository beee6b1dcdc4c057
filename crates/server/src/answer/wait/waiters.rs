//! The judgement that all waiting requests share.

use super::places::WaitPlaces;
use crate::answer::App;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{Goal, Hold};
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The least time between two judgements, so that frequent probes cost no more.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. Some conditions change by time alone: a silent prober is gone, a new agent has listened
/// for long enough, the cache gets stale.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The waiting requests.
#[derive(Default)]
pub(in crate::answer) struct Waiters {
    pub(super) places: Arc<WaitPlaces>,
    judged: Mutex<Judged>,
    /// Wakes the requests.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Judged {
    /// True while the task that judges runs.
    is_running: bool,
    /// True if a request has come since the latest judgement.
    is_awaited: bool,
    /// The moment of the latest judgement.
    at: Option<Moment>,
    /// The judgement for each goal, by its discriminant.
    goals: Vec<Hold>,
}

impl Waiters {
    /// Lowers the numbers of places to fit a listener's connections.
    pub(in crate::answer) fn limit(&self, max_connections: usize) {
        self.places.limit(max_connections);
    }

    /// Wakes all requests.
    pub(in crate::answer) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Returns the judgement for a goal; `None` if there has been none since `asked`.
    pub(super) fn judgement(&self, goal: Goal, asked: Moment) -> Option<Hold> {
        let judged = self.judged();
        judged.goals.get(goal as usize).filter(|_| judged.at.is_some_and(|at| at >= asked)).cloned()
    }

    /// Stores judgements, and wakes the requests if one of them may end. Requests are not woken by news that
    /// only change the reason for a hold.
    fn judge(&self, at: Moment, goals: Vec<Hold>) {
        let mut judged = self.judged();
        let same = judged.goals.len() == goals.len()
            && judged.goals.iter().zip(&goals).all(|(old, new)| discriminant(old) == discriminant(new));
        let wakes = judged.is_awaited || !same;
        *judged = Judged { is_running: true, is_awaited: false, at: Some(at), goals };
        drop(judged);
        if wakes {
            self.changed.notify_waiters();
        }
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Has the goals judged for a request that has taken its place. One task does that for all, as long as
    /// any request waits.
    pub(super) fn start_to_judge(self: &Arc<Self>) {
        let mut judged = self.waiters.judged();
        judged.is_awaited = true;
        if !judged.is_running {
            judged.is_running = true;
            self.probers.wake.want(true);
            tokio::spawn(judge(Arc::clone(self)));
        }
        drop(judged);
        self.probers.wake.wake();
    }

    /// Ends the task if no request waits.
    fn stops_to_judge(&self) -> bool {
        let mut judged = self.waiters.judged();
        let stops = self.waiters.places.are_free();
        if stops {
            *judged = Judged::default();
            self.probers.wake.want(false);
        }
        stops
    }
}

/// Judges after each probe and each flip, and once a second, until no request waits.
async fn judge(app: Arc<App>) {
    while !app.stops_to_judge() {
        let now = app.now();
        let (status, unchanged_for) = (app.status(now), now.since(app.board.flipped()));
        let goals = [Goal::Told, Goal::Released, Goal::Ready];
        app.waiters.judge(now, goals.map(|goal| status.hold(goal, unchanged_for)).into());
        drop(status);
        sleep(PAUSE).await;
        let _ = timeout(LONGEST_PAUSE, app.probers.wake.woken()).await;
    }
}
