//! A value that tasks observe.

// tokio's watch channel wakes its receivers in an order that no seed decides. This one wakes them in the
// order in which they began to wait, so that a simulation gives the same trace twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The value. Clones are the same one.
#[derive(Debug, Default)]
pub struct Observed<T>(Arc<Shared<T>>);

#[derive(Debug, Default)]
struct Shared<T> {
    value: Mutex<(T, u64)>,
    changed: Notify,
}

/// One who observes it.
#[derive(Debug)]
pub struct Observer<T> {
    observed: Observed<T>,
    seen: u64,
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Observed<T> {
    /// Returns an observed value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: Mutex::new((value, 0)), changed: Notify::new() }))
    }

    /// Reads the value through a function.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.lock().0)
    }

    /// Changes the value, and wakes all who wait for that.
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        let mut value = self.lock();
        change(&mut value.0);
        value.1 += 1;
        drop(value);
        self.0.changed.notify_waiters();
    }

    /// Returns an observer that has seen the value as it is.
    pub fn observe(&self) -> Observer<T> {
        Observer { observed: self.clone(), seen: self.lock().1 }
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

    fn lock(&self) -> MutexGuard<'_, (T, u64)> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Observer<T> {
    /// Waits for a change that this observer has not seen.
    pub async fn changed(&mut self) {
        loop {
            let changed = self.observed.0.changed.notified();
            let now = self.observed.lock().1;
            if std::mem::replace(&mut self.seen, now) != now {
                return;
            }
            changed.await;
        }
    }
}
