//! The agent and its API server: the rules on any cluster, and every fault that must be survived.

mod e2e;
mod faults;
mod strangers;
