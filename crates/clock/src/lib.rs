//! The two clocks, which tests can set: one goes on while the machine is suspended, the other is the date.
//! Both follow tokio's clock, which a test may pause. `clippy.toml` forbids reading the time anywhere else.
#![allow(clippy::disallowed_methods, reason = "this is where the clocks are read")]

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

thread_local! {
    /// The date that a test has set, and the time at which it set it.
    static SIMULATED: Cell<Option<(SystemTime, Instant)>> = const { Cell::new(None) };
    static SIMULATED_SLEEP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The shortest suspension; a smaller difference is the time between two readings.
const SHORTEST_SLEEP: Duration = Duration::from_millis(100);

/// Returns the time of a clock that only goes forward, and that includes suspension of the machine. Timers do
/// not include it: a timer that was due during a suspension fires that much later.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std() + slept() + SIMULATED_SLEEP.get()
}

/// Returns how long the machine was suspended since the first call: `CLOCK_MONOTONIC` stood still,
/// `CLOCK_BOOTTIME` did not.
fn slept() -> Duration {
    static FIRST: OnceLock<Duration> = OnceLock::new();
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    // In this order: a delay between the two readings shortens the result, and never adds time that has not
    // passed.
    let boot = boottime();
    let apart = boot.saturating_sub(read(ClockId::Monotonic));
    let slept = apart.saturating_sub(*FIRST.get_or_init(|| apart));
    let slept = if slept < SHORTEST_SLEEP { Duration::ZERO } else { slept };
    let nanos = u64::try_from(slept.as_nanos()).unwrap_or(u64::MAX);
    // The value rarely changes, and readers write nothing.
    let longest = LONGEST.load(Ordering::Relaxed);
    if nanos > longest {
        LONGEST.fetch_max(nanos, Ordering::Relaxed);
    }
    Duration::from_nanos(longest.max(nanos))
}

/// Returns the wall-clock time, which may be set at any time. Durations never come from it.
pub fn wall() -> SystemTime {
    SIMULATED.get().map_or_else(SystemTime::now, |(date, at)| date + now().saturating_duration_since(at))
}

/// Returns the time since boot, suspension included. No one can set this clock, so two processes of one boot
/// can compare its times.
pub fn boottime() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither is ever negative.
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Simulates a suspension of this length, for this thread alone. For tests.
pub fn suspend(time: Duration) {
    SIMULATED_SLEEP.set(SIMULATED_SLEEP.get() + time);
}

/// Sets the wall clock, for this thread alone; from then on it runs with [`now`]. For tests under simulated
/// time, which run on one thread. A second call is a step of the clock.
pub fn set_wall(date: SystemTime) {
    SIMULATED.set(Some((date, now())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_runtime_the_clocks_are_the_systems() {
        let (before, date_before) = (Instant::now(), SystemTime::now());
        let (instant, date) = (now(), wall());
        assert!((before..=Instant::now()).contains(&instant));
        assert!((date_before..=SystemTime::now()).contains(&date));
    }

    #[test]
    fn time_goes_on_while_the_machine_is_suspended() {
        const NIGHT: Duration = Duration::from_hours(8);
        let (before, date) = (now(), wall());
        suspend(NIGHT);
        assert!(now() - before >= NIGHT && boottime() > Duration::ZERO);
        assert!(wall().duration_since(date).unwrap() < NIGHT, "another test sets that clock");
        assert!(slept() < NIGHT, "and this is no sleep");
    }
}
