//! Timestamps and ages in the API server's formats.

use jiff::Timestamp;

/// Returns the current time as a `metav1.Time`: `2026-11-21T06:40:10Z`.
pub(crate) fn now() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the current time as a `metav1.MicroTime`: `2026-11-21T07:30:36.042824Z`.
pub(crate) fn now_micro() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn instant() -> Timestamp {
    // The dates that jiff does not support are thousands of years away.
    Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()
}
