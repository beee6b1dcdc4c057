//! What the program's tasks share.

use crate::apply::layout::Layout;
use crate::apply::tools::Tools;
use crate::plan::desired::Desired;
use crate::run::health::LoopHealth;
use crate::run::metrics::HaproxyMetrics;
use crate::run::pause::Pause;
use crate::watch::WatchScope;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::sync::{Notify, mpsc, oneshot};

/// How often HAProxy is looked at.
pub(crate) const AUDIT: Duration = Duration::from_secs(5);
/// The wait after a first failure.
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is watched.
    pub scope: WatchScope,
    /// What it is applied with.
    pub tools: Tools,
    /// What keeps all of it from being changed.
    pub pause: Pause,
}

/// What the tasks share.
pub(crate) struct Shared {
    pub(crate) setup: Setup,
    pub(crate) metrics: Arc<HaproxyMetrics>,
    pub(crate) health: Arc<LoopHealth>,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    pub(crate) layout: Sender<Option<Arc<Layout>>>,
    /// HAProxy lacks what it should have.
    pub(crate) reload: Notify,
    /// Asks the mover to save the states, and waits until it has.
    pub(crate) save: mpsc::Sender<oneshot::Sender<()>>,
}
