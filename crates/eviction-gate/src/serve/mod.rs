//! HTTPS for the API server, and the metrics.

pub mod gate_metrics;
pub mod webhook;
