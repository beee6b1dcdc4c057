//! The documents are true: their commands run, their links lead somewhere, and what the program has is in them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

#[path = "../common/poll.rs"]
#[allow(dead_code, unreachable_pub, reason = "to each test file this is a library")]
mod poll;
#[path = "../common/ports.rs"]
#[allow(unreachable_pub, reason = "to each test file this is a library")]
mod ports;

mod checks;
mod commands;
mod demo;
#[path = "../../crates/haproxy-sync/src/args.rs"]
#[allow(dead_code, reason = "nothing is parsed here")]
mod haproxy;
mod links;
mod pages;
mod settings;
