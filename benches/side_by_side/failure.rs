//! The reason why a measurement failed, as text for people only.

pub(crate) type Failure = Box<dyn std::error::Error>;
