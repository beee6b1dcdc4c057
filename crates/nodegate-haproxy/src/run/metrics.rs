//! The metrics. Label values come from fixed sets.

use crate::apply::applier::Applied;
use crate::plan::desired::{Desired, PlannedState, Problem};
use crate::plan::facts::Facts;
use crate::plan::guard::Held;
use crate::plan::status::Change;
use crate::watch::counts::Counts;
use crate::watch::life::Life;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

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
    applied: Family<Kind, Counter>,
    failures: Family<Kind, Counter>,
    moves: Family<Kind, Counter>,
    nodes: Family<Kind, Gauge>,
    frontends: Gauge,
    servers: Gauge,
    problems: Family<Kind, Gauge>,
    /// The kinds of problems in the plan, and the kinds of problems that the applier found.
    causes: Mutex<[Vec<&'static str>; 2]>,
    held: Family<Kind, Gauge>,
    pending: Gauge,
    paused: Gauge,
    nodes_out: Family<NodeOut, Gauge>,
    loaded: Family<Loaded, Gauge>,
    foreign_changes: Counter,
    lease_held: Gauge,
    status_writes: Family<Kind, Counter>,
    status_foreign: Gauge,
    service_events: Counter,
}

impl HaproxyMetrics {
    /// Returns a registry with all metrics.
    pub fn registry(self: &Arc<Self>, watched: &Counts, life: Arc<Life>) -> Registry {
        let mut registry = Registry::with_prefix("nodegate_haproxy");
        let all = &mut registry;
        all.register("applies", "Configurations that took effect, by what it took", self.applied.clone());
        all.register(
            "failures",
            "Attempts that left everything as it was, by what failed",
            self.failures.clone(),
        );
        all.register("server_moves", "Servers moved at run time, by their new state", self.moves.clone());
        watched.register(all);
        all.register("nodes", "Nodes by the state that their servers should have", self.nodes.clone());
        all.register("frontends", "Service ports that are published", self.frontends.clone());
        all.register("servers", "Servers of all published ports", self.servers.clone());
        all.register(
            "problems",
            "Services and Nodes that could not be served as asked",
            self.problems.clone(),
        );
        all.register("held", "Objects that vanished and are kept (--max-removal)", self.held.clone());
        all.register("pending", "1 while a newer configuration waits to take effect", self.pending.clone());
        all.register("paused", "1 while the --pause-file exists and nothing is changed", self.paused.clone());
        let help = "1 for each node that gets no new traffic, with the reason";
        all.register("node_out", help, self.nodes_out.clone());
        let help = "1, with a hash of the configuration in effect: both of a pair have the same";
        all.register("loaded", help, self.loaded.clone());
        let help = "Times that another program had changed the configuration";
        all.register("foreign_changes", help, self.foreign_changes.clone());
        let help = "1 while this process holds the Lease of --publish-status, and writes";
        all.register("lease_held", help, self.lease_held.clone());
        let help = "Statuses of Services written, by what was done";
        all.register("status_writes", help, self.status_writes.clone());
        let help = "Published Services whose status another program has written; it is left alone";
        all.register("status_foreign", help, self.status_foreign.clone());
        let help = "Events posted on Services that are not published";
        all.register("service_events", help, self.service_events.clone());
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        all.register("build", "What this program was built from", Info::new(version));
        all.register_collector(Box::new(Freshness(life)));
        registry
    }

    pub(crate) fn applied(&self, applied: Applied) {
        let kind = match applied {
            Applied::Unchanged => "unchanged",
            Applied::Rewritten => "rewritten",
            Applied::Dynamic => "dynamic",
            Applied::Reloaded => "reloaded",
            Applied::Written => "written",
            Applied::NotRunning => "not-running",
            Applied::Postponed => return,
        };
        self.applied.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn failed(&self, kind: &'static str) {
        self.failures.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn moved(&self, state: PlannedState) {
        self.moves.get_or_create(&Kind { kind: state.word() }).inc();
    }

    pub(crate) fn pending(&self, pending: bool) {
        self.pending.set(pending.into());
    }

    pub(crate) fn paused(&self, paused: bool) {
        self.paused.set(paused.into());
    }

    /// Sets the hash of the configuration in effect.
    pub(crate) fn loaded(&self, hash: Option<&str>) {
        self.loaded.clear();
        if let Some(hash) = hash {
            self.loaded.get_or_create(&Loaded { hash: hash.to_owned() }).set(1);
        }
    }

    pub(crate) fn foreign_changes(&self, count: u64) {
        self.foreign_changes.inc_by(count.saturating_sub(self.foreign_changes.get()));
    }

    pub(crate) fn lease_held(&self, held: bool) {
        self.lease_held.set(held.into());
    }

    pub(crate) fn status_written(&self, change: &Change) {
        let kind = match change {
            Change::Set(_) => "set",
            Change::Remove => "removed",
        };
        self.status_writes.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn status_foreign(&self, count: usize) {
        self.status_foreign.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn event_posted(&self) {
        self.service_events.inc();
    }

    pub(crate) fn planned(&self, desired: &Desired, facts: &Facts, held: &Held) {
        self.nodes_out.clear();
        for node in desired.nodes.iter().filter(|node| node.state != PlannedState::Ready) {
            let reason = facts.nodes.get(&node.name).and_then(|facts| facts.reason.clone());
            let (node, state, reason) = (node.name.clone(), node.state.word(), reason.unwrap_or_default());
            self.nodes_out.get_or_create(&NodeOut { node, state, reason }).set(1);
        }
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        for state in [PlannedState::Ready, PlannedState::Drain, PlannedState::Maint] {
            let number = desired.nodes.iter().filter(|node| node.state == state).count();
            self.nodes.get_or_create(&Kind { kind: state.word() }).set(count(number));
        }
        self.frontends.set(count(desired.frontends.len()));
        self.servers.set(count(desired.server_count()));
        for (kind, kept) in
            [("nodes", &held.nodes), ("addresses", &held.addresses), ("services", &held.services)]
        {
            self.held.get_or_create(&Kind { kind }).set(count(kept.len()));
        }
        self.caused(|[planned, _]| *planned = kinds(&desired.problems));
    }

    /// Sets the problems that the applier found, besides those of the plan.
    pub(crate) fn left_out(&self, problems: &[Problem]) {
        self.caused(|[_, left_out]| *left_out = kinds(problems));
    }

    fn caused(&self, change: impl FnOnce(&mut [Vec<&'static str>; 2])) {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut causes);
        self.problems.clear();
        for &kind in causes.iter().flatten() {
            self.problems.get_or_create(&Kind { kind }).inc();
        }
    }
}

fn kinds(problems: &[Problem]) -> Vec<&'static str> {
    problems.iter().map(|problem| problem.kind).collect()
}

/// Metrics that are computed on request, so that they can't be outdated.
#[derive(Debug)]
struct Freshness(Arc<Life>);

impl Collector for Freshness {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let age = ConstGauge::new(self.0.age().as_secs_f64());
        let help = "Time since the quietest watch was last heard of";
        age.encode(encoder.encode_descriptor("cache_age_seconds", help, None, age.metric_type())?)?;
        let open = ConstGauge::new(i64::from(self.0.all_open()));
        let help = "1 while every watch is open";
        open.encode(encoder.encode_descriptor("watching", help, None, open.metric_type())?)
    }
}
