//! The data that the tasks of nodegate-haproxy share, and the answers of `/livez` and `/readyz`.

use crate::plan::{Desired, InEffect};
use crate::run::args::Args;
use crate::run::metrics::HaproxyMetrics;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Sender, channel};
use tokio::time::Instant;

/// The longest time for any step: a check of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

pub(crate) struct Shared {
    pub(crate) setup: Args,
    pub(crate) metrics: HaproxyMetrics,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    /// What the running HAProxy proves that it runs, or the reason why it does not prove the written file. An outage
    /// of the API server does not change that.
    pub(crate) applied: Sender<Result<Arc<InEffect>, String>>,
    /// The last sign of life of the loop that applies.
    pub(crate) beat: Sender<Instant>,
}

impl Shared {
    pub(crate) fn new(setup: Args) -> Self {
        let applied = channel(Err("no configuration has been applied yet".to_owned())).0;
        let (desired, beat) = (channel(None).0, channel(Instant::now()).0);
        Self { setup, metrics: HaproxyMetrics::default(), desired, applied, beat }
    }
}

impl nodegate_http::Health for Shared {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let is_stuck = self.beat.borrow().elapsed() >= STUCK;
        if is_stuck { Err("the loop that applies is stuck".into()) } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        self.applied.borrow().as_ref().map(drop).map_err(|reason| reason.clone().into())
    }
}
