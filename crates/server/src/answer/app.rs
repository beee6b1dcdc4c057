//! The routes of an agent, with all that they answer from.

use super::big_answers::BigAnswers;
use super::slots::Slots;
use super::wait::{PodSettings, Waits};
use crate::metrics::{Metrics, StateCollector, with_all};
use crate::probers::{ProberSettings, Probers};
use crate::reading::Reader;
use futures::future::BoxFuture;
use nodegate_agent_api::Predecessor;
use nodegate_readiness::{Board, CheckId, Liveness, Moment, Timeline};
use prometheus_client::registry::Registry;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
    /// The registry with the metric families of other crates.
    pub registry: Registry,
    /// Which clients count as probers, and the counter of client connections (`--traffic-port`).
    pub probers: ProberSettings,
    /// How the node's pods are known.
    pub pods: PodSettings,
}

/// The routes of an agent, each group with what it answers from.
pub struct App {
    pub(crate) reader: Arc<Reader>,
    pub(super) liveness: Arc<Liveness>,
    pub(crate) metrics: Arc<Metrics>,
    pub(super) activate: Activate,
    /// The slots of requests that wait for the first result of their checks.
    pub(super) waiting: Arc<Slots>,
    pub(crate) waits: Waits,
    pub(super) big: Arc<BigAnswers>,
}

impl App {
    /// Creates an app that is ready to be served.
    pub fn new(parts: AppParts) -> Self {
        let AppParts { board, timeline, liveness, activate, metrics, .. } = parts;
        let probers = Arc::new(Probers::new(parts.probers, Arc::clone(&board)));
        let noted = Arc::clone(&probers.noted);
        let _ = board.after_change.set(Box::new(move |()| noted.notify_one()));
        // The operating system's randomness is the key of the id. Two processes never share it, unlike the seed of a
        // generator.
        let start_id = format!("{:016x}", RandomState::new().hash_one(()));
        let reader = Arc::new(Reader { board, probers, timeline, start_id, port_taken: Mutex::default() });
        let registry = with_all(parts.registry, StateCollector(Arc::clone(&reader)), &metrics);
        let big = BigAnswers::new(Arc::clone(&reader), registry);
        Self {
            activate,
            waiting: Arc::default(),
            waits: Waits::new(Arc::clone(&reader), parts.pods),
            big: Arc::new(big),
            reader,
            liveness,
            metrics,
        }
    }

    /// Takes over the probers of the previous agent and returns their number. Must be called before the app
    /// is served.
    pub fn take_over_probers(&self, predecessor: &Predecessor) -> usize {
        self.reader.probers.take_over(predecessor, self.now())
    }

    /// Sets the maximum age of the big answers (`/metrics`, `/status.json`, the page), once; a second without this
    /// call.
    pub fn render_every(&self, interval: Duration) {
        let _ = self.big.every.set(interval);
    }

    /// Returns the identifier of this process, which `/drain.json` has.
    pub fn start_id(&self) -> &str {
        &self.reader.start_id
    }

    /// Records the answer of another program at the node's own address and port, or that this agent answers there.
    pub fn set_port_taken(&self, answer: Option<String>) {
        *self.reader.port_taken.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// Returns the current moment.
    pub fn now(&self) -> Moment {
        self.reader.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Catalog, Policy};

    impl App {
        pub(crate) fn of(catalog: Catalog) -> Arc<Self> {
            Self::with(catalog, Arc::new(|_| Box::pin(std::future::ready(()))))
        }

        pub(crate) fn with(catalog: Catalog, activate: Activate) -> Arc<Self> {
            let (name, checks) = (Some("n1".to_owned()), [CheckId::NodeReady]);
            Arc::new(Self::new(AppParts {
                board: Arc::new(Board::new(name, Policy::default(), catalog, &checks)),
                timeline: Timeline::new(nodegate_clock::now()),
                liveness: Arc::new(Liveness::new(Moment::default())),
                activate,
                metrics: Arc::default(),
                registry: Registry::default(),
                probers: ProberSettings::default(),
                pods: PodSettings::default(),
            }))
        }
    }
}
