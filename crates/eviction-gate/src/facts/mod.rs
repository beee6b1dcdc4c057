//! Reads the facts of a decision from the API server and from agents.

pub(crate) mod agents;
pub(crate) mod drains;
pub(crate) mod reduced_objects;
pub(crate) mod shared_reads;
