//! What ships beside the programs is true and works: documents, man pages, manifests, alerts and dashboard, the demo.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

#[path = "../../src/args.rs"]
#[allow(dead_code, reason = "nothing is parsed here")]
mod agent_args;
mod chart;
mod demo;
mod docs;
mod man;
mod manifests;
mod prometheus;
mod release;
mod running_demo;
mod tools;
