//! Tests of the public interface of the local checks: settings in, results on the board out.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]

#[cfg(test)]
mod container_runtime;
#[cfg(test)]
mod http;
#[cfg(test)]
mod kube_proxy;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod support;
