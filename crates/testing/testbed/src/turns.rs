//! How many stories are told at once, of those that are heavy or tell of times: libtest begins one for each processor.

use std::sync::{Condvar, Mutex, PoisonError};

/// So many may be told at once.
pub struct TestSlots {
    most: usize,
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// The right to tell a story; given back when dropped.
pub struct TestSlot(&'static TestSlots);

impl TestSlots {
    /// For a `static`.
    pub const fn new(most: usize) -> Self {
        Self { most, taken: Mutex::new(0), given_back: Condvar::new() }
    }

    /// Waits for one.
    pub fn take(&'static self) -> TestSlot {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.given_back.wait_while(taken, |taken| *taken >= self.most);
        *waiting.unwrap_or_else(PoisonError::into_inner) += 1;
        TestSlot(self)
    }
}

impl Drop for TestSlot {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.given_back.notify_one();
    }
}
