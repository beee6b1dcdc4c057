//! The shared library of the tests, the benchmarks and the demo: the real agent as a child process, simulated
//! clusters, the programs around them, and probers.
//!
//! Any failure in it ends the test with a panic. The demo turns the panic into a line and an exit code.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test may end where a scenario breaks off"
)]
#![allow(missing_docs, reason = "a library of tests: what a name says is not said twice")]

pub mod agent;
pub mod debian;
pub mod haproxy;
pub mod http;
pub mod kubectl;
pub mod network;
pub mod pods;
pub mod prober;
pub mod process;
pub mod programs;
pub mod real_cluster;
pub mod scenario;
pub mod stub;
pub mod waiting;

// Nearly every test starts with these.
pub use agent::Agent;
pub use http::ProbeReply;
pub use programs::needs_root;
pub use scenario::{NODE, Scenario};
pub use waiting::{until, until_or};
