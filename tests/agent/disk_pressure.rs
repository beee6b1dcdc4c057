//! The `disk_pressure` check of the real agent, without privileges, on real filesystems that fill up and that
//! hang.
//!
//! The filesystems are in a private mount namespace, so these tests need root, and fail without it.

use crate::host::disks::Disks;
use nodegate_testbed::Agent;
fn passes(agent: &Agent) {
    let body = agent.wait_passes("disk_pressure").body;
    let expected = r#"{"status":"ready","checks":[{"name":"disk_pressure","passed":true,"duration_ms":"#;
    assert!(body.starts_with(expected), "{body}");
}

fn fails(agent: &Agent, reason: &str) {
    let body = agent.wait_fails_with("disk_pressure", reason).body;
    let begins = r#"{"status":"not-ready","checks":[{"name":"disk_pressure","passed":false,"reason":""#;
    assert!(body.starts_with(&format!("{begins}{reason}")), "{body}");
}

/// Fills `/e` until this percentage of its bytes, and half a percent more, is free.
fn leave(disks: &Disks, percent: u32) {
    disks.run(&format!(
        "rm -f \"$ROOT/e/fill\"
         sync -f \"$ROOT/e\"
         set -- $(stat -f -c '%b %a %S' \"$ROOT/e\")
         fallocate -l \"$(( ($1 * (995 - 10 * {percent}) / 1000 - ($1 - $2)) * $3 ))\" \"$ROOT/e/fill\""
    ));
}

#[test]
fn a_full_disk_fails_though_the_host_root_is_mounted_read_only() {
    let disks = Disks::start(
        "ext4 rw e
         mkdir \"$ROOT/host\"
         mount --bind \"$ROOT/e\" \"$ROOT/host\"
         mount -o remount,bind,ro \"$ROOT/host\"",
    );
    let paths = "--check-settings=disk_pressure:interval=100ms,paths=/";
    let agent = disks.agent_of("/host", &["--background-checks=disk_pressure", paths]);
    passes(&agent);
    leave(&disks, 5);
    fails(&agent, "DiskPressure: /: 5 % of bytes free, needs 10 %");
}

#[test]
fn an_overlay_root_is_not_measured_but_disks_mounted_below_it_are() {
    let disks = Disks::start(
        "ext4 rw e
         mkdir -p \"$ROOT/e/lower/var/lib/kubelet\" \"$ROOT/e/upper\" \"$ROOT/e/work\" \"$ROOT/os\"
         layers=\"lowerdir=$ROOT/e/lower,upperdir=$ROOT/e/upper,workdir=$ROOT/e/work\"
         mount -t overlay -o \"$layers\" overlay \"$ROOT/os\"",
    );
    let agent = disks.agent_of(
        "/os",
        &["--background-checks=disk_pressure", "--check-settings=disk_pressure:interval=100ms"],
    );
    agent.wait_fails_with(
        "disk_pressure",
        "NothingToMeasure: none of the paths is on a disk; is --host-root=",
    );
    // As in a live image: a disk is mounted below a root that is not on a disk.
    disks.run("ext4 rw v; mkdir \"$ROOT/v/kubelet\"; mount --move \"$ROOT/v\" \"$ROOT/os/var/lib\"");
    passes(&agent);
    leave(&disks, 5);
    agent.wait_runs("disk_pressure", 2);
    passes(&agent);
    disks.run("head -c 1G /dev/zero >\"$ROOT/os/var/lib/fill\" 2>/dev/null || true");
    fails(&agent, "DiskPressure: /var/lib/kubelet: 0 % of bytes free, needs 10 %");
}
