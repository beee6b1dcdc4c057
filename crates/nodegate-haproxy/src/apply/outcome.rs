//! What is asked of whoever applies a configuration, and what comes of it.

use crate::apply::config_file::FileError;
use crate::apply::tools::TemplateError;
use crate::haproxy::master::ReloadError;
use crate::haproxy::validate::ValidateError;
use crate::plan::render::RenderError;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Whether HAProxy is to read its configuration again.
#[derive(Clone, Copy, Debug)]
pub struct Reload {
    /// Even if nothing has changed.
    pub wanted: bool,
    /// Now; what needs one is postponed otherwise.
    pub allowed: bool,
}

impl Reload {
    /// If it takes one.
    pub const IF_NEEDED: Self = Self { wanted: false, allowed: true };
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing.
    Unchanged,
    /// A new file, and nothing for HAProxy to do.
    Rewritten,
    /// A new file, and servers changed at run time.
    Dynamic,
    /// A new file and a reload.
    Reloaded,
    /// A new file; nobody is there to tell HAProxy of it.
    Written,
    /// A new file; no HAProxy runs that could read it.
    NotRunning,
    /// Nothing yet: it takes a reload, and none is allowed now.
    Postponed,
}

/// Why the configuration in effect is still the old one.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The template can't be read.
    #[error(transparent)]
    ReadTemplate(#[from] TemplateError),
    /// The template does not work.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is somebody else's.
    #[error(
        "{path} is not nodegate-haproxy's and stays as it is. Name another file with --config, which HAProxy loads beside it; \
         or have all of it replaced by putting this line on top of it (a copy is kept in {copy}): {marker}"
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Where a copy of it would be kept.
        copy: PathBuf,
        /// The line that makes it ours.
        marker: String,
    },
    /// HAProxy is to listen on an address that this host lacks, with a port that it already serves on others.
    #[error(
        "--bind: this host does not have the address of {0}, and HAProxy would refuse the reload; nothing is changed until it \
         has the address or the sysctl net.ipv4.ip_nonlocal_bind=1 (ipv6) is set"
    )]
    AbsentAddress(SocketAddr),
    /// HAProxy can't read it.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// HAProxy did not take it.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

impl ApplyError {
    /// The value of a metric's label.
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
