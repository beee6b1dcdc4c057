//! The parts that the server answers from.

use super::drain_json::DrainJson;
use super::shared::SharedAnswers;
use crate::metrics::{Metrics, Registries, StateCollector};
use crate::probers::{ProberSettings, Probers};
use nodegate_readiness::probers::Handover;
use nodegate_readiness::{Board, CheckId, Liveness, Moment, Timeline};
use prometheus_client::registry::Registry;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::{Future, ready};
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How many requests may wait for the first result of their checks; others are answered with what is known. One that
/// waits is busy and its connection can't be evicted, so without a bound those who name a check that hangs would take all
/// connections. A quarter of the default `--max-connections`; where those are fewer, see [`App::limit_waiting`].
pub(super) const MAX_WAITING: usize = 256;

/// Starts local checks on the first request that names them.
pub trait Activate: Send + Sync {
    /// Starts these checks, even if what is given back is dropped; done when each has its first result. The server waits no
    /// longer than the checks' own timeouts allow.
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

/// What an [`App`] is made of.
pub struct AppParts {
    /// The state and the answers.
    pub board: Arc<Board>,
    /// Turns the clock into moments; the same as everywhere else.
    pub timeline: Timeline,
    /// For `/livez`.
    pub liveness: Arc<Liveness>,
    /// Starts local checks.
    pub activator: Arc<dyn Activate>,
    /// Counts; also the one that the board's flips are told to.
    pub metrics: Arc<Metrics>,
    /// nodegate's version.
    pub version: &'static str,
    /// The commit it was built from.
    pub revision: Option<&'static str>,
}

/// Everything that the routes read.
pub struct App {
    pub(super) board: Arc<Board>,
    timeline: Timeline,
    pub(super) liveness: Arc<Liveness>,
    pub(super) activator: Arc<dyn Activate>,
    pub(crate) metrics: Arc<Metrics>,
    pub(super) version: &'static str,
    start_id: String,
    pub(super) registries: Registries,
    pub(super) shared: SharedAnswers,
    pub(super) waiting: Semaphore,
    pub(super) probers: Arc<Probers>,
    pub(super) drain_json: DrainJson,
    closing: AtomicBool,
}

impl App {
    /// An app that is ready to be served.
    pub fn new(parts: AppParts) -> Self {
        let AppParts { board, timeline, liveness, activator, metrics, version, revision } = parts;
        let probers = Arc::<Probers>::default();
        let registries = Registries::new(StateCollector {
            board: Arc::clone(&board),
            timeline,
            metrics: Arc::clone(&metrics),
            probers: Arc::clone(&probers),
            version,
            revision,
        });
        Self {
            board,
            timeline,
            liveness,
            activator,
            metrics,
            version,
            // Keyed by the operating system's randomness; unlike a seeded generator, two processes never share it.
            start_id: format!("{:016x}", RandomState::new().hash_one(())),
            registries,
            shared: SharedAnswers::default(),
            waiting: Semaphore::new(MAX_WAITING),
            probers,
            drain_json: DrainJson::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// Where other crates register their metric families; the prefix `nodegate_` is put before their names.
    pub fn registry_mut(&mut self) -> &mut Registry {
        self.registries.own_mut()
    }

    /// Says whose questions count, and who counts connections. Called before anything is served; without it everybody's do,
    /// and nobody does.
    pub fn set_probers(&mut self, settings: ProberSettings) {
        self.probers.set(settings);
    }

    /// Returns the 16 hexadecimal digits that tell this process from the agents before and after it.
    pub fn start_id(&self) -> &str {
        &self.start_id
    }

    /// Takes over the probers of the agent before this one; says how many they are. Called before anything is served.
    pub fn take_over_probers(&self, handover: &Handover) -> usize {
        self.probers.take_over(handover, &self.board, self.now())
    }

    /// Sets how old the answers that tell everything may be: a second if this is not called. Called before anything is
    /// served.
    pub fn render_every(&mut self, interval: Duration) {
        self.shared.set_interval(interval);
    }

    /// The moment now.
    pub fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }

    /// Lets requests of a quarter of a listener's connections wait, if that is less. Called before anything is served.
    pub(crate) fn limit_waiting(&self, max_connections: usize) {
        let most = (max_connections / 4).clamp(1, MAX_WAITING);
        self.waiting.forget_permits(self.waiting.available_permits().saturating_sub(most));
        debug_assert!(self.waiting.available_permits() <= most);
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
        Arc::new(Self::new(AppParts {
            board: Arc::new(board),
            timeline: Timeline::new(nodegate_clock::now()),
            liveness: Arc::new(Liveness::new(Moment::default())),
            activator: Arc::new(NoLocalChecks),
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
