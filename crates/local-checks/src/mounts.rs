//! The host's mount table.

// The `procfs` crate fails for the whole table if one mount point is not UTF-8, and leaves `\040` for a
// space.

use crate::host_root::HostRoot;
use nodegate_readiness::Reason;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The maximum length of the table: 100,000 mounts (`fs.mount-max`), each of some 150 bytes.
const MAX_TABLE: u64 = 32 * 1024 * 1024;

/// Filesystems that are read-only by nature, and always full.
const READ_ONLY_KINDS: [&[u8]; 5] = [b"squashfs", b"erofs", b"iso9660", b"cramfs", b"romfs"];

/// All mounts of the host as its first process sees them.
pub(crate) struct MountTable {
    text: Vec<u8>,
    /// The path of the host's root in the table.
    root: PathBuf,
    /// True if it is that of the host's first process, which shows all that the host has.
    pub(crate) of_first_process: bool,
}

const OF_FIRST_PROCESS: &str = "/proc/1/mountinfo";
const OF_OWN: &str = "/proc/self/mountinfo";

/// One mount, from a line of `/proc/<pid>/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    pub(crate) id: u32,
    pub(crate) device: Device,
    directory: &'a [u8],
    pub(crate) point: Cow<'a, Path>,
    /// The options of this mount alone; others of the same filesystem have their own.
    options: &'a [u8],
    pub(crate) kind: &'a [u8],
    pub(crate) source: Cow<'a, Path>,
    /// The options of the filesystem, the same at each of its mounts.
    super_options: &'a [u8],
}

/// The major and the minor number of a device.
pub(crate) type Device = (u32, u32);

impl MountTable {
    /// Reads the table of the host's first process if the host's `/proc` is there. Only that one shows how
    /// the host has mounted a filesystem: a container sees it through a mount of its own. Otherwise reads the
    /// table of this process, in which the host's mounts are below the root.
    fn read(host: &HostRoot) -> io::Result<Self> {
        match host.read(OF_FIRST_PROCESS, MAX_TABLE) {
            Ok(text) => Ok(Self { text, root: PathBuf::from("/"), of_first_process: true }),
            Err(_) => Self::of_own(host.as_path()),
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

    fn of_own(root: &Path) -> io::Result<Self> {
        let text = HostRoot::default().read(OF_OWN, MAX_TABLE)?;
        Ok(Self { text, root: root.to_owned(), of_first_process: false })
    }

    fn is_of_host(&self, host: &HostRoot) -> bool {
        if host.as_path() != Path::new("/") {
            return self.mounts().next().is_some();
        }
        // A container's first process is the agent, or has another root. A table that can't be read is the
        // agent's own.
        std::process::id() != 1 && Self::of_own(host.as_path()).is_ok_and(|own| own.has_same_root(self))
    }

    fn has_same_root(&self, other: &Self) -> bool {
        let root =
            |table: &Self| table.holder(Path::new("/")).map(|mount| (mount.device, mount.directory.to_vec()));
        root(self) == root(other)
    }

    /// Returns all mounts below the host's root in their order, without malformed lines.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        let lines = self.text.split(|byte| *byte == b'\n');
        lines.filter_map(Mount::parse).filter_map(|mount| mount.below(&self.root))
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
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = number(fields.next()?)?;
        let (_parent, device, directory) = (fields.next()?, fields.next()?, fields.next()?);
        let mut device = device.splitn(2, |byte| *byte == b':');
        let device = (number(device.next()?)?, number(device.next()?)?);
        let (point, options) = (fields.next()?, fields.next()?);
        fields.find(|field| *field == b"-")?;
        let (kind, source, super_options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self {
            id,
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

    /// Returns true if this mount takes no writes; others of the same filesystem may.
    pub(crate) fn is_read_only(&self) -> bool {
        has(self.options, b"ro")
    }

    /// Returns true if the filesystem takes no writes at any mount.
    pub(crate) fn is_filesystem_read_only(&self) -> bool {
        has(self.super_options, b"ro")
    }

    /// Returns true if the filesystem has this option.
    pub(crate) fn has_super_option(&self, option: &str) -> bool {
        has(self.super_options, option.as_bytes())
    }

    /// Returns true if the filesystem is read-only by nature.
    pub(crate) fn is_read_only_by_nature(&self) -> bool {
        READ_ONLY_KINDS.contains(&self.kind)
    }

    /// Returns true if the filesystem is backed by a block device. Btrfs, ZFS and FUSE have no number of one,
    /// but a source under /dev, or their kind.
    pub(crate) fn is_block_backed(&self) -> bool {
        let of_device = self.source.starts_with("/dev") && *self.source != *Path::new("/dev/fuse");
        self.device.0 != 0 || of_device || self.kind == b"zfs"
    }
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn has(options: &[u8], option: &[u8]) -> bool {
    options.split(|byte| *byte == b',').any(|found| found == option)
}

/// Decodes a field: the kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> Cow<'_, Path> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(Path::new(OsStr::from_bytes(field)));
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = if byte == b'\\' { after.split_at_checked(3).and_then(octal) } else { None };
        let (byte, after) = escaped.unwrap_or((byte, after));
        plain.push(byte);
        rest = after;
    }
    Cow::Owned(PathBuf::from(OsStr::from_bytes(&plain)))
}

fn octal<'a>((digits, after): (&[u8], &'a [u8])) -> Option<(u8, &'a [u8])> {
    // `from_str_radix` accepts a sign, too.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    Some((u8::from_str_radix(digits, 8).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl MountTable {
        pub(crate) fn of(text: impl Into<Vec<u8>>) -> Self {
            Self { text: text.into(), root: PathBuf::from("/"), of_first_process: true }
        }
    }

