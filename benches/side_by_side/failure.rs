//! Why something could not be measured: for a person to read, and for nothing else.

pub(crate) type Failure = Box<dyn std::error::Error>;
