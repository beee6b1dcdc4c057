//! A check's entry in the registry, before the check is built.

use crate::check::Check;
use crate::checks::apiserver::ApiServerSettings;
use crate::host_root::HostRoot;
use crate::options::{OptionKey, Options};
use crate::timing::Timing;
use crate::url::HttpUrl;
use std::sync::Arc;
use std::time::Duration;

/// One check, as it is when nothing is set.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name by which requests and settings ask for it.
    pub name: &'static str,
    /// What can be set on it besides its timing.
    pub options: &'static [OptionKey],
    /// Its timing.
    pub timing: Timing,
    /// Makes it.
    pub new: fn(&Context<'_>) -> Arc<dyn Check>,
}

/// What a check is made from.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Where the host's files are.
    pub host: &'a HostRoot,
    /// This node's API server.
    pub apiserver: &'a ApiServerSettings,
    /// What the operator set on this check.
    pub options: &'a Options,
    /// How long one run may take, for a check that looks at several things and wants to say which one hangs.
    pub timeout: Duration,
}

impl Context<'_> {
    /// Returns the URL that is set, or the usual one.
    pub(crate) fn url(&self, usual: impl FnOnce() -> HttpUrl) -> HttpUrl {
        self.options.get(HttpUrl::OPTION.name()).unwrap_or_else(usual)
    }
}
