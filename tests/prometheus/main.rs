//! The metrics, and what ships to make use of them (manifests/components/prometheus), with Debian's Prometheus: it scrapes
//! three agents as the `PodMonitor` says, every alert fires on its fault, every query of the dashboard has a result.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

mod api;
mod component;
mod dashboard;
mod fresh;
mod lab;
mod promtool;
mod rules;
mod scrape;
mod story;
