//! Turns facts and policy into the desired configuration and its text, without IO or a clock.

pub mod annotation;
pub mod desired;
pub mod explain;
pub mod facts;
pub mod forward;
pub mod ingress;
mod last_resort;
pub mod listen;
pub mod names;
pub mod planner;
pub mod policy;
mod pool;
mod publish;
pub mod removal_limit;
pub mod render;
pub(crate) mod selector;
pub mod status;
