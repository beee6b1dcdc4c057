//! HTTPS for the API server, and plain HTTP for the kubelet and for Prometheus.

mod connection;
pub mod metrics;
pub mod pages;
mod places;
pub mod webhook;
