//! The documents are true: their commands run, their links lead somewhere, and what the program has is in them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

mod checks;
mod commands;
mod demo;
#[path = "../../crates/haproxy-sync/src/args.rs"]
#[allow(dead_code, reason = "nothing is parsed here")]
mod haproxy;
mod links;
mod pages;
mod settings;
