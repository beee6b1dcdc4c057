//! The `filesystem_ro` check of the real agent, without privileges, on real filesystems that the kernel stops
//! writing to.
//!
//! The filesystems are on loop devices in a private mount namespace, so these tests need root, and fail
//! without it.

use crate::host::disks::{Container, Disks};
use nodegate_testbed::Agent;

fn passes(agent: &Agent) {
    let body = agent.wait_passes("filesystem_ro").body;
    let expected = r#"{"status":"ready","checks":[{"name":"filesystem_ro","passed":true,"duration_ms":"#;
    assert!(body.starts_with(expected), "{body}");
}

fn fails(agent: &Agent, reason: &str) {
    let body = agent.wait_fails_with("filesystem_ro", reason).body;
    let expected = format!(
        r#"{{"status":"not-ready","checks":[{{"name":"filesystem_ro","passed":false,"reason":"{reason}"#
    );
    assert!(body.starts_with(&expected), "{body}");
}

/// Waits for five more runs, all of which must pass.
fn keeps_passing(agent: &Agent) {
    for _ in 0..5 {
        agent.wait_runs("filesystem_ro", 1);
        passes(agent);
    }
}

/// Starts a host whose `/` is an image, with a writable disk of its own for `/var`.
fn immutable(root: &str) -> Disks {
    Disks::start(&format!(
        "mkdir -p \"$ROOT/.tree/usr\" \"$ROOT/.tree/etc\" \"$ROOT/.tree/var\" \"$ROOT/os\"
         {root}
         ext4 errors=remount-ro e
         mkdir -p \"$ROOT/e/lib/kubelet\"
         mount --move \"$ROOT/e\" \"$ROOT/os/var\""
    ))
}

const ERROR_OF_VAR: &str =
    "loop=$(device /os/var); echo nodegate test >\"/sys/fs/ext4/$loop/trigger_fs_error\"";

#[test]
fn an_immutable_host_passes_until_its_var_has_an_error() {
    let squashfs = "mksquashfs \"$ROOT/.tree\" \"$ROOT/.os.img\" -quiet -no-progress >/dev/null
         mount -o loop \"$ROOT/.os.img\" \"$ROOT/os\"";
    let ext4 = "truncate -s 16M \"$ROOT/.os.img\"
         mkfs.ext4 -q -d \"$ROOT/.tree\" \"$ROOT/.os.img\"
         mount -o loop,ro \"$ROOT/.os.img\" \"$ROOT/os\"";
    for root in [squashfs, ext4] {
        let disks = immutable(root);
        let usual = ["--background-checks=filesystem_ro", "--check-settings=filesystem_ro:interval=100ms"];
        let agent = disks.agent_of("/os", &usual);
        passes(&agent);
        keeps_passing(&agent);
        disks.run(ERROR_OF_VAR);
        fails(&agent, "FilesystemError: /var (ext4 /dev/loop");
    }
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
