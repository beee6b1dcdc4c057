//! Recognises a filesystem that no longer accepts writes: in the mount table, and in the counters of ext4.

use crate::host_root::HostRoot;
use crate::mounts::{Mount, MountTable, has};
use std::fs;
use std::ops::Range;
use std::path::Path;

// Linux 6.18 shows in `/proc/<pid>/mountinfo`, as own options of the mount / options of the filesystem:
//
// an error of ext4 with `errors=remount-ro` as `rw` / `rw,emergency_ro`; ext4 shut down as `rw` /
// `rw,shutdown`; XFS shut down not at all, but `stat` fails with EIO; a read-only mount, remount or disk as
// `ro` / `ro`; a bind mount made read-only as `ro` / `rw`; squashfs as `rw` / `ro`.
//
// An error of Btrfs or F2FS, and of ext4 before 6.12, shows as `rw` / `ro`: the kernel sets the filesystem's
// flag, and only a mount sets the mount's.

/// A fault: the word of the reason, and a hint.
pub(super) type FilesystemFault = (&'static str, &'static str);
pub(super) const ERROR: FilesystemFault =
    ("FilesystemError", "takes no writes any more; see dmesg, then fsck");
const SHUT_DOWN: FilesystemFault = ("FilesystemShutDown", "see dmesg");
const TURNED_READ_ONLY: FilesystemFault = ("TurnedReadOnly", "by the kernel; see dmesg");
/// A user remounted it.
const REMOUNTED_READ_ONLY: FilesystemFault = ("RemountedReadOnly", "was writable before");
/// `stat` on it fails.
pub(super) const IO: FilesystemFault = ("InputOutputError", "shut down or its disk is gone; see dmesg");

/// Returns the fault that the mount table shows.
pub(super) fn shown_by(mount: &Mount<'_>, table: &MountTable, was_writable: bool) -> Option<FilesystemFault> {
    if mount.is_read_only_by_nature() {
        return None;
    }
    if has(mount.super_options, "emergency_ro") {
        return Some(ERROR);
    }
    if has(mount.super_options, "shutdown") {
        return Some(SHUT_DOWN);
    }
    if !mount.is_filesystem_read_only() {
        return None;
    }
    // A read-only mount sets the flag of that mount, too, and of every mount made from it.
    let of_same = |other: &Mount<'_>| other.device == mount.device;
    if table.mounts().filter(of_same).any(|other| !has(other.options, "ro")) {
        return Some(TURNED_READ_ONLY);
    }
    was_writable.then_some(REMOUNTED_READ_ONLY)
}

// Linux 6.12 (d3476f3dad4a) removed the `ro` that an error with `errors=remount-ro` had set, and 6.15
// introduced `emergency_ro`. In between, only ext4's counters show the error. They survive until the next
// fsck, so they count only from the last boot on.

const SILENT: Range<(u32, u32)> = (6, 12)..(6, 15);

/// The maximum length of a file. `/proc/stat` has a line for each CPU, and one with a number for each
/// interrupt.
const MAX_FILE: u64 = 1024 * 1024;

/// Returns the fault of a filesystem that has stopped at an error on a kernel that does not show it.
pub(super) fn shown_by_counters(host: &HostRoot, mount: &Mount<'_>) -> Option<FilesystemFault> {
    let read = |path: &Path| String::from_utf8(host.read(path, MAX_FILE).ok()?).ok();
    if mount.kind != "ext4" || !SILENT.contains(&kernel(&read(Path::new("/proc/sys/kernel/osrelease"))?)?) {
        return None;
    }
    // The link has the kernel's own name of the device, such as dm-0 for /dev/mapper/vg-var in the table.
    let link = fs::read_link(host.join(Path::new("/sys/dev/block").join(mount.device))).ok()?;
    let name = Path::new(link.file_name()?);
    let of_device = |file: &str| read(&Path::new("/sys/fs/ext4").join(name).join(file));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let stat = read(Path::new("/proc/stat"))?;
    let boot = number(stat.lines().find_map(|line| line.strip_prefix("btime "))?)?;
    let is_new = number(&of_device("last_error_time")?)? >= boot && number(&of_device("errors_count")?)? > 0;
    // The mount table omits the option if it is the filesystem's own default (tune2fs -e).
    let options = read(&Path::new("/proc/fs/ext4").join(name).join("options"))?;
    (is_new && options.lines().any(|option| option == "errors=remount-ro")).then_some(ERROR)
}

