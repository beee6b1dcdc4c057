//! What only kubectl asks for.

mod cells;
pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod table;
