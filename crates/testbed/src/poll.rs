//! Waiting without sleeping for a fixed time.

use std::time::{Duration, Instant};

/// Far more than anything should take, on the slowest machine.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Tries until it gives something; panics with `what` when the deadline has passed.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
