//! `kubectl nodegate` as an operator runs it: the real program and the real kubectl, a simulated API server,
//! and many agents.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![cfg(test)]

mod check;
mod crowd;
mod drain;
mod examples;
mod fleet;
mod hostile;
mod kubeconfigs;
mod kubectl_flags;
mod plugin;
mod scenario;
mod two_clusters;
mod wait;
