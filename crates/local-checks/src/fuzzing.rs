//! The entry points of the fuzz targets: the parsers of untrusted bytes, called as the checks call them.

pub use crate::checks::container_runtime::fuzzing as container_runtime;
pub use crate::checks::kube_proxy::fuzzing as kube_proxy;
pub use crate::checks::network::fuzzing as network;

use crate::mounts::{Mount, MountTable};
use std::path::{Path, PathBuf};

/// A parsed line of a mount table.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The ID of the mount.
    pub id: u32,
    /// The mount point of the filesystem.
    pub point: PathBuf,
    /// True if the mount takes no writes.
    pub read_only: bool,
    /// True if the filesystem takes no writes.
    pub filesystem_read_only: bool,
    /// True if it is backed by a block device.
    pub block_backed: bool,
}

impl From<Mount<'_>> for Line {
    fn from(mount: Mount<'_>) -> Self {
        Self {
            id: mount.id,
            point: mount.point.to_path_buf(),
            read_only: mount.is_read_only(),
            filesystem_read_only: mount.is_filesystem_read_only(),
            block_backed: mount.is_block_backed(),
        }
    }
}

/// Returns the mounts of a table, and the one that holds `path`.
pub fn mounts(table: &[u8], path: &Path) -> (Vec<Line>, Option<Line>) {
    let table = MountTable::of(table);
    (table.mounts().map(Line::from).collect(), table.holder(path).map(Line::from))
}
