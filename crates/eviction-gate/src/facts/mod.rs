//! What a decision depends on, from the API server and from agents.

pub mod agents;
pub mod drains;
pub mod reduced_objects;
pub mod shared_reads;
