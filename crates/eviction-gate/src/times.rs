//! The gate's own timeouts and intervals, which no operator needs to change; `decision.rs` has how long it holds.

use std::time::Duration;

/// Returns the time of this name, in milliseconds. In a debug build, tests on a busy machine may set others by changes such
/// as `review=30000,shutdown=0`; the last one counts.
pub(crate) fn time(name: &str, millis: u64) -> Duration {
    let changes = std::env::var("NODEGATE_GATE_TEST_TIMES").ok().filter(|_| cfg!(debug_assertions));
    let mut changes = changes.as_deref().unwrap_or_default().rsplit(',');
    let changed = changes.find_map(|change| change.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    Duration::from_millis(changed.unwrap_or(millis))
}
