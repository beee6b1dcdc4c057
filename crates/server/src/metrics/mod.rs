//! The metrics of the server and the board, and the exposition of all; `crates/agent/src/assembly.rs` adds those of
//! the watches and of the connections.

mod board_metrics;
mod counters;
mod process;

pub(crate) use board_metrics::StateCollector;
pub use counters::Metrics;

use process::Process;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Adds all families of the agent to those of other crates. The `process_` families have no prefix, because every dashboard expects these
/// names.
pub(crate) fn with_all(mut all: Registry, state: StateCollector, metrics: &Metrics) -> Registry {
    let mut build = vec![("version", env!("CARGO_PKG_VERSION"))];
    build.extend(option_env!("NODEGATE_REVISION").map(|revision| ("revision", revision)));
    let own = all.sub_registry_with_prefix("nodegate");
    own.register("build", "The version of nodegate that runs", Info::new(build));
    metrics.register(own);
    own.register_collector(Box::new(state));
    all.sub_registry_with_prefix("process").register_collector(Box::new(Process));
    all
}
