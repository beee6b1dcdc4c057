//! The host's mount table.

// The `procfs` crate makes two hash maps of each line, and leaves `\040` for a space.

use crate::host_root::HostRoot;
use nodegate_readiness::{Outcome, Reason};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// The maximum length of the table: 100,000 mounts (`fs.mount-max`), each of some 150 bytes.
const MAX_TABLE: u64 = 32 * 1024 * 1024;

/// Filesystems that are read-only by nature, and always full.
const READ_ONLY_KINDS: [&str; 5] = ["squashfs", "erofs", "iso9660", "cramfs", "romfs"];

/// All mounts of the host as its first process sees them.
pub(crate) struct MountTable {
    text: String,
    /// The path of the host's root in the table.
    root: PathBuf,
    /// True if it is that of the host's first process, which shows all that the host has.
    of_first_process: bool,
}

const OF_FIRST_PROCESS: &str = "/proc/1/mountinfo";
const OF_OWN: &str = "/proc/self/mountinfo";

/// One mount, from a line of `/proc/<pid>/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    pub(crate) id: u32,
    /// The major and the minor number of the device, as in `8:1`.
    pub(crate) device: &'a str,
    directory: &'a str,
    pub(crate) point: Cow<'a, Path>,
    /// The options of this mount alone; others of the same filesystem have their own.
    pub(crate) options: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) source: Cow<'a, Path>,
    /// The options of the filesystem, the same at each of its mounts.
    pub(crate) super_options: &'a str,
}

impl MountTable {
    /// Reads the table of the host's first process if the host's `/proc` is there. Only that one shows how
    /// the host has mounted a filesystem: a container sees it through a mount of its own. Otherwise reads the
    /// table of this process, in which the host's mounts are below the root.
    fn read(host: &HostRoot) -> io::Result<Self> {
        match host.read(OF_FIRST_PROCESS, MAX_TABLE) {
            Ok(text) => Ok(Self { text: in_utf8(text), root: PathBuf::from("/"), of_first_process: true }),
            Err(_) => Self::of_own(host),
        }
    }

    /// Reads the table of the host for a check. If it is `usual`, only a table with the host's filesystems counts,
    /// since those of a container would look right.
    pub(crate) fn of_host(host: &HostRoot, usual: bool) -> Result<Self, Reason> {
        let table = Self::read(host).map_err(|error| Reason::new("NoMountTable").detail(error))?;
        if usual && !table.is_of_host(host) {
            let detail = format!("the host's / is not at --host-root={host}");
            return Err(Reason::new("HostNotMounted").detail(detail));
        }
        Ok(table)
    }

    /// Returns the outcome of a check that finds none of its paths on a disk: a pass, logged once, if `passes` and this
    /// is the host's own table. Otherwise a pass would be wrong: for example, only a container's files were found.
    pub(crate) fn without_disk(
        &self,
        host: &HostRoot,
        passes: bool,
        check: &'static str,
        logged: &Once,
    ) -> Result<Outcome, Reason> {
        if passes && self.of_first_process {
            logged.call_once(|| {
                tracing::info!(check, "by the host's mount table, no path is on a disk; the check passes");
            });
            return Ok(Outcome::Pass);
        }
        let detail = format!("none of the paths is on a disk; is --host-root={host} the host's /?");
        Err(Reason::new("NoDisk").detail(detail))
    }

    fn of_own(host: &HostRoot) -> io::Result<Self> {
        let text = in_utf8(HostRoot::default().read(OF_OWN, MAX_TABLE)?);
        Ok(Self { text, root: host.0.clone(), of_first_process: false })
    }

    fn is_of_host(&self, host: &HostRoot) -> bool {
        if host.0 != Path::new("/") {
            return self.mounts().next().is_some();
        }
        // A container's first process is the agent, or has another root. A table that can't be read is the
        // agent's own.
        let root = |table: &Self| {
            table.holder(Path::new("/")).map(|mount| (mount.device.to_owned(), mount.directory.to_owned()))
        };
        std::process::id() != 1 && Self::of_own(host).is_ok_and(|own| root(&own) == root(self))
    }

    /// Returns all mounts below the host's root in their order, without malformed lines.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        self.text.lines().filter_map(Mount::parse).filter_map(|mount| mount.below(&self.root))
    }

    /// Returns the mount that holds a path without links.
    pub(crate) fn holder(&self, path: &Path) -> Option<Mount<'_>> {
        let holds = self.mounts().filter(|mount| path.starts_with(&mount.point));
        // The last one of the longest counts: a later mount at the same point covers the earlier one.
        holds.max_by_key(|mount| mount.point.as_os_str().len())
    }
}

