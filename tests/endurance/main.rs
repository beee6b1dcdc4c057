//! Short versions of what takes an hour: `make soak`, `make herd` and `make scale`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test may end where a story breaks off, and figures are shown rounded"
)]

mod herd;
mod scale;
mod soak;

/// What `make` was told about a long run; an empty variable is one that is not set.
fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        _ => default,
    }
}
