//! The metrics. Label values come from fixed sets.

use crate::plan::applied::Passing;
use crate::plan::desired::{Desired, INTENDED};
use crate::run::shared::{Known, Shared, count};
use crate::watch::life::Life;
use nodegate_readiness::Verdict;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(crate) fn registry(shared: &Arc<Shared>, life: Arc<Life>) -> Registry {
    let mut registry = Registry::with_prefix("nodegate_haproxy");
    let (all, metrics) = (&mut registry, &shared.metrics);
    all.register("reloads", "Reloads that HAProxy has proven", metrics.reloads.clone());
    // An alert looks at its increase, so it has to begin with 0.
    drop(metrics.failures.get_or_create(&[("kind", "foreign")]));
    all.register("failures", "Attempts that changed nothing, by what failed", metrics.failures.clone());
    life.register(all);
    all.register("pending", "1 while a newer configuration waits to take effect", metrics.pending.clone());
    all.register("status_writes", "Statuses of Services written", metrics.status_writes.clone());
    all.register("status_foreign", "Statuses that another program wrote", metrics.status_foreign.clone());
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    all.register("build", "What this program was built from", Info::new(version));
    all.register_collector(Box::new(Computed { shared: shared.clone(), life }));
    registry
}

/// Metrics that are computed on request, so that they can't be outdated.
#[derive(Debug)]
struct Computed {
    shared: Arc<Shared>,
    life: Arc<Life>,
}

impl Collector for Computed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let help = "Time since the quietest watch was last heard of";
        gauge(encoder, "cache_age_seconds", help)?.encode_gauge(&self.life.age().as_secs_f64())?;
        let is_open = i64::from(self.life.is_watching());
        gauge(encoder, "watching", "1 while every watch is open")?.encode_gauge(&is_open)?;
        let Known { desired, applied, checked } = self.shared.known.borrow().clone();
        let applied = applied.ok();
        let is_applied = i64::from(applied.is_some());
        let help = "1 while the running HAProxy proves the written file";
        gauge(encoder, "applied", help)?.encode_gauge(&is_applied)?;
        let help = "1, with the hash of the configuration in effect";
        let mut loaded = gauge(encoder, "loaded", help)?;
        if let Some(applied) = &applied {
            loaded.encode_family(&[("hash", &*applied.hash)])?.encode_gauge(&1)?;
            let frontends = count(applied.plan.frontends.len());
            gauge(encoder, "frontends", "Service ports that are published")?.encode_gauge(&frontends)?;
        }
        let nodes = checked.nodes.filter(|_| applied.is_some());
        let number = |nodes: Passing| nodes.values().map(|passes| f64::from(u8::from(*passes))).sum();
        let help = "Nodes that pass HAProxy's check; NaN while that is unknown";
        gauge(encoder, "nodes_passing", help)?.encode_gauge(&nodes.map_or(f64::NAN, number))?;
        let left_out = applied.iter().flat_map(|applied| &applied.left_out);
        let mut problems = BTreeMap::<_, i64>::new();
        for problem in desired.iter().flat_map(|desired| &desired.problems).chain(left_out) {
            *problems.entry(problem.kind).or_default() += 1;
        }
        let mut family = gauge(encoder, "problems", "Services and Nodes that are not served as asked")?;
        for (kind, number) in problems.iter().filter(|(kind, _)| **kind != INTENDED) {
            family.encode_family(&[("kind", *kind)])?.encode_gauge(number)?;
        }
        let mut family =
            gauge(encoder, "service_down", "1 for each Service of which no server passes its check")?;
        for down in &checked.down {
            family.encode_family(&[("service", &*down.about)])?.encode_gauge(&1)?;
        }
        desired.map_or(Ok(()), |desired| node_states(encoder, &desired))
    }
}

fn node_states(encoder: &mut DescriptorEncoder<'_>, desired: &Desired) -> fmt::Result {
    let mut family = gauge(encoder, "nodes", "Nodes by the state that the cluster gives them")?;
    for verdict in Verdict::ALL {
        let number = desired.nodes.iter().filter(|node| node.verdict().0 == verdict).count();
        family.encode_family(&[("kind", verdict.as_str())])?.encode_gauge(&count(number))?;
    }
    let mut family = gauge(encoder, "node_out", "1 for each node without new traffic")?;
    for node in &desired.nodes {
        if let Some((verdict, reason)) = &node.out {
            let labels = [("node", &*node.name), ("state", verdict.as_str()), ("reason", reason)];
            family.encode_family(&labels)?.encode_gauge(&1)?;
        }
    }
    Ok(())
}

fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}
