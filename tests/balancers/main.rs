//! nodegate in front of real load balancers: the configurations of docs/load-balancers, Debian's programs, constant
//! traffic, and three agents on a simulated cluster.
//!
//! `cargo test` plays the short stories; `make lb-test` plays every mode with every event and prints the table.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

mod agent_check;
mod backend;
mod configurations;
mod drains;
mod envoy;
mod event;
mod haproxy_pair;
mod keepalived;
mod mode;
mod nginx;
mod nodes;
mod site;
mod stories;
mod traffic;
