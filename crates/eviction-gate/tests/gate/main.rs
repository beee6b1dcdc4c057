//! The real gate as the webhook of a simulated API server.

#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![cfg(test)]

mod burst;
mod certificates;
mod faults;
mod hostile;
mod scenario;
mod table;
