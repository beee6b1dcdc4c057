//! The agent and its API server: the rules on any cluster, and every fault that the agent must survive.

mod e2e;
mod faults;
mod proxy;
mod strangers;
