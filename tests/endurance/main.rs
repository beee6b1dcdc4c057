//! Short versions of tests that take long: `make soak` and `make soak SCALE=5000`.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are shown rounded"
)]

mod scale;
mod soak;

/// Returns a variable that `make` sets for a long run; an empty one counts as unset.
fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        _ => default,
    }
}
