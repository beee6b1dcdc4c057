//! The processing of written objects.

pub(crate) mod managers;
pub(crate) mod patch;
pub(crate) mod prepare;