    const TABLE: &str = "\
22 1 0:2 / / rw - rootfs rootfs rw
23 22 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
24 23 8:17 / /var/lib ro,relatime shared:2 master:1 - xfs /dev/sdb1 rw,inode64
25 23 0:40 / /mnt/with\\040space\\134 rw - btrfs /dev/sdc rw,subvol=/
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
        assert_eq!((var.id, var.device), (24, (8, 17)));
        assert_eq!((var.kind, &*var.source), (&b"xfs"[..], Path::new("/dev/sdb1")));
        assert!(var.is_read_only() && !var.is_filesystem_read_only() && var.has_super_option("inode64"));
        assert_eq!(&*mounts[3].point, Path::new("/mnt/with space\\"));
        let blocks: Vec<_> = mounts.iter().map(Mount::is_block_backed).collect();
        assert_eq!(blocks, [false, true, true, true, false]);
        assert!(mounts[4].is_filesystem_read_only() && !mounts[4].is_read_only());
    }

    #[test]
    fn a_path_is_on_the_last_of_the_longest_mount_points_above_it() {
        let table = MountTable::of(TABLE);
        let id = |path| table.holder(Path::new(path)).unwrap().id;
        assert_eq!((id("/"), id("/var"), id("/var/lib"), id("/var/lib/kubelet")), (23, 23, 24, 24));
        assert_eq!(id("/var/library"), 23);
        assert_eq!(id("/mnt/with space\\/x"), 25);
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
    fn a_container_has_another_root_than_the_first_process() {
        let table = |root: &str| {
            MountTable::of(format!(
                "1 0 {root} / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /proc rw - proc proc rw\n"
            ))
        };
        let host = table("8:1 /");
        assert!(host.has_same_root(&table("8:1 /")));
        for container in ["0:41 /", "8:1 /var/lib/containerd/snapshots/7/fs", "8:2 /"] {
            assert!(!host.has_same_root(&table(container)), "{container}");
        }
    }

    #[test]
    fn the_running_kernels_table_is_understood_to_the_last_line() {
        let table = MountTable::read(&HostRoot::default()).unwrap();
        let lines = table.text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        assert_eq!(table.mounts().count(), lines);
    }

    proptest! {
        #[test]
        fn what_the_kernel_escapes_comes_back(name in proptest::collection::vec(1u8.., 0..40)) {
            let escaped: Vec<u8> = name.iter().flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                _ => vec![*byte],
            }).collect();
            let plain = unescape(&escaped);
            prop_assert_eq!(plain.as_os_str().as_bytes(), name);
        }
    }
}