impl<'a> Mount<'a> {
    /// Parses a line such as `36 35 98:0 /a /b rw,noatime master:1 - ext3 /dev/root rw`
    /// (`proc_pid_mountinfo(5)`).
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (id, _parent, device, directory) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (point, options) = (fields.next()?, fields.next()?);
        fields.find(|field| *field == "-")?;
        let (kind, source, super_options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self {
            id: id.parse().ok()?,
            device,
            directory,
            point: unescape(point),
            options,
            kind,
            source: unescape(source),
            super_options,
        })
    }

    /// Returns the mount with its mount point relative to `root`.
    fn below(mut self, root: &Path) -> Option<Self> {
        if root != Path::new("/") {
            let point = self.point.strip_prefix(root).ok()?;
            self.point = Cow::Owned(Path::new("/").join(point));
        }
        Some(self)
    }

    /// Returns true if the filesystem takes no writes at any mount.
    pub(crate) fn is_filesystem_read_only(&self) -> bool {
        has(self.super_options, "ro")
    }

    /// Returns true if the filesystem is read-only by nature.
    pub(crate) fn is_read_only_by_nature(&self) -> bool {
        READ_ONLY_KINDS.contains(&self.kind)
    }

    /// Returns true if the filesystem is backed by a block device. Btrfs, ZFS and FUSE have no number of one,
    /// but a source under /dev, or their kind.
    pub(crate) fn is_block_backed(&self) -> bool {
        let of_device = self.source.starts_with("/dev") && *self.source != *Path::new("/dev/fuse");
        !self.device.starts_with("0:") || of_device || self.kind == "zfs"
    }
}

/// Returns true if the list of options has this one.
pub(crate) fn has(options: &str, option: &str) -> bool {
    options.split(',').any(|found| found == option)
}

/// Returns the table as text. A mount point that is not UTF-8 is no path that a setting can name.
fn in_utf8(table: Vec<u8>) -> String {
    String::from_utf8(table).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Decodes a field: the kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> Cow<'_, Path> {
    if !field.contains('\\') {
        return Cow::Borrowed(Path::new(field));
    }
    let plain = field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    Cow::Owned(PathBuf::from(plain.replace("\\134", "\\")))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MountTable {
        pub(crate) fn of(text: impl Into<String>) -> Self {
            Self { text: text.into(), root: PathBuf::from("/"), of_first_process: true }
        }
    }

    const TABLE: &str = "\
22 1 0:2 / / rw - rootfs rootfs rw
23 22 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
24 23 8:17 / /var/lib ro,relatime shared:2 master:1 - xfs /dev/sdb1 rw,inode64
25 23 0:40 / /mnt/with\\040space\\134\\011\\012 rw - btrfs /dev/sdc rw,subvol=/
26 23 0:41 / /tmp rw - tmpfs none ro

nonsense
27 x 1:1
";

    #[test]
    fn a_line_is_read_with_any_number_of_optional_fields() {
        let table = MountTable::of(TABLE);
        let mounts: Vec<_> = table.mounts().collect();
        assert_eq!(mounts.len(), 5);
        let var = &mounts[2];
        assert_eq!((var.id, var.device), (24, "8:17"));
        assert_eq!((var.kind, &*var.source), ("xfs", Path::new("/dev/sdb1")));
        assert!(
            has(var.options, "ro") && !var.is_filesystem_read_only() && has(var.super_options, "inode64")
        );
        assert_eq!(&*mounts[3].point, Path::new("/mnt/with space\\\t\n"));
        let blocks: Vec<_> = mounts.iter().map(Mount::is_block_backed).collect();
        assert_eq!(blocks, [false, true, true, true, false]);
        assert!(mounts[4].is_filesystem_read_only() && !has(mounts[4].options, "ro"));
    }

    #[test]
    fn a_path_is_on_the_last_of_the_longest_mount_points_above_it() {
        let table = MountTable::of(TABLE);
        let id = |path| table.holder(Path::new(path)).unwrap().id;
        assert_eq!((id("/"), id("/var"), id("/var/lib"), id("/var/lib/kubelet")), (23, 23, 24, 24));
        assert_eq!(id("/var/library"), 23);
        assert_eq!(id("/mnt/with space\\\t\n/x"), 25);
    }

    #[test]
    fn without_the_hosts_proc_its_mounts_are_below_the_root() {
        let text = "1 0 0:9 / / rw - overlay overlay rw\n2 1 8:1 / /host ro - ext4 /dev/sda1 rw\n\
                    3 2 8:2 / /host/var rw - ext4 /dev/sda2 rw\n";
        let table = MountTable { root: PathBuf::from("/host"), ..MountTable::of(text) };
        let points: Vec<_> = table.mounts().map(|mount| mount.point.into_owned()).collect();
        assert_eq!(points, [Path::new("/"), Path::new("/var")]);
        let directory = tempfile::tempdir().unwrap();
        let host = HostRoot::new(directory.path()).unwrap();
        assert_eq!(MountTable::read(&host).unwrap().mounts().count(), 0);
    }

    #[test]
    fn the_running_kernels_table_is_understood_to_the_last_line() {
        let table = MountTable::read(&HostRoot::default()).unwrap();
        assert_eq!(table.mounts().count(), table.text.lines().count());
    }
}
