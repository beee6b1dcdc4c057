//! The configured local checks, before they run.

use crate::definition::{Context, Definition};
use crate::host_root::HostRoot;
use crate::interface::Check;
use crate::own::OwnChecks;
use crate::registry;
use crate::settings::CheckSettings;
use crate::timing::Timing;
use nodegate_readiness::board::IDLE;
use nodegate_readiness::{Begins, LocalCheck};
use std::sync::Arc;
use std::time::Duration;

/// All local checks, each with its timing.
pub struct LocalChecks {
    pub(crate) entries: Vec<Entry>,
    pub(crate) idle: Duration,
}

pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) timing: Timing,
    pub(crate) check: Arc<dyn Check>,
}

impl LocalChecks {
    /// Returns the checks of the [`registry`] as set by the operator, on the host whose files are below
    /// `host`.
    pub fn new(settings: &CheckSettings, host: &HostRoot) -> Self {
        let make = |checks: Self, definition: &Definition| {
            let timing = settings.timing(definition.name);
            let options = settings.options(definition.name);
            let check = (definition.new)(&Context { host, options: &options, timeout: timing.timeout });
            checks.with(definition.name, timing, check)
        };
        registry::KNOWN.iter().fold(Self::none(), make)
    }

    /// Adds the operator's own checks.
    #[must_use]
    pub fn with_own(self, own: &OwnChecks, settings: &CheckSettings) -> Self {
        own.checks(|name| settings.options(name))
            .fold(self, |checks, (name, check)| checks.with(name, settings.timing(name), check))
    }

    /// Returns no checks: for tests, and for programs that bring all of their own.
    pub fn none() -> Self {
        Self { entries: Vec::new(), idle: IDLE }
    }

    /// Adds a check that is not in the registry. Of two with the same name, the first one counts.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, timing: Timing, check: Arc<dyn Check>) -> Self {
        self.entries.push(Entry { name: name.into(), timing, check });
        self
    }

    /// Stops a check after this long without a request for it, instead of [`IDLE`].
    #[must_use]
    pub fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Returns their entries for the catalog.
    pub fn for_catalog(&self) -> Vec<LocalCheck> {
        let local = |entry: &Entry| LocalCheck {
            name: entry.name.clone(),
            timeout: entry.timing.timeout,
            begins: Begins::default(),
        };
        self.entries.iter().map(local).collect()
    }
}
