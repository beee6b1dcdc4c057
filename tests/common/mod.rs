//! What whole-program tests share: the real agent as a child process, and a simulated cluster.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "each test file uses a part of it, and a test may end where a story breaks off"
)]

pub mod agent;
pub mod cable;
pub mod cluster;
pub mod containerd;
pub mod disks;
pub mod netns;
pub mod poll;
pub mod prober;
pub mod proxy;
pub mod rollout;
pub mod stub;
