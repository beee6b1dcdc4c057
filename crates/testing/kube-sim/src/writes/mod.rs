//! The processing of written objects. Agents only read, so these clients are kubectl and its like.

pub(crate) mod apply;
pub(crate) mod decode;
pub(crate) mod defaults;
pub(crate) mod managed_fields;
pub(crate) mod patch;
pub(crate) mod schema;
pub(crate) mod service;
pub(crate) mod strategic;
pub(crate) mod validate;
pub(crate) mod workload;
