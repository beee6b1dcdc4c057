//! The metrics, and the files that use them (charts/nodegate/files), with Debian's Prometheus: it
//! scrapes three agents as the `PodMonitor` says, every alert fires on its fault, and every query of the
//! dashboard has a result. For two generated clusters of a hundred nodes, the dashboard stays readable, and
//! alerts name the node's cluster. nodegate-haproxy and the eviction gate have files of their own, which are
//! tested likewise.

mod api;
mod component;
mod dashboard;
mod fleet;
mod fresh;
mod gate;
mod haproxy;
mod promtool;
mod rules;
mod scrape;
mod story;
mod two_clusters;
