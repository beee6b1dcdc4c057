//! Timestamps and ages in the API server's formats.

use jiff::Timestamp;
use std::time::Duration;

/// Returns the current time as a `metav1.Time`: `2026-11-21T06:40:10Z`.
pub(crate) fn now() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the time this many seconds from now, as a `metav1.Time`.
pub(crate) fn in_seconds(seconds: u64) -> String {
    let later = instant().checked_add(Duration::from_secs(seconds)).unwrap_or_else(|_| instant());
    later.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the current time as a `metav1.MicroTime`: `2026-11-21T07:30:36.042824Z`.
pub(crate) fn now_micro() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn instant() -> Timestamp {
    // The dates that jiff does not support are thousands of years away.
    Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()
}
