//! The metrics, and the files that use them (charts/nodegate/files), with Debian's Prometheus: every alert fires
//! in promtool when it is due, alerts and dashboards name only metrics that exist, and for two generated clusters of
//! a hundred nodes the dashboard stays readable and alerts name the node's cluster.

mod api;
mod component;
mod dashboard;
mod fresh;
mod promtool;
mod rules;
mod two_clusters;
