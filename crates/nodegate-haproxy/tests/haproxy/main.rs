//! Tests of the promises of nodegate-haproxy with a real HAProxy; `make haproxy-test` plays them with several.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![cfg(test)]

mod ansible;
mod cordons;
mod faults;
mod kubeconfig;
mod owner;
mod packages;
mod reloads;
mod scenario;
mod servers;
mod services;
mod statuses;
mod templates;
