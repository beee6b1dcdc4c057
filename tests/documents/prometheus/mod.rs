//! The metrics, and what ships to make use of them (manifests/components/prometheus), with Debian's Prometheus: it scrapes
//! three agents as the `PodMonitor` says, every alert fires on its fault, every query of the dashboard has a result. Two clusters
//! of a hundred nodes are generated: the dashboard stays readable, and alerts tell which cluster's node it is.

mod api;
mod component;
mod dashboard;
mod fleet;
mod fresh;
mod haproxy;
mod promtool;
mod rules;
mod scrape;
mod story;
mod two_clusters;
