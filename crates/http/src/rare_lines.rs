//! A limit of log lines that clients cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At most one log line in a time, with the number of those that were left out.
#[derive(Debug)]
pub struct RareLines {
    every: Duration,
    state: Mutex<(Option<Instant>, u64)>,
}

impl RareLines {
    /// Allows one line in this time.
    pub fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default() }
    }

    /// Returns the number of lines that were left out since the last one, or `None` if this one is left out, too.
    pub fn next(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, left_out) = *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < self.every) {
            state.1 += 1;
            return None;
        }
        *state = (Some(now), 0);
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_one_line() {
        let (lines, start) = (RareLines::new(Duration::from_secs(1)), tokio::time::Instant::now().into_std());
        let next = |millis| lines.next(start + Duration::from_millis(millis));
        assert_eq!(
            [next(0), next(1), next(999), next(1000), next(1001), next(2000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
