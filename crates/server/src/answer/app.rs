//! The state, settings and counters that the server answers from.

use super::shared_answer::SharedAnswers;
use super::waiters::{PodSettings, Waiters};
use crate::metrics::{Metrics, StateCollector, registry};
use crate::probers::{ProberSettings, Probers};
use crate::reading::Reader;
use futures::future::BoxFuture;
use nodegate_readiness::{Board, CheckId, Liveness, Moment, Predecessor, Timeline};
use prometheus_client::registry::Registry;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of requests that may wait for the first result of their checks. Further requests are answered
/// with the known results. A waiting request is busy and its connection can't be evicted, so without a bound
/// the clients that name a hanging check would take all connections. A quarter of
/// the default limit of connections; for fewer connections see [`App::limit_waiting`].
pub(super) const MAX_WAITING: usize = 128;

/// Starts local checks, even if the returned future is dropped. The future resolves when each check has its first
/// result. The server waits no longer than the checks' own timeouts allow.
pub type Activate = Arc<dyn Fn(Vec<CheckId>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The parts of an [`App`].
pub struct AppParts {
    /// The state store: facts, check results and rendered answers.
    pub board: Arc<Board>,
    /// Converts clock readings into moments; must be the same timeline as everywhere else.
    pub timeline: Timeline,
    /// The state that `/livez` reports.
    pub liveness: Arc<Liveness>,
    /// The code that starts local checks when a request first names them.
    pub activate: Activate,
    /// The counters; the board must report its flips to the same ones.
    pub metrics: Arc<Metrics>,
    /// Which clients count as probers, and the counter of their connections.
    pub probers: ProberSettings,
    /// How the node's pods are known.
    pub pods: PodSettings,
    /// The version of nodegate.
    pub version: &'static str,
    /// The commit that nodegate was built from.
    pub revision: Option<&'static str>,
}

/// Everything that the routes read.
pub struct App {
    pub(super) board: Arc<Board>,
    timeline: Timeline,
    pub(super) liveness: Arc<Liveness>,
    pub(super) activate: Activate,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reader: Arc<Reader>,
    pub(super) registry: Registry,
    pub(super) shared: SharedAnswers,
    pub(super) waiting: Semaphore,
    pub(crate) probers: Arc<Probers>,
    pub(super) waiters: Waiters,
    closing: AtomicBool,
}

impl App {
    /// Creates an app that is ready to be served.
    pub fn new(parts: AppParts) -> Self {
        let AppParts { board, timeline, liveness, activate, metrics, version, revision, .. } = parts;
        let probers = Arc::new(Probers::new(parts.probers));
        let noted = Arc::clone(&probers.noted);
        let _ = board.after_change.set(Box::new(move |()| noted.notify_one()));
        let reader = Arc::new(Reader {
            board: Arc::clone(&board),
            probers: Arc::clone(&probers),
            version,
            // The operating system's randomness is the key. Two processes never share it, unlike the seed of
            // a generator.
            start_id: format!("{:016x}", RandomState::new().hash_one(())),
        });
        let registry = registry(StateCollector { reader: Arc::clone(&reader), timeline }, &metrics, revision);
        Self {
            board,
            timeline,
            liveness,
            activate,
            metrics,
            reader,
            registry,
            shared: SharedAnswers::default(),
            waiting: Semaphore::new(MAX_WAITING),
            probers,
            waiters: Waiters::new(parts.pods),
            closing: AtomicBool::new(false),
        }
    }

    /// Returns the registry for the metric families of other crates. It puts the prefix `nodegate_` before
    /// their names.
    pub fn registry_mut(&mut self) -> &mut Registry {
        self.registry.sub_registry_with_prefix("nodegate")
    }

    /// Takes over the probers of the previous agent and returns their number. Must be called before the app
    /// is served.
    pub fn take_over_probers(&self, predecessor: &Predecessor) -> usize {
        self.probers.take_over(predecessor, &self.board, self.now())
    }

    /// Sets the maximum age of the big answers (`/metrics`, `/status.json`, the page); a second without this
    /// call. Must be called before the app is served.
    pub fn render_every(&mut self, interval: Duration) {
        self.shared.set_interval(interval);
    }

    /// Returns the current moment.
    pub fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }

    /// Lowers the number of waiting requests to a quarter of a listener's connections, if that is less than
    /// the present limit. Must be called before the app is served.
    pub(crate) fn limit_waiting(&self, max_connections: usize) {
        let most = (max_connections / 4).clamp(1, MAX_WAITING);
        self.waiting.forget_permits(self.waiting.available_permits().saturating_sub(most));
        debug_assert!(self.waiting.available_permits() <= most);
        self.waiters.limit(max_connections);
    }

    /// Starts the shutdown: `/readyz` fails, every answer closes its connection, and waiting requests end with the next
    /// judgement.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl App {
    pub(crate) fn of(board: Board) -> Arc<Self> {
        Arc::new(Self::new(AppParts {
            board: Arc::new(board),
            timeline: Timeline::new(nodegate_clock::now()),
            liveness: Arc::new(Liveness::new(Moment::default())),
            activate: Arc::new(|_| Box::pin(std::future::ready(()))),
            metrics: Arc::default(),
            probers: ProberSettings::default(),
            pods: PodSettings::default(),
            version: "",
            revision: None,
        }))
    }
}
