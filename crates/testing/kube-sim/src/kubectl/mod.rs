//! The parts of the API that only kubectl uses.

pub(crate) mod discovery;
pub(crate) mod openapi;
