//! The parts of the API that only kubectl uses.

mod cells;
pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod table;
