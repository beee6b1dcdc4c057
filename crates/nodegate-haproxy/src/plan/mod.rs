//! Turns facts and policy into the desired configuration and its text, without IO or a clock.

mod annotation;
mod desired;
mod ingress_status;
mod last_resort;
pub(crate) mod names;
mod observed;
mod planner;
mod policy;
mod publish;
mod removal_limit;
mod render;
#[cfg(test)]
pub(crate) mod tests;
mod values;

pub(crate) use annotation::*;
pub(crate) use desired::*;
pub(crate) use ingress_status::*;
pub(crate) use observed::*;
pub(crate) use planner::*;
pub(crate) use policy::*;
pub(crate) use publish::*;
pub(crate) use removal_limit::*;
pub(crate) use render::*;
pub(crate) use values::*;
