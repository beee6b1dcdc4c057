//! A thousand watchers that lose their API server at once must not all reconnect at once.
//!
//! The watchers are nodegate's own node-watch, all in one child process; the simulated API server counts the
//! arrivals. `cargo test` runs a hundred; `make herd` a thousand, and prints the histograms.

mod arrivals;
mod flock;
mod rotation;
mod stories;
