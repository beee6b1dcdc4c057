//! The entry points of the fuzz targets: the parsers of untrusted bytes, called as the checks call them.

pub use crate::checks::container_runtime::fuzzing as container_runtime;
pub use crate::checks::kube_proxy::fuzzing as kube_proxy;
pub use crate::checks::network::fuzzing as network;

use crate::mounts::{Mount, MountTable};
use std::path::{Path, PathBuf};

/// A parsed mount: its ID and mount point; whether the mount takes no writes, the filesystem takes none, and it is
/// backed by a block device.
pub type Line = (u32, PathBuf, [bool; 3]);

/// Returns the mounts of a table, and the one that holds `path`.
pub fn mounts(table: &[u8], path: &Path) -> (Vec<Line>, Option<Line>) {
    let table = MountTable::of(table);
    let line = |mount: Mount<'_>| {
        let is = [mount.is_read_only(), mount.is_filesystem_read_only(), mount.is_block_backed()];
        (mount.id, mount.point.to_path_buf(), is)
    };
    (table.mounts().map(line).collect(), table.holder(path).map(line))
}
