//! Waiting without sleeping for a fixed time.

use std::time::{Duration, Instant};

/// Far more than anything should take, on the slowest machine.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Between two attempts: nobody notices, and it leaves the machine to those who are waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// Tries until it gives something; panics with `what` when the deadline has passed.
#[track_caller]
pub fn until<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    until_or(attempt, || format!("waited {DEADLINE:?} for {what}"))
}

/// The same, and panics with what is told then.
#[track_caller]
pub fn until_or<T>(attempt: impl FnMut() -> Option<T>, told: impl FnOnce() -> String) -> T {
    until_within(DEADLINE, attempt, told)
}

/// The same, for what takes longer.
#[track_caller]
pub fn until_within<T>(
    deadline: Duration,
    mut attempt: impl FnMut() -> Option<T>,
    told: impl FnOnce() -> String,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < deadline, "{}", told());
        std::thread::sleep(PAUSE);
    }
}
