//! The `disk_pressure` check of the real agent, without privileges, on real filesystems that fill up and that
//! hang.

// The filesystems are in a private mount namespace, so these tests need root, and fail without it.

use crate::host::disks::Disks;
use nodegate_testbed::process::signal;

const CHECK: &str = "disk_pressure";
const USUAL: &str = "--background-checks=disk_pressure";
const NOTHING: &str = "NothingToMeasure: none of the paths is on a disk; is --host-root=";

/// Leaves somewhat more than 5 % of the bytes of `/e` free.
const FILL: &str = "sync -f \"$ROOT/e\"
    set -- $(stat -f -c '%b %a %S' \"$ROOT/e\")
    fallocate -l \"$(( ($1 * 945 / 1000 - ($1 - $2)) * $3 ))\" \"$ROOT/e/fill\"";

const FILL_INODES: &str = "mkdir \"$ROOT/e/many\"
    n=0
    while [ $n -lt 1000 ] && touch \"$ROOT/e/many/$n\" 2>/dev/null; do n=$((n + 1)); done
    [ $n -lt 1000 ]";

#[test]
fn a_disk_without_bytes_or_inodes_fails_and_a_read_only_one_does_not() {
    let disks = Disks::start(":");
    let agent =
        disks.agent_of("", &[USUAL, "--check-settings=disk_pressure:paths=/e,interval=200ms,timeout=2s"]);
    agent.wait_fails_with(CHECK, NOTHING);
    disks.run("ext4 rw e 64M '-N 128'");
    agent.wait_passes(CHECK);
    disks.run(FILL);
    agent.wait_fails(CHECK, "DiskPressure: /e: 5 % of bytes free, needs 10 % (kubelet's default)");
    disks.run(&format!("rm \"$ROOT/e/fill\"; {FILL_INODES}"));
    agent.wait_fails(CHECK, "DiskPressure: /e: 0 % of inodes free, needs 5 % (kubelet's default)");
    disks.run("rm -r \"$ROOT/e/many\"");
    agent.wait_passes(CHECK);
    disks.run(FILL);
    agent.wait_fails_with(CHECK, "DiskPressure: /e: 5 % of bytes");
    disks.run("mount -o remount,ro \"$ROOT/e\"");
    agent.wait_passes(CHECK);
    disks.run("umount \"$ROOT/e\"; rmdir \"$ROOT/e\"");
    agent.wait_fails_with(CHECK, NOTHING);
}

#[test]
fn a_full_disk_fails_though_the_host_root_is_mounted_read_only() {
    let disks = Disks::start(
        "ext4 rw e
         mkdir \"$ROOT/host\"
         mount --bind \"$ROOT/e\" \"$ROOT/host\"
         mount -o remount,bind,ro \"$ROOT/host\"",
    );
    let agent = disks.agent_of("/host", &[USUAL, "--check-settings=disk_pressure:interval=100ms,paths=/"]);
    agent.wait_passes(CHECK);
    disks.run(FILL);
    agent.wait_fails_with(CHECK, "DiskPressure: /: 5 % of bytes free, needs 10 %");
}

#[test]
fn an_overlay_root_is_not_measured_but_disks_mounted_below_it_are() {
    let disks = Disks::start(
        "ext4 rw e
         mkdir -p \"$ROOT/e/lower/var/lib/kubelet\" \"$ROOT/e/upper\" \"$ROOT/e/work\" \"$ROOT/os\"
         layers=\"lowerdir=$ROOT/e/lower,upperdir=$ROOT/e/upper,workdir=$ROOT/e/work\"
         mount -t overlay -o \"$layers\" overlay \"$ROOT/os\"",
    );
    let agent = disks.agent_of("/os", &[USUAL, "--check-settings=disk_pressure:interval=100ms"]);
    agent.wait_fails_with(CHECK, NOTHING);
    // As in a live image: a disk is mounted below a root that is not on a disk.
    disks.run("ext4 rw v; mkdir \"$ROOT/v/kubelet\"; mount --move \"$ROOT/v\" \"$ROOT/os/var/lib\"");
    agent.wait_passes(CHECK);
    disks.run(FILL);
    agent.wait_runs(CHECK, 2);
    agent.wait_passes(CHECK);
    disks.run("head -c 1G /dev/zero >\"$ROOT/os/var/lib/fill\" 2>/dev/null || true");
    agent.wait_fails_with(CHECK, "DiskPressure: /var/lib/kubelet: 0 % of bytes free, needs 10 %");
}

/// Shows that a server that hangs costs its own paths alone. A call to FUSE waits for its server as one to NFS does.
#[test]
fn a_filesystem_whose_server_hangs_is_named() {
    let mut disks = Disks::start("ext4 rw e; mkdir -p \"$ROOT/from\" \"$ROOT/served\"");
    let server = disks.serve("/from", "/served");
    let settings = "--check-settings=disk_pressure:paths=/served:/e,interval=200ms,timeout=2s";
    let agent = disks.agent_of("", &[USUAL, settings]);
    agent.wait_passes(CHECK);
    signal(server, "STOP");
    agent.wait_fails_with(CHECK, "NotMeasured: /served: Hung for ");
    signal(server, "CONT");
    agent.wait_passes(CHECK);
    signal(server, "KILL");
    agent.wait_fails_with(CHECK, "NotMeasured: /served: Transport endpoint is not connected");
}
