//! The settings of a drain: the nodes, the state to wait for, and kubectl drain's own flags.

use super::ClusterArgs;
use nodegate_agent_api::Goal;
use nodegate_agent_client::WaitTimeout;
use nodegate_program::{choice, node_name, number};

/// The heading of kubectl drain's flags in the help.
const EVICTION: &str = "Eviction, as with kubectl drain";

/// The value of `--dry-run` for a drain.
pub(crate) const NO_DRY_RUN: &str = "none";

/// The arguments of `kubectl nodegate drain`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Nodes to drain, one after the other; if their agents have a drain budget (--max-drained), and without
    /// --min-ready, as many at once as it allows
    #[arg(value_name = "NODE", required_unless_present = "selector", value_parser = node_name)]
    pub(crate) nodes: Vec<String>,

    /// Labels of the nodes to drain instead, in the order of their names
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "nodes")]
    pub(crate) selector: Option<String>,

    /// State to wait for before pods are evicted: acknowledged that the node is out, or released:
    /// acknowledged, and no client connection is left
    #[arg(long = "for", value_name = "acknowledged|released", default_value = "acknowledged")]
    #[arg(value_parser = choice(&[("acknowledged", Goal::Acknowledged), ("released", Goal::Released)]))]
    pub(crate) goal: Goal,

    /// Least number of other nodes that are Ready according to their agents' fresh answers; with fewer, the
    /// node stays in the pool
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=100_000_usize, "takes a number of nodes"))]
    pub(crate) min_ready: usize,

    /// Shows the probers to wait for and the pods to evict, and changes nothing: by kubectl alone, or asking
    /// the API server whether it would allow each eviction
    #[arg(long, value_name = "none|client|server", default_value = "none")]
    #[arg(value_parser = choice(&[(NO_DRY_RUN, NO_DRY_RUN), ("client", "client"), ("server", "server")]))]
    pub(crate) dry_run: &'static str,

    #[command(flatten)]
    pub(crate) timeout: WaitTimeout,
    #[command(flatten)]
    pub(crate) eviction: EvictionArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Flags of kubectl drain; kubectl has the defaults.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EvictionArgs {
    /// Leaves pods of `DaemonSets` where they are. That is the default here, because the agent is one of them
    #[arg(long, value_name = "true|false", help_heading = EVICTION)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ignore_daemonsets: Option<bool>,

    /// Evicts pods with emptyDir volumes, too; their data is lost
    #[arg(long, value_name = "true|false", help_heading = EVICTION)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) delete_emptydir_data: Option<bool>,

    /// Evicts pods without a controller, too; nothing recreates them
    #[arg(long, value_name = "true|false", help_heading = EVICTION)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) force: Option<bool>,

    /// Seconds that a pod has to end; if negative or not set, the pod's own grace period
    #[arg(long, value_name = "SECONDS", help_heading = EVICTION, allow_negative_numbers = true)]
    #[arg(value_parser = number(-1..=i64::from(i32::MAX), "takes a number of seconds, or -1"))]
    pub(crate) grace_period: Option<i64>,

    /// Evicts only pods with these labels
    #[arg(long, value_name = "SELECTOR", help_heading = EVICTION)]
    pub(crate) pod_selector: Option<String>,

    /// Deletes pods instead of evicting them, which bypasses `PodDisruptionBudgets` and the eviction gate
    #[arg(long, value_name = "true|false", help_heading = EVICTION)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) disable_eviction: Option<bool>,

    /// Does not wait for pods that have been terminating for longer than this many seconds; 0 waits
    #[arg(long, value_name = "SECONDS", help_heading = EVICTION)]
    #[arg(value_parser = number(0..=i32::MAX, "takes a number of seconds"))]
    pub(crate) skip_wait_for_delete_timeout: Option<i32>,
}

impl EvictionArgs {
    /// Returns the flags for kubectl drain.
    pub(crate) fn flags(&self) -> Vec<String> {
        // As an operator would type them.
        let switch =
            |name: &str, on: Option<bool>| Some(if on? { name.to_owned() } else { format!("{name}=false") });
        let flags = [
            switch("ignore-daemonsets", self.ignore_daemonsets.or(Some(true))),
            switch("delete-emptydir-data", self.delete_emptydir_data),
            switch("force", self.force),
            switch("disable-eviction", self.disable_eviction),
            self.grace_period.map(|seconds| format!("grace-period={seconds}")),
            self.pod_selector.as_ref().map(|selector| format!("pod-selector={selector}")),
            self.skip_wait_for_delete_timeout
                .map(|seconds| format!("skip-wait-for-delete-timeout={seconds}")),
        ];
        flags.into_iter().flatten().map(|flag| format!("--{flag}")).collect()
    }
}
