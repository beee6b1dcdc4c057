//! The wait before the next attempt.

use std::time::Duration;

/// The window of the first attempt. The agent notices a vanished connection after 4 s (see `client.rs`) and
/// must replace it within 6 s. A thousand agents that lose their API server together must not come back
/// together.
const FIRST: Duration = Duration::from_millis(1500);
/// The largest window, so that recovery is never far away.
const MAX_WINDOW: Duration = Duration::from_secs(10);
/// The longest `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// The shortest wait after a failure.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// Exponential backoff with full jitter: each wait is drawn evenly from a window that doubles.
#[derive(Debug)]
pub struct Backoff {
    window: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { window: FIRST }
    }
}

impl Backoff {
    /// Returns the next wait.
    pub fn wait(&mut self) -> Duration {
        self.wait_by(fastrand::f64())
    }

    /// Returns the next wait, for a random number from 0 to 1.
    pub fn wait_by(&mut self, drawn: f64) -> Duration {
        let wait = MIN_WAIT + self.window.saturating_sub(MIN_WAIT).mul_f64(drawn);
        self.window = (self.window * 2).min(MAX_WINDOW);
        wait
    }

    /// Returns the wait for a server that sent `Retry-After`. It is limited: a minute's outage must not
    /// become an hour's. It is up to a quarter longer than that, by a random number, so that agents with the
    /// same `Retry-After` do not come back together.
    pub fn spread(asked: Duration, drawn: f64) -> Duration {
        let asked = asked.min(MAX_RETRY_AFTER);
        asked + asked.mul_f64(drawn / 4.0)
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
    fn a_server_that_asks_for_it_is_left_alone_within_bounds() {
        let alone = |seconds, drawn| Backoff::spread(Duration::from_secs(seconds), drawn).as_millis();
        assert_eq!([alone(0, 1.0), alone(1, 0.0), alone(1, 1.0), alone(8, 0.5)], [0, 1000, 1250, 9000]);
        assert_eq!([alone(30, 0.0), alone(3600, 0.5), alone(u64::MAX, 1.0)], [30_000, 33_750, 37_500]);
    }

    #[test]
    fn waits_are_spread_bounded_and_grow() {
        let firsts: Vec<Duration> = (0..1000).map(|_| Backoff::default().wait()).collect();
        assert!(firsts.iter().all(|wait| (MIN_WAIT..=FIRST).contains(wait)));
        let early = firsts.iter().filter(|wait| **wait < FIRST / 2).count();
        assert!((300..700).contains(&early), "{early} of 1000 in the first half");
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..100).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(10)));
        assert!(waits[10..].iter().any(|wait| *wait > MAX_WINDOW / 2));
    }
}
