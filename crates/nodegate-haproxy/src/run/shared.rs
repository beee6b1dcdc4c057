//! The data that the tasks of nodegate-haproxy share, and the answers of `/livez` and `/readyz`.

use crate::plan::desired::Desired;
use crate::plan::status::InEffect;
use crate::run::metrics::HaproxyMetrics;
use crate::run::setup::Setup;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

/// The longest time for any step: a check of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

/// The data that the tasks share.
pub(crate) struct Shared {
    pub(crate) setup: Setup,
    pub(crate) metrics: Arc<HaproxyMetrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    pub(crate) applied: Sender<Option<Arc<InEffect>>>,
}

/// The last sign of life of the loop that applies, and the reason why the written file is not proven to run.
#[derive(Debug)]
pub(crate) struct Health(Mutex<(Instant, Option<String>)>);

impl Health {
    /// Creates the health of a program that has just started.
    pub(crate) fn new() -> Self {
        let unproven = "no configuration has been applied yet".to_owned();
        Self(Mutex::new((Instant::now(), Some(unproven))))
    }

    fn with<T>(&self, look: impl FnOnce(&mut (Instant, Option<String>)) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn beat(&self) {
        self.with(|(beat, _)| *beat = Instant::now());
    }

    /// Records whether the running HAProxy proves the written file; the reason if not.
    pub(crate) fn set_unproven(&self, reason: Option<String>) {
        self.with(|(_, unproven)| *unproven = reason);
    }

    /// Returns the reason why the written file is not proven to run, or `None`. An outage of the API server does
    /// not change that.
    pub(crate) fn unproven(&self) -> Option<String> {
        self.with(|(_, unproven)| unproven.clone())
    }
}

impl nodegate_http::Health for Health {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let is_stuck = self.with(|(beat, _)| beat.elapsed() >= STUCK);
        if is_stuck { Err("the loop that applies is stuck".into()) } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        self.unproven().map_or(Ok(()), |reason| Err(reason.into()))
    }
}
