//! Tests of the simulated API server against the captured answers of a real one.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![cfg(test)]

mod client;
mod reads;
mod watches;
