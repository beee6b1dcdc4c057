//! Recognises, in the mount table, a filesystem that no longer accepts writes.

// Seen on Linux 6.18 in `/proc/<pid>/mountinfo` (own options of the mount / options of the filesystem):
//
// | | |
// |---|---|
// | ext4 in order | `rw,relatime` / `rw,errors=remount-ro` |
// | ext4, `errors=remount-ro` (mounted so or by `tune2fs -e`), after an error | `rw` / `rw,emergency_ro` |
// | ext4 shut down | `rw` / `rw,shutdown` |
// | XFS shut down | nothing changes, but `stat` fails with EIO |
// | `mount -o ro`, a write-protected disk, `mount -o remount,ro` | `ro` / `ro` |
// | bind mount made read-only | `ro` / `rw` |
// | squashfs | `rw` / `ro` |
//
// Before 6.12 an error with `errors=remount-ro` made ext4 show `rw` / `ro`, as Btrfs and F2FS still do: the
// kernel sets the filesystem's flag, and only a mount sets the mount's. From 6.12 to 6.14 ext4 shows nothing
// (see `super::ext4`).

use crate::mounts::{Mount, MountTable};
use nodegate_readiness::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilesystemFault {
    Error,
    ShutDown,
    TurnedReadOnly,
    /// A user remounted it read-only, after it had been writable.
    RemountedReadOnly,
    /// `stat` on it fails with an I/O error.
    Io,
}

impl FilesystemFault {
    /// Returns the fault that the mount table shows.
    pub(super) fn shown_by(mount: &Mount<'_>, table: &MountTable, was_writable: bool) -> Option<Self> {
        if mount.is_read_only_by_nature() {
            return None;
        }
        if mount.has_super_option("emergency_ro") {
            return Some(Self::Error);
        }
        if mount.has_super_option("shutdown") {
            return Some(Self::ShutDown);
        }
        if !mount.is_filesystem_read_only() {
            return None;
        }
        // A read-only mount of a filesystem sets the flag of that mount, too, and of every mount made from
        // it.
        let of_same = |other: &Mount<'_>| other.device == mount.device;
        if table.mounts().filter(of_same).any(|other| !other.is_read_only()) {
            return Some(Self::TurnedReadOnly);
        }
        was_writable.then_some(Self::RemountedReadOnly)
    }

    pub(super) fn reason(self, mount: &Mount<'_>) -> Reason {
        let (what, hint) = match self {
            Self::Error => ("FilesystemError", "takes no writes any more; see dmesg, then fsck"),
            Self::ShutDown => ("FilesystemShutDown", "see dmesg"),
            Self::TurnedReadOnly => ("TurnedReadOnly", "by the kernel; see dmesg"),
            Self::RemountedReadOnly => ("RemountedReadOnly", "was writable before"),
            Self::Io => ("InputOutputError", "shut down or its disk is gone; see dmesg"),
        };
        let (point, source) = (mount.point.display(), mount.source.display());
        let kind = String::from_utf8_lossy(mount.kind);
        Reason::new(what).detail(format_args!("{point} ({kind} {source}): {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::FilesystemFault::{Error, RemountedReadOnly, ShutDown, TurnedReadOnly};
    use super::*;

    fn faults(table: &str, was_writable: bool) -> Vec<Option<FilesystemFault>> {
        let table = MountTable::of(table);
        table.mounts().map(|mount| FilesystemFault::shown_by(&mount, &table, was_writable)).collect()
    }

    fn fault(line: &str, was_writable: bool) -> Option<FilesystemFault> {
        faults(line, was_writable)[0]
    }

    #[test]
    fn each_way_of_showing_it_is_known() {
        for (line, expected) in [
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 rw,errors=remount-ro", None),
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro", Some(Error)),
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 rw,shutdown", Some(ShutDown)),
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 ro,errors=remount-ro", Some(TurnedReadOnly)),
            ("44 27 0:39 / /b rw - btrfs /dev/loop0 ro,space_cache=v2,subvol=/", Some(TurnedReadOnly)),
            ("46 27 7:0 / /b ro,relatime - ext4 /dev/loop0 rw", None),
            ("45 27 7:2 / /s rw,relatime - squashfs /dev/loop2 ro,errors=continue", None),
        ] {
            for was_writable in [false, true] {
                assert_eq!(fault(line, was_writable), expected, "{line}");
            }
        }
    }

    #[test]
    fn read_only_as_it_was_mounted_is_by_design_and_read_only_since_is_not() {
        let line = "43 27 7:0 / /e ro,relatime - xfs /dev/loop0 ro,inode64";
        assert_eq!(fault(line, false), None);
        assert_eq!(fault(line, true), Some(RemountedReadOnly));
    }

    #[test]
    fn a_read_only_bind_mount_tells_by_the_mount_it_was_made_from() {
        for (source, expected) in [
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 ro", Some(TurnedReadOnly)),
            ("43 27 7:0 / /e ro - ext4 /dev/loop0 ro", None),
            ("43 27 7:1 / /e rw - ext4 /dev/loop1 rw", None),
        ] {
            assert_eq!(fault(&format!("46 27 7:0 / /b ro - ext4 /dev/loop0 ro\n{source}"), false), expected);
        }
    }
}
