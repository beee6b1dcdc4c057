//! Waiting without sleeping for a fixed time.

use std::time::{Duration, Instant};

/// A timeout that is far longer than anything should take, even on the slowest machine.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// The pause between two attempts. It is too short to matter, and leaves the machine to the other processes.
const PAUSE: Duration = Duration::from_millis(10);

/// Tries until the attempt returns a value. Panics with `what` after the deadline.
#[track_caller]
pub fn until<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    until_or(attempt, || format!("waited {DEADLINE:?} for {what}"))
}

/// Tries until the attempt returns a value. Panics with the result of `explain` after the deadline.
#[track_caller]
pub fn until_or<T>(attempt: impl FnMut() -> Option<T>, explain: impl FnOnce() -> String) -> T {
    until_within(DEADLINE, attempt, explain)
}

/// Does the same as [`until_or`] with another deadline.
#[track_caller]
pub fn until_within<T>(
    deadline: Duration,
    mut attempt: impl FnMut() -> Option<T>,
    explain: impl FnOnce() -> String,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < deadline, "{}", explain());
        std::thread::sleep(PAUSE);
    }
}
