//! The configured local checks, before they run, and their flags, which are flattened into the agent's.

use crate::check::{Check, Context};
use crate::checks::KNOWN;
use crate::checks::endpoint::OwnCheck;
use crate::host_root::HostRoot;
use crate::settings::{CheckSettings, Timing};
use nodegate_program::Mistakes;
use nodegate_readiness::{LocalCheck, StartMode};
use std::sync::Arc;

/// The flags of the local checks.
#[derive(Clone, Debug, clap::Args)]
pub struct LocalCheckArgs {
    /// Settings of a local check: NAME:key=value,… with interval, timeout, rise, fall and the check's own
    /// keys; may be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_CHECK_SETTINGS", value_name = "NAME:SETTINGS", value_delimiter = ';')]
    check_settings: Vec<String>,

    /// A check of your own that passes while the URL answers 2xx; requests name it with "http:" before the
    /// name. May be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_HTTP_CHECK", value_name = "NAME=URL", value_delimiter = ';', value_parser = OwnCheck::http)]
    http_check: Vec<OwnCheck>,

    /// A check of your own that passes while the port accepts connections; requests name it with "tcp:"
    /// before the name. May be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_TCP_CHECK", value_name = "NAME=HOST:PORT", value_delimiter = ';', value_parser = OwnCheck::tcp)]
    tcp_check: Vec<OwnCheck>,

    /// Directory of the host's files; in a container, the path at which the host's / is mounted
    #[arg(long, env = "NODEGATE_HOST_ROOT", value_name = "DIR", default_value_t, value_parser = |path: &str| HostRoot::new(path))]
    host_root: HostRoot,
}

impl LocalCheckArgs {
    /// Returns the checks that exist and those that the operator defines.
    pub fn local_checks(self, mistakes: &mut Mistakes) -> LocalChecks {
        for (flag, checks) in [("http-check", &self.http_check), ("tcp-check", &self.tcp_check)] {
            mistakes.repeated(flag, checks.iter().map(|check| &check.name));
        }
        let own = [self.http_check, self.tcp_check].concat();
        let mut wrong = Vec::new();
        let checks = LocalChecks::new(&self.check_settings, &own, &self.host_root, &mut wrong);
        for mistake in wrong {
            mistakes.setting("check-settings", mistake);
        }
        checks
    }
}

/// All local checks.
pub struct LocalChecks {
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) timing: Timing,
    pub(crate) check: Arc<dyn Check>,
}

impl LocalChecks {
    /// Returns the checks that exist and those that the operator defines, with these settings, on the host whose
    /// files are below `host`. Adds all mistakes in the settings.
    pub fn new(
        settings: &[impl AsRef<str>],
        own: &[OwnCheck],
        host: &HostRoot,
        mistakes: &mut Vec<String>,
    ) -> Self {
        let mut settings = CheckSettings::parse(settings, mistakes);
        let mut checks = Self::none();
        let mut add = |name: &str, usual, new: &dyn Fn(&mut Context<'_>) -> Arc<dyn Check>| {
            let mut settings = settings.remove(name).unwrap_or_default();
            let timing = settings.timing(usual);
            let mut context = Context { host, settings, timeout: timing.timeout };
            let check = new(&mut context);
            mistakes.extend(context.settings.mistakes().into_iter().map(|why| format!("{name}:{why}")));
            checks.entries.push(Entry { name: name.to_owned(), timing, check });
        };
        for known in KNOWN {
            add(known.name, known.timing, &known.new);
        }
        for own in own {
            add(&own.name, Timing::USUAL, &|context| own.check(context));
        }
        let names: Vec<_> = checks.entries.iter().map(|entry| entry.name.as_str()).collect();
        let unknown =
            settings.keys().map(|name| format!("{name:?}: no such check; takes {}", names.join(", ")));
        mistakes.extend(unknown);
        checks
    }

    /// Returns no checks.
    pub fn none() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds a check. Of two with the same name, the first one counts.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, timing: Timing, check: Arc<dyn Check>) -> Self {
        self.entries.push(Entry { name: name.into(), timing, check });
        self
    }

    /// Returns their entries for the catalog.
    pub fn for_catalog(&self) -> Vec<LocalCheck> {
        let local = |entry: &Entry| LocalCheck {
            name: entry.name.clone(),
            timeout: entry.timing.timeout,
            begins: StartMode::default(),
        };
        self.entries.iter().map(local).collect()
    }
}
