//! The `disk_pressure` check of the real agent, without privileges, on a real filesystem that fills up.

// The filesystem is in a private mount namespace, so this test needs root, and fails without it.

use crate::disks::Disks;

const CHECK: &str = "disk_pressure";
const USUAL: &str = "--background-checks=disk_pressure";
const NOTHING: &str = "NoDisk: none of the paths is on a disk; is --host-root=";

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
