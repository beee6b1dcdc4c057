//! Incoming requests and outgoing answers.

pub(crate) mod format;
pub(crate) mod options;
pub(crate) mod protobuf;
pub(crate) mod reply;
pub(crate) mod request;
