//! Turns facts and policy into the desired configuration and its text, without IO or a clock.

pub(crate) mod annotation;
pub(crate) mod applied;
pub(crate) mod desired;
mod drain_budget;
pub(crate) mod ingress_status;
mod last_resort;
pub(crate) mod listen;
pub(crate) mod names;
pub(crate) mod observed;
pub(crate) mod planner;
pub(crate) mod policy;
mod publish;
mod removal_limit;
pub(crate) mod render;
pub(crate) mod template;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod values;
