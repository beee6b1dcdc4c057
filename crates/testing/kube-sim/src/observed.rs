//! A value that tasks observe.

// tokio's watch channel wakes its receivers in an order that no seed decides. This one wakes them in the
// order in which they began to wait, so that a simulation gives the same trace twice.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The value. Clones are the same one.
#[derive(Debug, Default)]
pub struct Observed<T>(Arc<Shared<T>>);

#[derive(Debug, Default)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Observed<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: Mutex::new(value), changed: Notify::new() }))
    }

    /// Reads the value through a function.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.lock())
    }

    /// Changes the value, and wakes all who wait for that.
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.0.changed.notify_waiters();
    }

    /// Waits until the value is like this, and returns what `is_so` does.
    pub async fn until<R>(&self, is_so: impl Fn(&T) -> Option<R>) -> R {
        loop {
            let changed = self.0.changed.notified();
            if let Some(so) = self.read(&is_so) {
                return so;
            }
            changed.await;
        }
    }

    /// Runs the work while the value is like this, and holds it otherwise.
    pub async fn run_while<R>(&self, is_so: impl Fn(&T) -> bool, work: impl Future<Output = R>) -> R {
        let mut work = pin!(work);
        loop {
            self.until(|value| is_so(value).then_some(())).await;
            tokio::select! {
                biased;
                () = self.until(|value| (!is_so(value)).then_some(())) => {}
                done = &mut work => return done,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
