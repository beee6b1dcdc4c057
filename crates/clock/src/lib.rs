//! The two clocks, as tests can set them. Nothing else here reads the time: `clippy.toml` refuses it.
//!
//! Both follow tokio's clock, which a test may pause: then hours pass as fast as their work is done, and everything that
//! looks at a clock has seen them pass. Without a runtime, and in a program that is not a test, they are the system's own,
//! at the system's own cost.
#![allow(clippy::disallowed_methods, reason = "this is where the clocks are read")]

use std::cell::Cell;
use std::time::{Instant, SystemTime};

thread_local! {
    /// What a test says the date is, and when it said so.
    static SIMULATED: Cell<Option<(SystemTime, Instant)>> = const { Cell::new(None) };
}

/// Now, by the clock that only goes forward.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Now, by the clock on the wall, which may be set at any time. Nothing is measured with it.
pub fn wall() -> SystemTime {
    SIMULATED.get().map_or_else(SystemTime::now, |(date, at)| date + now().saturating_duration_since(at))
}

/// Sets the wall clock, for this thread alone; from there on it goes with [`now`]. For tests under simulated time, which
/// run on one thread; again, it is a step of the clock.
pub fn set_wall(date: SystemTime) {
    SIMULATED.set(Some((date, now())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};
    use tokio::time::sleep;

    #[test]
    fn without_a_runtime_the_clocks_are_the_systems() {
        let (before, date_before) = (Instant::now(), SystemTime::now());
        let (instant, date) = (now(), wall());
        assert!((before..=Instant::now()).contains(&instant));
        assert!((date_before..=SystemTime::now()).contains(&date));
    }

    #[tokio::test(start_paused = true)]
    async fn hours_that_nobody_waits_for_pass_on_both_clocks() {
        const HOURS: Duration = Duration::from_hours(5);
        let (began, date) = (now(), UNIX_EPOCH + Duration::from_hours(500_000));
        set_wall(date);
        sleep(HOURS).await;
        assert_eq!((now() - began, wall()), (HOURS, date + HOURS));
        // The clock is set back, and only the date knows.
        set_wall(date);
        sleep(HOURS).await;
        assert_eq!((now() - began, wall()), (HOURS * 2, date + HOURS));
    }
}
