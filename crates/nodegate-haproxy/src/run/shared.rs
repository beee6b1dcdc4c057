//! The data that the tasks of nodegate-haproxy share.

use crate::apply::layout::Layout;
use crate::apply::tools::Tools;
use crate::plan::desired::{Desired, Problem};
use crate::run::health::LoopHealth;
use crate::run::metrics::HaproxyMetrics;
use crate::run::pause::Pause;
use crate::status::StatusSettings;
use crate::watch::WatchScope;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::sync::{Notify, mpsc, oneshot};

/// The interval between looks at HAProxy.
pub(crate) const AUDIT: Duration = Duration::from_secs(5);
/// The delay after a first failure.
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The complete setup.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The objects to watch.
    pub scope: WatchScope,
    /// The files, sockets and programs for applying.
    pub tools: Tools,
    /// The file that pauses all changes.
    pub pause: Pause,
    /// The settings of `--publish-status`. `None` if nothing is written to the cluster.
    pub publish_status: Option<StatusSettings>,
}

/// The data that the tasks share.
pub(crate) struct Shared {
    pub(crate) setup: Setup,
    pub(crate) metrics: Arc<HaproxyMetrics>,
    pub(crate) health: Arc<LoopHealth>,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    pub(crate) layout: Sender<Option<Arc<Layout>>>,
    /// The problems of the structure that the plan does not contain.
    pub(crate) left_out: Sender<Vec<Problem>>,
    /// Requests a reload, because HAProxy lacks servers or backends.
    pub(crate) reload: Notify,
    /// Requests that the states are saved. The sender in the request gets a message afterwards.
    pub(crate) save: mpsc::Sender<oneshot::Sender<()>>,
}
