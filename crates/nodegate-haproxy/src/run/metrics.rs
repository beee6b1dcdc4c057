//! The metrics. Label values come from fixed sets.

use crate::plan::{Desired, INTENDED, NodeState, Passing, Problem, Retained};
use crate::watch::life::{Kind, Life};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

type Labels<const N: usize> = [(&'static str, String); N];

#[derive(Debug, Default)]
pub(crate) struct HaproxyMetrics {
    applied: Gauge,
    pub(crate) reloads: Counter,
    failures: Family<Kind, Counter>,
    nodes: Family<Kind, Gauge>,
    passing: Gauge<f64, AtomicU64>,
    frontends: Gauge,
    servers: Gauge,
    problems: Family<Kind, Gauge>,
    held: Family<Kind, Gauge>,
    pub(crate) pending: Gauge,
    /// There are as many series as nodes without new traffic.
    nodes_out: Family<Labels<3>, Gauge>,
    loaded: Family<Labels<1>, Gauge>,
    pub(crate) lease_held: Gauge,
    status_writes: Family<Kind, Counter>,
    pub(crate) status_foreign: Gauge,
    pub(crate) service_events: Counter,
}

impl HaproxyMetrics {
    pub(crate) fn registry(&self, life: Arc<Life>) -> Registry {
        let mut registry = Registry::with_prefix("nodegate_haproxy");
        let all = &mut registry;
        all.register("applied", "1 while the running HAProxy proves the written file", self.applied.clone());
        all.register("reloads", "Reloads that HAProxy has proven", self.reloads.clone());
        // An alert looks at its increase, so it has to begin with 0.
        drop(self.failures.get_or_create(&[("kind", "foreign")]));
        all.register("failures", "Attempts that changed nothing, by what failed", self.failures.clone());
        life.register(all);
        all.register("nodes", "Nodes by the state that the cluster gives them", self.nodes.clone());
        all.register("frontends", "Service ports that are published", self.frontends.clone());
        all.register("servers", "Servers of all published ports", self.servers.clone());
        all.register("problems", "Services and Nodes that are not served as asked", self.problems.clone());
        all.register("held", "Objects that vanished and are kept (--max-removal)", self.held.clone());
        all.register("pending", "1 while a newer configuration waits to take effect", self.pending.clone());
        all.register("node_out", "1 for each node without new traffic", self.nodes_out.clone());
        all.register("loaded", "1, with the hash of the configuration in effect", self.loaded.clone());
        self.set_passing(None);
        let help = "Nodes that pass HAProxy's check; NaN while that is unknown";
        all.register("nodes_passing", help, self.passing.clone());
        all.register("lease_held", "1 while this process holds the Lease", self.lease_held.clone());
        all.register("status_writes", "Statuses of Services written", self.status_writes.clone());
        all.register("status_foreign", "Statuses that another program wrote", self.status_foreign.clone());
        all.register("service_events", "Events posted on Services", self.service_events.clone());
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        all.register("build", "What this program was built from", Info::new(version));
        all.register_collector(Box::new(Computed(life)));
        registry
    }

    pub(crate) fn set_applied(&self, applied: bool) {
        self.applied.set(applied.into());
        if !applied {
            self.loaded.clear();
            self.set_passing(None);
        }
    }

    pub(crate) fn failed(&self, kind: &'static str) {
        self.failures.get_or_create(&[("kind", kind)]).inc();
    }

    pub(crate) fn set_passing(&self, passing: Option<&Passing>) {
        let number = |passing: &Passing| passing.values().filter(|passes| **passes).map(|_| 1.0).sum();
        self.passing.set(passing.map_or(f64::NAN, number));
    }

    pub(crate) fn loaded(&self, hash: Option<&str>, desired: &Desired) {
        self.loaded.clear();
        if let Some(hash) = hash {
            self.loaded.get_or_create(&[("hash", hash.to_owned())]).set(1);
        }
        let backends = desired.frontends.keys().filter_map(|name| desired.backends.get(name));
        self.servers.set(backends.map(|backend| count(backend.servers.len())).sum());
        self.frontends.set(count(desired.frontends.len()));
    }

    pub(crate) fn status_written(&self, kind: &'static str) {
        self.status_writes.get_or_create(&[("kind", kind)]).inc();
    }

    pub(crate) fn planned(&self, desired: &Desired, retained: &Retained) {
        self.nodes_out.clear();
        for node in desired.nodes.iter().filter(|node| node.state != NodeState::Ready) {
            let reason = node.reason.as_deref().unwrap_or_default();
            let labels = [("node", node.name.as_str()), ("state", node.state.word()), ("reason", reason)];
            self.nodes_out.get_or_create(&labels.map(|(name, value)| (name, value.to_owned()))).set(1);
        }
        for state in [NodeState::Ready, NodeState::Draining, NodeState::NotReady] {
            let number = desired.nodes.iter().filter(|node| node.state == state).count();
            self.nodes.get_or_create(&[("kind", state.word())]).set(count(number));
        }
        for (kind, kept) in [("nodes", &retained.nodes), ("services", &retained.services)] {
            self.held.get_or_create(&[("kind", kind)]).set(count(kept.len()));
        }
    }

    /// Counts the problems of the plan, and those of putting it into effect.
    pub(crate) fn set_problems<'a>(&self, problems: impl Iterator<Item = &'a Problem>) {
        self.problems.clear();
        for &Problem { kind, .. } in problems.filter(|problem| problem.kind != INTENDED) {
            self.problems.get_or_create(&[("kind", kind)]).inc();
        }
    }
}

pub(crate) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Metrics that are computed on request, so that they can't be outdated.
#[derive(Debug)]
struct Computed(Arc<Life>);

impl Collector for Computed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let age = ConstGauge::new(self.0.age().as_secs_f64());
        let help = "Time since the quietest watch was last heard of";
        age.encode(encoder.encode_descriptor("cache_age_seconds", help, None, age.metric_type())?)?;
        let open = ConstGauge::new(i64::from(self.0.is_watching()));
        let help = "1 while every watch is open";
        open.encode(encoder.encode_descriptor("watching", help, None, open.metric_type())?)
    }
}
