//! What the tasks share, the answers of `/livez` and `/readyz`, and the metrics. Label values come from fixed sets.

use crate::plan::applied::{Applied, Checked};
use crate::plan::desired::{Desired, INTENDED};
use crate::run::args::Args;
use crate::watch::Life;
use nodegate_program::{alone, gauge};
use nodegate_readiness::Verdict;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Sender, channel};
use tokio::time::Instant;

/// The longest time for any step: a check of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

/// What the loop that applies knows of HAProxy.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) desired: Option<Arc<Desired>>,
    /// What the running HAProxy proves that it runs, or why it does not, whatever the API server does.
    pub(crate) applied: Result<Arc<Applied>, String>,
    pub(crate) checked: Checked,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) setup: Args,
    pub(crate) reloads: Counter,
    failures: Family<[(&'static str, &'static str); 1], Counter>,
    pub(crate) pending: Gauge,
    pub(crate) known: Sender<Known>,
    /// The last sign of life of the loop that applies.
    pub(crate) beat: Sender<Instant>,
}

impl Shared {
    pub(crate) fn new(setup: Args) -> Self {
        let applied = Err("no configuration has been applied yet".to_owned());
        let known = channel(Known { desired: None, applied, checked: Checked::default() }).0;
        let (reloads, failures, pending) = Default::default();
        Self { setup, reloads, failures, pending, known, beat: channel(Instant::now()).0 }
    }

    pub(crate) fn failed(&self, kind: &'static str) {
        self.failures.get_or_create(&[("kind", kind)]).inc();
    }
}

impl nodegate_http::Health for Shared {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let is_stuck = self.beat.borrow().elapsed() >= STUCK;
        if is_stuck { Err("the loop that applies is stuck".into()) } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        self.known.borrow().applied.as_ref().map(drop).map_err(|reason| reason.clone().into())
    }
}

pub(crate) fn registry(shared: &Arc<Shared>, life: Life) -> Registry {
    let mut all = Registry::with_prefix("nodegate_haproxy");
    all.register("reloads", "Reloads that HAProxy has proven", shared.reloads.clone());
    // An alert looks at its increase, so it has to begin with 0.
    drop(shared.failures.get_or_create(&[("kind", "foreign")]));
    all.register("failures", "Attempts that changed nothing, by what failed", shared.failures.clone());
    all.register("pending", "1 while a newer configuration waits to take effect", shared.pending.clone());
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    all.register("build", "What this program was built from", Info::new(version));
    all.register_collector(Box::new(Computed { shared: shared.clone(), life }));
    all
}

/// Metrics that are computed on request, so that they can't be outdated.
#[derive(Debug)]
struct Computed {
    shared: Arc<Shared>,
    life: Life,
}

impl Collector for Computed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let is_open = u64::from(self.life.iter().all(|watch| *watch.is_open.borrow()));
        gauge(encoder, "watching", "1 while every watch is open", [alone(is_open)])?;
        let Known { desired, applied, checked } = self.shared.known.borrow().clone();
        let applied = applied.ok();
        let is_applied = u64::from(applied.is_some());
        gauge(encoder, "applied", "1 while HAProxy proves the written file", [alone(is_applied)])?;
        let hash = applied.iter().map(|applied| ([("hash", &*applied.hash)], 1_u64));
        gauge(encoder, "loaded", "1, with the hash of the configuration in effect", hash)?;
        let nodes = checked.nodes.filter(|_| applied.is_some());
        let passing = nodes.map(|nodes| alone(nodes.values().filter(|passes| **passes).count()));
        gauge(encoder, "nodes_passing", "Nodes that pass HAProxy's check; absent while unknown", passing)?;
        let left_out = applied.iter().flat_map(|applied| &applied.left_out);
        let mut problems = BTreeMap::<_, u64>::new();
        for problem in desired.iter().flat_map(|desired| &desired.problems).chain(left_out) {
            *problems.entry(problem.kind).or_default() += 1;
        }
        problems.remove(INTENDED);
        let problems = problems.into_iter().map(|(kind, number)| ([("kind", kind)], number));
        gauge(encoder, "problems", "Services and Nodes that are not served as asked", problems)?;
        let down = checked.down.iter().map(|down| ([("service", &*down.about)], 1_u64));
        gauge(encoder, "service_down", "1 for each Service of which no server passes its check", down)?;
        let Some(desired) = desired else { return Ok(()) };
        let of = |verdict| desired.nodes.iter().filter(|node| node.verdict().0 == verdict).count();
        let nodes = Verdict::ALL.map(|verdict| ([("kind", verdict.as_str())], of(verdict)));
        gauge(encoder, "nodes", "Nodes by the state that the cluster gives them", nodes)?;
        let out = desired.nodes.iter().filter_map(|node| {
            let (verdict, reason) = node.out.as_ref()?;
            Some(([("node", &*node.name), ("state", verdict.as_str()), ("reason", reason)], 1_u64))
        });
        gauge(encoder, "node_out", "1 for each node without new traffic", out)
    }
}
