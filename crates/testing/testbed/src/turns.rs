//! A limit on concurrent tests, for tests that are heavy or depend on times: libtest starts one test for each
//! processor.

use std::sync::{Condvar, Mutex, PoisonError};

/// The slots for concurrent tests.
pub struct TestSlots {
    most: usize,
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// The permission to run a test. Drop returns it.
pub struct TestSlot(&'static TestSlots);

impl TestSlots {
    /// Returns `most` slots, for a `static`.
    pub const fn new(most: usize) -> Self {
        Self { most, taken: Mutex::new(0), given_back: Condvar::new() }
    }

    /// Waits for a free slot.
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
