//! Turns facts and policy into the desired configuration and its text, without IO or a clock. Other modules take
//! the plan's types from here.

mod annotation;
mod desired;
mod explain;
mod forward;
mod ingress_status;
mod last_resort;
mod listen;
pub(crate) mod names;
mod observed;
mod planner;
mod policy;
mod pool;
mod publish;
mod removal_limit;
mod render;
pub(crate) mod selector;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use annotation::*;
pub(crate) use desired::*;
pub(crate) use explain::*;
pub(crate) use forward::*;
pub(crate) use ingress_status::*;
pub(crate) use listen::*;
pub(crate) use observed::*;
pub(crate) use planner::*;
pub(crate) use policy::*;
pub(crate) use pool::*;
pub(crate) use removal_limit::*;
pub(crate) use render::*;
pub(crate) use values::*;
