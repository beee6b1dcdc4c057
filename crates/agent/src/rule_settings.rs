//! The settings of the readiness rules; the core has no clap. `args` flattens them.

use nodegate_program::{choice, duration, shown};
use nodegate_readiness::{
    ConditionRules, DrainSignals, LabelSelector, MaxDrained, OnStale, OnUnknown, Policy,
};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The range of `--stale-after`. A shorter time would end before the agent has asked the API server again.
const STALE_AFTER: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_hours(1);
/// The range of `--unknown-after`.
const UNKNOWN_AFTER: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// The words of `--on-stale`.
const ON_STALE: &[(&str, OnStale)] =
    &[("ready", OnStale::Ready), ("keep-drain", OnStale::KeepDrain), ("not-ready", OnStale::NotReady)];

/// The settings of the readiness rules.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PolicyArgs {
    /// Longest time without proof that the cache matches the API server; after it, the cache is stale
    #[arg(long, env = "NODEGATE_STALE_AFTER", value_name = "DURATION")]
    #[arg(default_value = shown(Policy::default().stale_after), value_parser = duration(STALE_AFTER))]
    stale_after: Duration,

    /// Answer while the cache is stale: ready fails open; keep-drain fails open but holds the last known
    /// drain signal; not-ready fails closed
    #[arg(long, env = "NODEGATE_ON_STALE", value_name = "ready|keep-drain|not-ready")]
    #[arg(default_value = "ready", value_parser = choice(ON_STALE))]
    on_stale: OnStale,

    /// Verdict when the control plane has lost the kubelet (Ready=Unknown): local keeps the node in the pool
    /// while the kubelet's health endpoint on this node answers (check kubelet; see --unknown-after);
    /// not-ready takes the node out at once
    #[arg(long, env = "NODEGATE_ON_UNKNOWN", value_name = "local|not-ready", default_value = "local")]
    #[arg(value_parser = choice(&[("local", OnUnknown::Local), ("not-ready", OnUnknown::NotReady)]))]
    on_unknown: OnUnknown,

    /// With --on-unknown=local: the age of the taint node.kubernetes.io/unreachable:NoExecute at which the
    /// node leaves the pool, because Kubernetes then replaces its pods elsewhere
    #[arg(long, env = "NODEGATE_UNKNOWN_AFTER", value_name = "DURATION")]
    #[arg(default_value = shown(Policy::default().unknown_after), value_parser = duration(UNKNOWN_AFTER))]
    unknown_after: Duration,

    #[arg(long, env = "NODEGATE_DRAIN_ON", value_name = "LIST", default_value_t, help = DrainSignals::help())]
    drain_on: DrainSignals,

    /// Largest share of the nodes that a cordon takes out of the pool at a time, rounded down, at least one: further
    /// cordoned nodes stay in the pool until their turn comes, in the order of their cordons. 100% is no limit
    #[arg(long, env = "NODEGATE_MAX_DRAINED", value_name = "PERCENT", default_value_t = MaxDrained::OFF)]
    max_drained: MaxDrained,

    /// Label selector of the nodes that share --max-drained, such as pool=web; without it, all nodes that the label
    /// node.kubernetes.io/exclude-from-external-load-balancers does not exclude
    #[arg(long, env = "NODEGATE_POOL_SELECTOR", value_name = "SELECTOR")]
    pool_selector: Option<LabelSelector>,

    /// Node conditions that fail `custom_conditions`: TYPE fails when True, TYPE=STATUS when it has that
    /// status
    #[arg(long, env = "NODEGATE_CONDITIONS", value_name = "LIST", default_value_t)]
    conditions: ConditionRules,
}

impl PolicyArgs {
    pub(crate) fn policy(self) -> Policy {
        Policy {
            stale_after: self.stale_after,
            on_stale: self.on_stale,
            on_unknown: self.on_unknown,
            unknown_after: self.unknown_after,
            drain_on: self.drain_on,
            max_drained: self.max_drained,
            pool_selector: self.pool_selector,
            conditions: self.conditions,
        }
    }
}
