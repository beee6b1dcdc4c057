//! The requests to the applier, and their results.

use crate::apply::config_file::FileError;
use crate::apply::tools::TemplateError;
use crate::haproxy::master::ReloadError;
use crate::haproxy::validate::ValidateError;
use crate::plan::render::RenderError;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The rules for a reload of HAProxy.
#[derive(Clone, Copy, Debug)]
pub struct Reload {
    /// True if HAProxy has to reload even if nothing has changed.
    pub wanted: bool,
    /// True if a reload is allowed now. Otherwise a change that needs one is postponed.
    pub allowed: bool,
}

impl Reload {
    /// A reload only if a change needs one.
    pub const IF_NEEDED: Self = Self { wanted: false, allowed: true };
}

/// The result of applying a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing has changed.
    Unchanged,
    /// A new file; HAProxy has nothing to do.
    Rewritten,
    /// A new file; servers were changed at run time.
    Dynamic,
    /// A new file and a reload.
    Reloaded,
    /// A new file; nodegate-haproxy has no way to reload HAProxy.
    Written,
    /// A new file; no HAProxy runs that could load it.
    NotRunning,
    /// Nothing yet: a reload is needed, and none is allowed now.
    Postponed,
}

/// The reason why the old configuration is still in effect.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The template can't be read.
    #[error(transparent)]
    ReadTemplate(#[from] TemplateError),
    /// The template can't be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file belongs to another program or a person.
    #[error(
        "{path} is not nodegate-haproxy's and stays as it is. Name another file with --config, which HAProxy loads beside it; \
         or have all of it replaced by putting this line on top of it (a copy is kept in {copy}): {marker}"
    )]
    NotOurs {
        /// The path of the file.
        path: PathBuf,
        /// The path for a copy of it.
        copy: PathBuf,
        /// The first line of a file that nodegate-haproxy may replace.
        marker: String,
    },
    /// HAProxy would have to listen on an address that this host lacks, with a port that it already serves on
    /// others.
    #[error(
        "--bind: this host does not have the address of {0}, and HAProxy would refuse the reload; nothing is changed until it \
         has the address or the sysctl net.ipv4.ip_nonlocal_bind=1 (ipv6) is set"
    )]
    AbsentAddress(SocketAddr),
    /// HAProxy can't read the configuration.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// HAProxy did not load the configuration.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

impl ApplyError {
    /// Returns the value of the metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReadTemplate(_) | Self::Render(_) => "template",
            Self::File(_) => "file",
            Self::NotOurs { .. } => "not-ours",
            Self::AbsentAddress(_) => "bind",
            Self::Validate(_) => "validate",
            Self::Reload(_) => "reload",
        }
    }
}
