//! Turns facts and policy into the desired configuration and its text, without IO or a clock.

pub mod annotation;
pub mod desired;
pub mod explain;
pub mod facts;
pub mod guard;
pub mod holds;
pub mod last_resort;
mod listen;
pub mod names;
pub mod planner;
pub mod policy;
mod pool;
pub mod publish;
pub mod render;
mod selector;
pub mod stand_in;
pub mod status;
