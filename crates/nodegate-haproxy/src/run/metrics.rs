//! The metrics. Label values come from fixed sets.

use crate::plan::desired::{Desired, INTENDED, Problem};
use crate::plan::explain::Passing;
use crate::plan::facts::{Facts, NodeState};
use crate::plan::removal_limit::Retained;
use crate::watch::life::{Kind, Life};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A node without new traffic. There are as many of these series as such nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeOut {
    node: String,
    state: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Loaded {
    hash: String,
}

/// All counters and gauges.
#[derive(Debug, Default)]
pub struct HaproxyMetrics {
    applied: Gauge,
    pub(crate) reloads: Counter,
    failures: Family<Kind, Counter>,
    nodes: Family<Kind, Gauge>,
    /// The number of nodes that pass HAProxy's check, if it is known.
    passing: Mutex<Option<i64>>,
    frontends: Gauge,
    servers: Gauge,
    problems: Family<Kind, Gauge>,
    held: Family<Kind, Gauge>,
    pub(crate) pending: Gauge,
    nodes_out: Family<NodeOut, Gauge>,
    loaded: Family<Loaded, Gauge>,
    pub(crate) foreign_changes: Counter,
    pub(crate) lease_held: Gauge,
    status_writes: Family<Kind, Counter>,
    status_foreign: Gauge,
    pub(crate) service_events: Counter,
}

impl HaproxyMetrics {
    /// Returns a registry with all metrics.
    pub fn registry(self: &Arc<Self>, life: Arc<Life>) -> Registry {
        let mut registry = Registry::with_prefix("nodegate_haproxy");
        let all = &mut registry;
        all.register("applied", "1 while the running HAProxy proves the written file", self.applied.clone());
        all.register("reloads", "Reloads that HAProxy has proven", self.reloads.clone());
        all.register("failures", "Attempts that changed nothing, by what failed", self.failures.clone());
        life.counts.register(all);
        all.register("nodes", "Nodes by the state that the cluster gives them", self.nodes.clone());
        all.register("frontends", "Service ports that are published", self.frontends.clone());
        all.register("servers", "Servers of all published ports", self.servers.clone());
        all.register("problems", "Services and Nodes that are not served as asked", self.problems.clone());
        all.register("held", "Objects that vanished and are kept (--max-removal)", self.held.clone());
        all.register("pending", "1 while a newer configuration waits to take effect", self.pending.clone());
        all.register("node_out", "1 for each node without new traffic", self.nodes_out.clone());
        let help = "1, with a hash of the configuration in effect: both of a pair have the same";
        all.register("loaded", help, self.loaded.clone());
        let help = "Times that another program had changed the configuration";
        all.register("foreign_changes", help, self.foreign_changes.clone());
        all.register("lease_held", "1 while this process holds the Lease", self.lease_held.clone());
        all.register("status_writes", "Statuses of Services written", self.status_writes.clone());
        let help = "Published Services whose status another program has written; it is left alone";
        all.register("status_foreign", help, self.status_foreign.clone());
        let help = "Events posted on Services that are not published";
        all.register("service_events", help, self.service_events.clone());
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        all.register("build", "What this program was built from", Info::new(version));
        all.register_collector(Box::new(Computed { life, metrics: self.clone() }));
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
        self.failures.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn set_passing(&self, passing: Option<&Passing>) {
        let number = passing.map(|passing| count(passing.values().filter(|passes| **passes).count()));
        *self.passing.lock().unwrap_or_else(PoisonError::into_inner) = number;
    }

    /// Sets what is in the configuration that HAProxy runs.
    pub(crate) fn loaded(&self, hash: Option<&str>, desired: &Desired) {
        self.loaded.clear();
        if let Some(hash) = hash {
            self.loaded.get_or_create(&Loaded { hash: hash.to_owned() }).set(1);
        }
        self.servers.set(count(desired.server_count()));
        self.frontends.set(count(desired.frontends.len()));
    }

    pub(crate) fn status_written(&self, kind: &'static str) {
        self.status_writes.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn status_foreign(&self, number: usize) {
        self.status_foreign.set(count(number));
    }

    pub(crate) fn planned(&self, desired: &Desired, facts: &Facts, retained: &Retained) {
        self.nodes_out.clear();
        for node in desired.nodes.iter().filter(|node| node.state != NodeState::Ready) {
            let reason = facts.nodes.get(&node.name).and_then(|facts| facts.reason.clone());
            let (node, state, reason) = (node.name.clone(), node.state.word(), reason.unwrap_or_default());
            self.nodes_out.get_or_create(&NodeOut { node, state, reason }).set(1);
        }
        for state in [NodeState::Ready, NodeState::Draining, NodeState::NotReady] {
            let number = desired.nodes.iter().filter(|node| node.state == state).count();
            self.nodes.get_or_create(&Kind { kind: state.word() }).set(count(number));
        }
        for (kind, kept) in [("nodes", &retained.nodes), ("services", &retained.services)] {
            self.held.get_or_create(&Kind { kind }).set(count(kept.len()));
        }
    }

    /// Counts the problems of the plan, and those of putting it into effect.
    pub(crate) fn set_problems<'a>(&self, problems: impl Iterator<Item = &'a Problem>) {
        self.problems.clear();
        for &Problem { kind, .. } in problems.filter(|problem| problem.kind != INTENDED) {
            self.problems.get_or_create(&Kind { kind }).inc();
        }
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Metrics that are computed on request, so that they can't be outdated, or are absent while they are unknown.
#[derive(Debug)]
struct Computed {
    life: Arc<Life>,
    metrics: Arc<HaproxyMetrics>,
}

impl Collector for Computed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let age = ConstGauge::new(self.life.age().as_secs_f64());
        let help = "Time since the quietest watch was last heard of";
        age.encode(encoder.encode_descriptor("cache_age_seconds", help, None, age.metric_type())?)?;
        let open = ConstGauge::new(i64::from(self.life.closed_for().is_none()));
        let help = "1 while every watch is open";
        open.encode(encoder.encode_descriptor("watching", help, None, open.metric_type())?)?;
        let passing = *self.metrics.passing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(passing) = passing else { return Ok(()) };
        let passing = ConstGauge::new(passing);
        let help = "Nodes that pass HAProxy's check; absent while HAProxy can't be asked";
        passing.encode(encoder.encode_descriptor("nodes_passing", help, None, passing.metric_type())?)
    }
}
