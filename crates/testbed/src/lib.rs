//! What the tests, the benchmarks and the demo share: the real agent as a child process, simulated clusters, the machines
//! around them, and who asks.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test may end where a story breaks off"
)]

pub mod agent;
pub mod cable;
pub mod cluster;
pub mod containerd;
pub mod disks;
pub mod haproxy;
pub mod http;
pub mod kubectl;
pub mod namespaces;
pub mod netns;

pub mod ports;
pub mod prober;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod rollout;
pub mod stub;
pub mod turns;
pub mod waiting;
