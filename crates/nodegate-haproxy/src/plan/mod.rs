//! Turns facts and policy into the desired configuration and its text, without IO or a clock.

pub(crate) mod applied;
pub(crate) mod desired;
mod last_resort;
mod limits;
pub(crate) mod names;
pub(crate) mod observed;
pub(crate) mod planner;
pub(crate) mod policy;
pub(crate) mod render;
mod selection;
pub(crate) mod template;
#[cfg(test)]
pub(crate) mod tests;
