//! Wakes the task that judges waiting requests.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Wakes one task, and costs a load while no task wants that.
#[derive(Default)]
pub(crate) struct Wake {
    wanted: AtomicBool,
    notify: Notify,
}

impl Wake {
    /// Sets whether [`wake`](Self::wake) has an effect.
    pub(crate) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Wakes the task now, or at its next wait.
    pub(crate) fn wake(&self) {
        if self.wanted.load(Ordering::Relaxed) {
            self.notify.notify_one();
        }
    }

    /// Waits to be woken.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}
