//! The reaction to a failing `accept`: never quit, never spin.

use rustix::io::Errno;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest delay: costs almost no CPU, and a load balancer's next probe still finds the agent.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// The time that accepting must work before an episode of failures is over. With one free descriptor every
/// other accept fails, and not each failure deserves a log line.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// The state of an episode of failing accepts.
#[derive(Debug)]
pub(crate) struct AcceptBackoff {
    delay: Duration,
    last_failure: Option<Instant>,
}

impl AcceptBackoff {
    pub(crate) fn new() -> Self {
        Self { delay: FIRST_DELAY, last_failure: None }
    }

    /// Returns the delay after a failure, and true if it is the first of its episode and so worth a log line.
    pub(crate) fn failed(&mut self, now: Instant) -> (Duration, bool) {
        let first = self.last_failure.replace(now).is_none();
        let next = (self.delay * 2).min(MAX_DELAY);
        debug_assert!((FIRST_DELAY..=MAX_DELAY).contains(&self.delay));
        (std::mem::replace(&mut self.delay, next), first)
    }

    /// Notes a successful accept; returns true if that ends an episode. Reads the clock only in an episode.
    pub(crate) fn succeeded(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.delay = FIRST_DELAY;
        self.last_failure.take_if(|last| now().duration_since(*last) >= RECOVERED_AFTER).is_some()
    }
}

/// Returns true if the error concerns only the one connection that would have been accepted (accept(2)); the
/// next may succeed.
pub(crate) fn concerns_one_connection(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::PERM
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
        )
    )
}

/// Returns true if closing a connection would help.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_one_line_is_logged_an_episode() {
        let now = Instant::now();
        let mut backoff = AcceptBackoff::new();
        assert!(!backoff.succeeded(|| now));
        assert_eq!(backoff.failed(now), (FIRST_DELAY, true));
        assert_eq!(backoff.failed(now), (FIRST_DELAY * 2, false));
        for _ in 0..20 {
            let (delay, first) = backoff.failed(now);
            assert!(delay <= MAX_DELAY && !first);
        }
        assert_eq!(backoff.failed(now).0, MAX_DELAY);
        assert!(!backoff.succeeded(|| now), "it may go on");
        assert_eq!(backoff.failed(now), (FIRST_DELAY, false));
        assert!(backoff.succeeded(|| now + RECOVERED_AFTER));
        assert!(!backoff.succeeded(|| now + RECOVERED_AFTER));
        assert_eq!(backoff.failed(now + RECOVERED_AFTER), (FIRST_DELAY, true));
    }

    #[test]
    fn errors_are_told_apart() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(concerns_one_connection(&error(Errno::CONNABORTED)));
        assert!(!concerns_one_connection(&error(Errno::MFILE)));
        assert!(lacks_descriptors(&error(Errno::MFILE)) && lacks_descriptors(&error(Errno::NFILE)));
        assert!(!lacks_descriptors(&error(Errno::NOBUFS)));
    }
}
