//! HTTPS for the API server, and the metrics.

pub(crate) mod webhook;
