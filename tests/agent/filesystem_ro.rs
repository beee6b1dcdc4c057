//! The `filesystem_ro` check of the real agent, without privileges, on filesystems that the kernel stops writing to.

// The filesystems are on loop devices in a private mount namespace, so these tests need root.

use crate::disks::{Container, Disks};
use nodegate_testbed::Agent;

const CHECK: &str = "filesystem_ro";
const USUAL: &str = "--background-checks=filesystem_ro";
const NOTHING: &str = "NoDisk: none of the paths is on a disk; is --host-root=";
const MOUNT: &str = "mount -o loop,errors=remount-ro \"$ROOT/.e.img\" \"$ROOT/e\"";

/// Makes ext4 at this place report an error.
fn fail(disks: &Disks, at: &str) {
    disks.run(&format!("loop=$(device {at}); echo nodegate test >\"/sys/fs/ext4/$loop/trigger_fs_error\""));
}

#[test]
fn a_disk_fails_from_its_error_to_its_repair() {
    let disks = Disks::start("ext4 errors=remount-ro e; umount \"$ROOT/e\"");
    let start = || disks.agent_of("", &[USUAL, "--check-settings=filesystem_ro:paths=/e,interval=200ms"]);
    let agent = start();
    let fails = |agent: &Agent, reason: &str| {
        agent.wait_fails_with(CHECK, &format!("{reason}: /e (ext4 /dev/loop"));
    };
    let repair = format!(
        "umount \"$ROOT/e\"; fsck.ext4 -fy \"$ROOT/.e.img\" >/dev/null 2>&1 || [ $? -lt 4 ]; {MOUNT}"
    );
    agent.wait_fails_with(CHECK, NOTHING);
    disks.run(MOUNT);
    agent.wait_passes(CHECK);
    fail(&disks, "/e");
    fails(&agent, "FilesystemError");
    fails(&start(), "FilesystemError");
    disks.run(&repair);
    agent.wait_passes(CHECK);
    disks.run("xfs_io -x -c shutdown \"$ROOT/e\"");
    fails(&agent, "");
    disks.run(&repair);
    agent.wait_passes(CHECK);
    disks.run("mount -o remount,ro \"$ROOT/e\"");
    fails(&agent, "RemountedReadOnly");
    // For a new agent it is read-only by design.
    start().wait_passes(CHECK);
    disks.run("mount -o remount,rw \"$ROOT/e\"");
    agent.wait_passes(CHECK);
    disks.run("umount \"$ROOT/e\"");
    agent.wait_fails_with(CHECK, NOTHING);
}

/// Shows that the check recognises a container without the host's root, whatever the runtime uses as the
/// container's root: an overlay, which the mount table shows, or a filesystem of its own.
#[test]
fn a_containers_root_is_not_taken_for_the_hosts_root() {
    let checks = "--background-checks=filesystem_ro,disk_pressure";
    let reason = "HostNotMounted: the host's / is not at --host-root=/";
    let disks = Disks::start("ext4 rw e 256M");
    for kind in [Container::OfItsOwn, Container::WithOthers] {
        let agent = disks.agent_in_container(kind, "/e", &[checks]);
        for check in ["filesystem_ro", "disk_pressure"] {
            agent.wait_fails(check, reason);
            agent.logs_once(&format!("local check fails check=\"{check}\""));
        }
    }
    // The check trusts paths that the operator names: they were mounted for the purpose.
    let paths = ["--check-settings=filesystem_ro:paths=/", "--check-settings=disk_pressure:paths=/"];
    let named = disks.agent_in_container(Container::OfItsOwn, "/e", &[checks, paths[0], paths[1]]);
    named.wait_passes("filesystem_ro");
    named.wait_passes("disk_pressure");
}
