//! Tests of the promises of nodegate-haproxy with a real HAProxy; `make haproxy-test` plays them with several.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says why and fails"
)]

mod ansible;
mod cordons;
mod faults;
mod kubeconfig;
mod lab;
mod owner;
mod packages;
mod reloads;
mod servers;
mod services;
mod settings;
mod statuses;
mod templates;
