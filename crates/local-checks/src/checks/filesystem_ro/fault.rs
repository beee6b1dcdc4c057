//! Recognises, in the mount table, a filesystem that no longer accepts writes.
//!
//! Seen on Linux 6.18 in `/proc/<pid>/mountinfo` (own options of the mount / options of the filesystem):
//!
//! | | |
//! |---|---|
//! | ext4 in order | `rw,relatime` / `rw,errors=remount-ro` |
//! | ext4, `errors=remount-ro` (mounted so or by `tune2fs -e`), after an error | `rw` / `rw,emergency_ro` |
//! | ext4 shut down | `rw` / `rw,shutdown` |
//! | XFS shut down | nothing changes, but `stat` fails with EIO |
//! | `mount -o ro`, a write-protected disk, `mount -o remount,ro` | `ro` / `ro` |
//! | bind mount made read-only | `ro` / `rw` |
//! | squashfs | `rw` / `ro` |
//!
//! Before 6.12 an error with `errors=remount-ro` made ext4 show `rw` / `ro`, as Btrfs and F2FS still do: the
//! kernel sets the filesystem's flag, and only a mount sets the mount's. From 6.12 to 6.14 ext4 shows nothing
//! (see [`super::ext4`]).

use crate::mounts::{Mount, MountTable};
use nodegate_readiness::Reason;

/// A fault of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilesystemFault {
    /// It stopped at an error in its own data.
    Error,
    /// The kernel or a privileged user shut it down.
    ShutDown,
    /// The kernel made it read-only.
    TurnedReadOnly,
    /// A user remounted it read-only, after it had been writable.
    RemountedReadOnly,
    /// `stat` on it fails with an I/O error.
    Io,
}

/// A fault and its mount.
pub(super) struct Finding<'a> {
    pub(super) fault: FilesystemFault,
    pub(super) mount: Mount<'a>,
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
}

impl Finding<'_> {
    pub(super) fn reason(&self) -> Reason {
        let (what, hint) = match self.fault {
            FilesystemFault::Error => ("FilesystemError", "takes no writes any more; see dmesg, then fsck"),
            FilesystemFault::ShutDown => ("FilesystemShutDown", "see dmesg"),
            FilesystemFault::TurnedReadOnly => ("TurnedReadOnly", "by the kernel; see dmesg"),
            FilesystemFault::RemountedReadOnly => ("RemountedReadOnly", "was writable before"),
            FilesystemFault::Io => ("InputOutputError", "shut down or its disk is gone; see dmesg"),
        };
        let (point, source) = (self.mount.point.display(), self.mount.source.display());
        let kind = String::from_utf8_lossy(self.mount.kind);
        Reason::new(what).detail(format_args!("{point} ({kind} {source}): {hint}"))
    }
}

#[cfg(test)]
mod tests {
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
        let cases = [
            ("43 27 7:0 / /e rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro", None),
            (
                "43 27 7:0 / /e rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro",
                Some(FilesystemFault::Error),
            ),
            ("43 27 7:0 / /e rw,relatime - ext4 /dev/loop0 rw,shutdown", Some(FilesystemFault::ShutDown)),
            (
                "43 27 7:0 / /e rw,relatime - ext4 /dev/loop0 ro,errors=remount-ro",
                Some(FilesystemFault::TurnedReadOnly),
            ),
            (
                "44 27 0:39 / /b rw - btrfs /dev/loop0 ro,space_cache=v2,subvol=/",
                Some(FilesystemFault::TurnedReadOnly),
            ),
            ("46 27 7:0 / /b ro,relatime - ext4 /dev/loop0 rw", None),
            ("45 27 7:2 / /s rw,relatime - squashfs /dev/loop2 ro,errors=continue", None),
        ];
        for (line, expected) in cases {
            for was_writable in [false, true] {
                assert_eq!(fault(line, was_writable), expected, "{line}");
            }
        }
    }

    #[test]
    fn read_only_as_it_was_mounted_is_by_design_and_read_only_since_is_not() {
        let line = "43 27 7:0 / /e ro,relatime - xfs /dev/loop0 ro,inode64";
        assert_eq!(fault(line, false), None);
        assert_eq!(fault(line, true), Some(FilesystemFault::RemountedReadOnly));
    }

    #[test]
    fn a_read_only_bind_mount_tells_by_the_mount_it_was_made_from() {
        let bind = "46 27 7:0 / /b ro - ext4 /dev/loop0 ro\n";
        assert_eq!(
            faults(&format!("{bind}43 27 7:0 / /e rw - ext4 /dev/loop0 ro"), false)[0],
            Some(FilesystemFault::TurnedReadOnly)
        );
        assert_eq!(faults(&format!("{bind}43 27 7:0 / /e ro - ext4 /dev/loop0 ro"), false)[0], None);
        assert_eq!(faults(&format!("{bind}43 27 7:1 / /e rw - ext4 /dev/loop1 rw"), false)[0], None);
    }
}
