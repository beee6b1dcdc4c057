//! What the tasks share, and the answers of `/livez` and `/readyz`.

use crate::plan::applied::{Applied, Checked};
use crate::plan::desired::Desired;
use crate::run::args::Args;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::borrow::Cow;
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
    pub(crate) metrics: HaproxyMetrics,
    pub(crate) known: Sender<Known>,
    /// The last sign of life of the loop that applies.
    pub(crate) beat: Sender<Instant>,
}

impl Shared {
    pub(crate) fn new(setup: Args) -> Self {
        let applied = Err("no configuration has been applied yet".to_owned());
        let known = channel(Known { desired: None, applied, checked: Checked::default() }).0;
        Self { setup, metrics: HaproxyMetrics::default(), known, beat: channel(Instant::now()).0 }
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

/// The one label of most metrics.
type Kind = [(&'static str, &'static str); 1];

#[derive(Debug, Default)]
pub(crate) struct HaproxyMetrics {
    pub(crate) reloads: Counter,
    pub(crate) failures: Family<Kind, Counter>,
    pub(crate) pending: Gauge,
    pub(crate) status_writes: Family<Kind, Counter>,
    pub(crate) status_foreign: Gauge,
}

impl HaproxyMetrics {
    pub(crate) fn failed(&self, kind: &'static str) {
        self.failures.get_or_create(&[("kind", kind)]).inc();
    }
}

pub(crate) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
