//! A check's entry in the registry, before the check is built.

use crate::host_root::HostRoot;
use crate::interface::Check;
use crate::options::{OptionKey, Options};
use crate::timing::Timing;
use std::sync::Arc;
use std::time::Duration;

/// A check with its default settings.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name in requests and settings.
    pub name: &'static str,
    /// Its settings besides its timing.
    pub options: &'static [OptionKey],
    /// Its timing without settings.
    pub timing: Timing,
    /// The constructor of the check.
    pub new: fn(&Context<'_>) -> Arc<dyn Check>,
}

/// The input for the creation of a check.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The root of the host's files.
    pub host: &'a HostRoot,
    /// The operator's settings of this check.
    pub options: &'a Options,
    /// The timeout of a run, for a check with several parts that must report which one hangs.
    pub timeout: Duration,
}
