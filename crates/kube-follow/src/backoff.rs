//! How long to wait before the next attempt.

use std::time::Duration;

/// The window of the first attempt. A connection that vanished is noticed after 4 s (see `client.rs`) and must be
/// replaced within 6 s; and a thousand agents that lose their API server together must not come back together.
const FIRST: Duration = Duration::from_millis(1500);
/// The window stops growing here, so that recovery is never far away.
const LONGEST: Duration = Duration::from_secs(10);
/// No attempt comes sooner than this after a failure.
const SHORTEST: Duration = Duration::from_millis(100);

/// Exponential backoff with full jitter: each wait is drawn evenly from a window that doubles.
#[derive(Debug)]
pub struct Backoff {
    window: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// Starts with the shortest window.
    pub fn new() -> Self {
        Self { window: FIRST }
    }

    /// The next wait.
    pub fn wait(&mut self) -> Duration {
        let wait = SHORTEST + self.window.saturating_sub(SHORTEST).mul_f64(fastrand::f64());
        self.window = (self.window * 2).min(LONGEST);
        wait
    }

    /// Starts over, after a success that lasted.
    pub fn reset(&mut self) {
        self.window = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_bounded_and_grow() {
        let firsts: Vec<Duration> = (0..1000).map(|_| Backoff::new().wait()).collect();
        assert!(firsts.iter().all(|wait| (SHORTEST..=FIRST).contains(wait)));
        let early = firsts.iter().filter(|wait| **wait < FIRST / 2).count();
        assert!((300..700).contains(&early), "{early} of 1000 in the first half");
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..100).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits[10..].iter().any(|wait| *wait > LONGEST / 2));
    }
}
