//! What to do when `accept` fails: never quit, never spin.

use rustix::io::Errno;
use std::io;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(5);
/// Long enough to cost nothing, short enough that a load balancer's next probe finds us again.
const LONGEST: Duration = Duration::from_millis(500);

/// The state of an episode of failing accepts.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    delay: Option<Duration>,
}

impl Backoff {
    /// How long to wait after a failure, and whether it is the first of its episode, and so worth a log line.
    pub(crate) fn failed(&mut self) -> (Duration, bool) {
        let first = self.delay.is_none();
        let delay = self.delay.map_or(FIRST, |delay| (delay * 2).min(LONGEST));
        self.delay = Some(delay);
        (delay, first)
    }

    /// Accepting works; true if it did not before.
    pub(crate) fn succeeded(&mut self) -> bool {
        self.delay.take().is_some()
    }
}

/// Whether an error concerns only the one connection that would have been accepted (accept(2)); the next may be fine.
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

/// Whether closing a connection would help.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_one_line_is_logged_an_episode() {
        let mut backoff = Backoff::default();
        assert!(!backoff.succeeded());
        assert_eq!(backoff.failed(), (FIRST, true));
        assert_eq!(backoff.failed(), (FIRST * 2, false));
        for _ in 0..20 {
            let (delay, first) = backoff.failed();
            assert!(delay <= LONGEST && !first);
        }
        assert_eq!(backoff.failed().0, LONGEST);
        assert!(backoff.succeeded());
        assert!(!backoff.succeeded());
        assert_eq!(backoff.failed(), (FIRST, true));
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
