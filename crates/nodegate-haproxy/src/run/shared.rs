//! The data that the tasks of nodegate-haproxy share.

use crate::plan::desired::{Desired, Problem};
use crate::run::health::Health;
use crate::run::metrics::HaproxyMetrics;
use crate::run::setup::Setup;
use std::sync::Arc;
use tokio::sync::watch::Sender;

/// What HAProxy runs.
#[derive(Debug)]
pub(crate) struct InEffect {
    /// The plan, without the frontends that were left out.
    pub(crate) runs: Arc<Desired>,
    /// The frontends that were left out, with the reasons.
    pub(crate) left_out: Vec<Problem>,
}

/// The data that the tasks share.
pub(crate) struct Shared {
    pub(crate) setup: Setup,
    pub(crate) metrics: Arc<HaproxyMetrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    pub(crate) applied: Sender<Option<Arc<InEffect>>>,
}
