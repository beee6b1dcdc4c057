//! The local checks of this program, made but not yet running.

use crate::check::Probe;
use crate::host_root::HostRoot;
use crate::own::OwnChecks;
use crate::registry::{self, Context, Definition};
use crate::runner::Runner;
use crate::settings::Settings;
use crate::timing::Timing;
use nodegate_readiness::board::IDLE;
use nodegate_readiness::{Board, CheckId, LocalCheck, Timeline};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// All local checks, each with its probe and its timing.
pub struct Probes {
    pub(crate) entries: Vec<Entry>,
    pub(crate) idle: Duration,
}

pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) timing: Timing,
    pub(crate) probe: Arc<dyn Probe>,
}

impl Probes {
    /// The checks of the [`registry`] as set by the operator, on the host whose files are below `host`.
    pub fn new(settings: &Settings, host: &HostRoot) -> Self {
        let entry = |definition: &Definition| {
            let timing = settings.timing(definition);
            let context = Context { host, options: settings.options(definition), timeout: timing.timeout };
            Entry { name: definition.name.to_owned(), timing, probe: (definition.constructor.new)(&context) }
        };
        Self { entries: registry::known().iter().map(entry).collect(), idle: IDLE }
    }

    /// Adds the operator's own checks.
    #[must_use]
    pub fn with_own(mut self, own: &OwnChecks, settings: &Settings) -> Self {
        for (name, probe) in own.probes() {
            let timing = settings.timing_of(name, registry::USUAL);
            self.entries.push(Entry { name: name.to_owned(), timing, probe });
        }
        self
    }

    /// No checks: for tests, and for programs that bring all of their own.
    pub fn none() -> Self {
        Self { entries: Vec::new(), idle: IDLE }
    }

    /// Adds a check that is not in the registry. Of two with the same name the first one counts.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, timing: Timing, probe: Arc<dyn Probe>) -> Self {
        self.entries.push(Entry { name: name.into(), timing, probe });
        self
    }

    /// Stops a check after this long without a request for it, instead of [`IDLE`].
    #[must_use]
    pub fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// What the catalog needs to know of the checks.
    pub fn local_checks(&self) -> Vec<LocalCheck> {
        let local = |entry: &Entry| LocalCheck { name: entry.name.clone(), timeout: entry.timing.timeout };
        self.entries.iter().map(local).collect()
    }

    /// Starts the `eager` checks on the runtime of `handle`, and prepares the others to be started on use. Checks are
    /// found in the board's catalog by name; ids that are not local checks are ignored. An eager check never stops, so
    /// `eager` must hold the local ones among the default checks too: a request without names asks for none by name.
    pub fn start(
        &self,
        board: &Arc<Board>,
        timeline: Timeline,
        handle: &Handle,
        eager: &[CheckId],
    ) -> Arc<Runner> {
        Arc::new(Runner::start(self, board, timeline, handle, eager))
    }
}