/// Parses major and minor version of a release such as `6.12.9-amd64`.
fn kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::MountTable;
    use std::os::unix::fs::symlink;

    fn faults(table: &str, was_writable: bool) -> Vec<Option<FilesystemFault>> {
        let table = MountTable::of(table);
        table.mounts().map(|mount| shown_by(&mount, &table, was_writable)).collect()
    }

    #[test]
    fn each_way_of_showing_it_is_known() {
        for (line, expected) in [
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 rw,errors=remount-ro", None),
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro", Some(ERROR)),
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 rw,shutdown", Some(SHUT_DOWN)),
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 ro,errors=remount-ro", Some(TURNED_READ_ONLY)),
            ("44 27 0:39 / /b rw - btrfs /dev/loop0 ro,space_cache=v2,subvol=/", Some(TURNED_READ_ONLY)),
            ("46 27 7:0 / /b ro,relatime - ext4 /dev/loop0 rw", None),
            ("45 27 7:2 / /s rw,relatime - squashfs /dev/loop2 ro,errors=continue", None),
        ] {
            for was_writable in [false, true] {
                assert_eq!(faults(line, was_writable)[0], expected, "{line}");
            }
        }
        let by_a_user = "43 27 7:0 / /e ro,relatime - xfs /dev/loop0 ro,inode64";
        assert_eq!([false, true].map(|was| faults(by_a_user, was)[0]), [None, Some(REMOUNTED_READ_ONLY)]);
    }

    #[test]
    fn a_read_only_bind_mount_tells_by_the_mount_it_was_made_from() {
        for (source, expected) in [
            ("43 27 7:0 / /e rw - ext4 /dev/loop0 ro", Some(TURNED_READ_ONLY)),
            ("43 27 7:0 / /e ro - ext4 /dev/loop0 ro", None),
            ("43 27 7:1 / /e rw - ext4 /dev/loop1 rw", None),
        ] {
            let table = format!("46 27 7:0 / /b ro - ext4 /dev/loop0 ro\n{source}");
            assert_eq!(faults(&table, false)[0], expected);
        }
    }

    /// Returns true if the only filesystem, an ext4, has stopped, as these kernels show it.
    fn stopped(release: &str, errors: &str, last_error: &str, options: &str) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/sys/kernel/osrelease", release);
        put("proc/stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 7\n");
        put("sys/fs/ext4/dm-0/errors_count", errors);
        put("sys/fs/ext4/dm-0/last_error_time", last_error);
        put("proc/fs/ext4/dm-0/options", options);
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        symlink("../../devices/virtual/block/dm-0", root.join("sys/dev/block/253:0")).unwrap();
        let table = MountTable::of("9 1 253:0 / /var rw - ext4 /dev/mapper/vg-var rw");
        shown_by_counters(&HostRoot::new(root).unwrap(), &table.mounts().next().unwrap()).is_some()
    }

    #[test]
    fn an_error_since_boot_counts_on_the_kernels_that_show_nothing_else() {
        let options = "rw\nerrors=remount-ro\ncommit=5\n";
        let after = "1700000001\n";
        for release in ["6.12.9-amd64\n", "6.14.0\n"] {
            assert!(stopped(release, "1\n", after, options), "{release}");
        }
        for (release, errors, last_error, options) in [
            ("6.11.2\n", "1\n", after, options),
            ("6.15.0-rc1\n", "1\n", after, options),
            ("6\n", "1\n", after, options),
            ("6.12.9\n", "0\n", after, options),
            // Of an earlier boot.
            ("6.12.9\n", "1\n", "1699999999\n", options),
            ("6.12.9\n", "1\n", after, "rw\nerrors=continue\n"),
            ("6.12.9\n", "x\n", "-1\n", options),
        ] {
            assert!(!stopped(release, errors, last_error, options), "{release} {errors} {last_error}");
        }
    }
}
