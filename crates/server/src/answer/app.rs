//! The routes of an agent, with all that they answer from.

use super::big_answers::BigAnswers;
use super::verdicts::{Activate, Verdicts};
use super::wait::{PodSettings, Waits};
use crate::metrics::{Metrics, StateCollector, with_all};
use crate::probers::{ProberSettings, Probers};
use crate::reading::Reader;
use nodegate_agent_api::Predecessor;
use nodegate_readiness::{Board, Liveness, Moment, Timeline};
use prometheus_client::registry::Registry;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
    /// Which clients count as probers, and the counter of their connections.
    pub probers: ProberSettings,
    /// How the node's pods are known.
    pub pods: PodSettings,
    /// The version of nodegate.
    pub version: &'static str,
    /// The commit that nodegate was built from.
    pub revision: Option<&'static str>,
}

/// The routes of an agent, each group with what it answers from.
pub struct App {
    pub(crate) reader: Arc<Reader>,
    pub(super) liveness: Arc<Liveness>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) verdicts: Arc<Verdicts>,
    pub(crate) waits: Waits,
    pub(super) big: Arc<BigAnswers>,
}

impl App {
    /// Creates an app that is ready to be served.
    pub fn new(parts: AppParts) -> Self {
        let AppParts { board, timeline, liveness, activate, metrics, version, revision, .. } = parts;
        let probers = Arc::new(Probers::new(parts.probers));
        let noted = Arc::clone(&probers.noted);
        let _ = board.after_change.set(Box::new(move |()| noted.notify_one()));
        // The operating system's randomness is the key of the id. Two processes never share it, unlike the seed of a
        // generator.
        let start_id = format!("{:016x}", RandomState::new().hash_one(()));
        let reader =
            Arc::new(Reader { board, probers, timeline, version, start_id, port_taken: Mutex::default() });
        let registry = with_all(parts.registry, StateCollector(Arc::clone(&reader)), &metrics, revision);
        let big = BigAnswers::new(Arc::clone(&reader), registry);
        Self {
            verdicts: Arc::new(Verdicts::new(Arc::clone(&reader), Arc::clone(&metrics), activate)),
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
        self.reader.probers.take_over(predecessor, &self.reader.board, self.now())
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

    impl App {
        pub(crate) fn of(board: Board) -> Arc<Self> {
            Arc::new(Self::new(AppParts {
                board: Arc::new(board),
                timeline: Timeline::new(nodegate_clock::now()),
                liveness: Arc::new(Liveness::new(Moment::default())),
                activate: Arc::new(|_| Box::pin(std::future::ready(()))),
                metrics: Arc::default(),
                registry: Registry::default(),
                probers: ProberSettings::default(),
                pods: PodSettings::default(),
                version: "",
                revision: None,
            }))
        }
    }
}
