//! Tests of the public interface of the local checks: settings in, results on the board out.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![cfg(test)]

mod container_runtime;
mod http;
mod kube_proxy;
mod runner;
mod support;
