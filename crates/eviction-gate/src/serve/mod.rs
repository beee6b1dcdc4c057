//! HTTPS for the API server, and the metrics.

pub mod metrics;
pub mod webhook;
