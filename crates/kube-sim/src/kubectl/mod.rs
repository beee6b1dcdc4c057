//! What only kubectl asks for.

pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod table;
