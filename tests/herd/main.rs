//! A thousand watchers that lose their API server together must not come back together.
//!
//! They are nodegate's own node-watch, all in one process of their own; the simulated API server counts who comes when.
//! `cargo test` does it with a hundred; `make herd` with a thousand, and prints the histograms.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test may end where a story breaks off, and figures are shown rounded"
)]

mod arrivals;
mod flock;
mod rotation;
mod stories;
