//! The scheduling delay of the machine, measured all the time, so that the oracle does not have to guess it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which each canary looks at the clock.
const EVERY: Duration = Duration::from_millis(5);
/// The time after which a delay has no effect any more.
const RECENT: Duration = Duration::from_millis(1500);

/// A task that a runtime can run.
type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Canary {
    due: Option<Instant>,
    lags: VecDeque<(Instant, Duration)>,
}

impl Canary {
    fn sleeps(&mut self) -> Duration {
        self.due = Some(Instant::now() + EVERY);
        EVERY
    }

    fn wakes(&mut self) {
        let now = Instant::now();
        let lag = self.due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        self.lags.push_back((now, lag));
        while self.lags.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > RECENT) {
            self.lags.pop_front();
        }
    }

    fn lag(&self, now: Instant) -> Duration {
        let overdue = self.due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        self.lags.iter().map(|(_, lag)| *lag).max().unwrap_or_default().max(overdue)
    }
}

/// Two canaries: a thread that waits as the agent's threads do, and a task that waits as those of the
/// simulated API server do.
pub(crate) struct Machine {
    canaries: [Arc<Mutex<Canary>>; 2],
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    /// Starts to measure; `spawn` decides which runtime gets the task.
    pub(crate) fn measure(spawn: impl FnOnce(Task)) -> Self {
        let canaries: [Arc<Mutex<Canary>>; 2] = Default::default();
        let stop = Arc::new(AtomicBool::new(false));
        let [thread, task] = canaries.clone();
        let ends = stop.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let pause = thread.lock().unwrap().sleeps();
                std::thread::sleep(pause);
                thread.lock().unwrap().wakes();
            }
        });
        let ends = stop.clone();
        spawn(Box::pin(async move {
            while !ends.load(Ordering::Relaxed) {
                let pause = task.lock().unwrap().sleeps();
                tokio::time::sleep(pause).await;
                task.lock().unwrap().wakes();
            }
        }));
        Self { canaries, stop, thread: Some(thread) }
    }

    /// Returns the longest recent delay, including one that has not ended.
    pub(crate) fn lag(&self) -> Duration {
        let now = Instant::now();
        self.canaries.iter().map(|canary| canary.lock().unwrap().lag(now)).max().unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
