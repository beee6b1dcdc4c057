//! A thousand watchers that lose their API server together must not come back together.
//!
//! They are nodegate's own node-watch, all in one process of their own; the simulated API server counts who comes when.
//! `cargo test` does it with a hundred; `make herd` with a thousand, and prints the histograms.

mod arrivals;
mod flock;
mod rotation;
mod stories;
