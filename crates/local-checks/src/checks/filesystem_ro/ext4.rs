//! Kernels that do not show when ext4 stops accepting writes.

// Linux 6.12 ("ext4: don't set `SB_RDONLY` after filesystem errors", d3476f3dad4a) removed the `ro` that an
// error with `errors=remount-ro` had set until then, and 6.15 introduced `emergency_ro`. In between, the
// mount table says `rw`. Only the counters that ext4 keeps in the filesystem show the error. They survive
// until the next fsck, so they count only from the last boot on.

use crate::host_root::HostRoot;
use crate::mounts::Mount;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

const SILENT: Range<(u32, u32)> = (6, 12)..(6, 15);

/// The maximum length of a file. Each has a line or two, but `/proc/stat` has one line for each CPU, and one
/// with a number for each interrupt.
const MAX_FILE: u64 = 1024 * 1024;

/// Returns true if a filesystem has stopped at an error on a kernel that does not show it.
pub(super) fn has_stopped_silently(host: &HostRoot, mount: &Mount<'_>) -> bool {
    mount.kind == b"ext4" && stopped_silently(host, mount).unwrap_or(false)
}

fn stopped_silently(host: &HostRoot, mount: &Mount<'_>) -> Option<bool> {
    if !SILENT.contains(&kernel(&read(&host.join("/proc/sys/kernel/osrelease"))?)?) {
        return Some(false);
    }
    // The link has the kernel's own name of the device, such as dm-0 for /dev/mapper/vg-var in the table.
    let link = host.join(format!("/sys/dev/block/{}:{}", mount.device.major, mount.device.minor));
    let link = fs::read_link(link).ok()?;
    let name = Path::new(link.file_name()?);
    let of_device = |file: &str| read(&host.join(Path::new("/sys/fs/ext4").join(name).join(file)));
    let number = |file: &str| of_device(file)?.trim().parse::<u64>().ok();
    if number("errors_count")? == 0 || number("last_error_time")? < boot(&read(&host.join("/proc/stat"))?)? {
        return Some(false);
    }
    // The mount table omits the option if it is the filesystem's own default (tune2fs -e).
    let options = read(&host.join(Path::new("/proc/fs/ext4").join(name).join("options")))?;
    Some(options.lines().any(|option| option == "errors=remount-ro"))
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Parses major and minor version of a release such as `6.12.9-amd64`.
fn kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the time of the boot, in seconds since 1970.
fn boot(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::MountTable;
    use std::os::unix::fs::symlink;

    /// Returns true if the filesystem has stopped, on a host with one ext4 filesystem, as these kernels show
    /// it.
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
        has_stopped_silently(&HostRoot::new(root).unwrap(), &table.mounts().next().unwrap())
    }

    #[test]
    fn an_error_since_boot_counts_on_the_kernels_that_show_nothing_else() {
        let options = "rw\nerrors=remount-ro\ncommit=5\n";
        assert!(stopped("6.12.9-amd64\n", "1\n", "1700000001\n", options));
        assert!(stopped("6.14.0\n", "3\n", "1700000000\n", options));
        for release in ["6.11.2\n", "6.15.0-rc1\n", "5.14.0\n", "7.0\n", "6\n", "\n"] {
            assert!(!stopped(release, "1\n", "1700000001\n", options), "{release}");
        }
        assert!(!stopped("6.12.9\n", "0\n", "0\n", options));
        assert!(!stopped("6.12.9\n", "1\n", "1699999999\n", options), "of an earlier boot");
        assert!(!stopped("6.12.9\n", "1\n", "1700000001\n", "rw\nerrors=continue\n"));
        assert!(!stopped("6.12.9\n", "x\n", "-1\n", options));
    }
}
