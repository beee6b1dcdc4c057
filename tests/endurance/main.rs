//! Short versions of what takes an hour: `make soak`, `make herd` and `make scale`.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are shown rounded"
)]

mod herd;
mod scale;
mod soak;

use nodegate_testbed::turns::TestSlots;

/// They judge times, or what the processor and the memory did: few are told at once.
static TURNS: TestSlots = TestSlots::new(2);

/// What `make` was told about a long run; an empty variable is one that is not set.
fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        _ => default,
    }
}
