//! What the server answers from.

use crate::metrics::{Exposition, Metrics};
use nodegate_readiness::{Beats, Board, CheckId, Moment, Timeline};
use prometheus_client::registry::Registry;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Semaphore;

/// How many requests may wait for the first result of their checks; others are answered with what is known. One that
/// waits is busy and its connection can't be evicted, so without a bound those who name a check that hangs would take all
/// places. A quarter of the default `--max-connections`; where those are fewer, see [`App::limit_waiting`].
const MAX_WAITING: usize = 256;

/// Starts local checks on the first request that names them.
pub trait Activate: Send + Sync {
    /// Starts these checks, even if what is given back is dropped; done when each has its first result. The server waits no longer than the checks' own
    /// timeouts allow.
    fn activate(&self, checks: Vec<CheckId>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// For a program without local checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLocalChecks;

impl Activate for NoLocalChecks {
    fn activate(&self, _checks: Vec<CheckId>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}

/// What is known of a watched Service on this node, as kube-proxy's healthCheckNodePort tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceHealth {
    /// How many ready endpoints it has on this node.
    pub local_endpoints: usize,
    /// Whether the node forwards traffic to them.
    pub proxy_healthy: bool,
}

/// The watched Services.
pub trait Services: Send + Sync {
    /// The health of one; `None` if it is not watched.
    fn health(&self, namespace: &str, name: &str, now: Moment) -> Option<ServiceHealth>;
}

/// What an [`App`] is made of.
pub struct Wiring {
    /// The state and the answers.
    pub board: Arc<Board>,
    /// Turns the clock into moments; the same as everywhere else.
    pub timeline: Timeline,
    /// For `/livez`.
    pub beats: Arc<Beats>,
    /// Starts local checks.
    pub activator: Arc<dyn Activate>,
    /// The watched Services, if there are any.
    pub services: Option<Arc<dyn Services>>,
    /// Counts; also the one that the board's flips are told to.
    pub metrics: Arc<Metrics>,
    /// nodegate's version.
    pub version: &'static str,
    /// The commit it was built from.
    pub revision: Option<&'static str>,
}

/// Everything that the routes read.
pub struct App {
    pub(crate) board: Arc<Board>,
    pub(crate) timeline: Timeline,
    pub(crate) beats: Arc<Beats>,
    pub(crate) activator: Arc<dyn Activate>,
    pub(crate) services: Option<Arc<dyn Services>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) version: &'static str,
    pub(crate) exposition: Exposition,
    pub(crate) waiting: Semaphore,
    closing: AtomicBool,
}

impl App {
    /// An app that is ready to be served.
    pub fn new(wiring: Wiring) -> Self {
        let exposition = Exposition::new(&wiring);
        Self {
            board: wiring.board,
            timeline: wiring.timeline,
            beats: wiring.beats,
            activator: wiring.activator,
            services: wiring.services,
            metrics: wiring.metrics,
            version: wiring.version,
            exposition,
            waiting: Semaphore::new(MAX_WAITING),
            closing: AtomicBool::new(false),
        }
    }

    /// Where other crates register their metric families; the prefix `nodegate_` is put before their names.
    pub fn registry_mut(&mut self) -> &mut Registry {
        self.exposition.registry_mut()
    }

    /// The moment now.
    pub fn now(&self) -> Moment {
        self.timeline.at(Instant::now())
    }

    /// Lets a quarter of a listener's places wait, if that is less. Called before anything is served.
    pub(crate) fn limit_waiting(&self, places: usize) {
        let most = (places / 4).clamp(1, MAX_WAITING);
        self.waiting.forget_permits(self.waiting.available_permits().saturating_sub(most));
    }

    /// From now on `/readyz` says no, and every answer ends its connection.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl App {
    /// One that is made of a board alone.
    pub(crate) fn of(board: Board) -> Arc<Self> {
        Arc::new(Self::new(Wiring {
            board: Arc::new(board),
            timeline: Timeline::new(Instant::now()),
            beats: Arc::new(Beats::new(Moment::default())),
            activator: Arc::new(NoLocalChecks),
            services: None,
            metrics: Arc::default(),
            version: "",
            revision: None,
        }))
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("version", &self.version).finish_non_exhaustive()
    }
}
