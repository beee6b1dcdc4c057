//! HTTPS for the API server, and plain HTTP for the kubelet and for Prometheus.

pub mod metrics;
pub mod pages;
pub mod webhook;
