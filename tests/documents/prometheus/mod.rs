//! The metrics, and the files that use them (charts/nodegate/files), with Debian's promtool: every alert fires when
//! it is due, and alerts and dashboards have valid queries of metrics that exist.

mod fresh;
mod promtool;
mod rules;
