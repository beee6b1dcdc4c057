//! The `disk_pressure` check of the real agent, without privileges, on real filesystems that fill up and that
//! hang.
//!
//! The filesystems are in a private mount namespace, so these tests need root, and fail without it.

use nodegate_testbed::Agent;
use nodegate_testbed::host::disks::Disks;
use nodegate_testbed::process::{StoppedProcess, threads_named};
use std::time::{Duration, Instant};

/// The time for which a test counts threads. It counts for longer if there seem to be too many.
const LOOKED_FOR: Duration = Duration::from_millis(200);
const SEEN_FOR: Duration = Duration::from_mins(1);

fn agent(disks: &Disks, settings: &str) -> Agent {
    disks.agent(&[
        "--background-checks=disk_pressure",
        &format!("--check-settings=disk_pressure:interval=100ms,{settings}"),
    ])
}

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
fn a_disk_without_free_bytes_fails() {
    let disks = Disks::start("ext4 rw e");
    let (node, own) = (agent(&disks, "paths=/e:/none"), agent(&disks, "paths=/e,limits=/e=2%"));
    passes(&node);
    passes(&own);
    leave(&disks, 5);
    fails(&node, "DiskPressure: /e: 5 % of bytes free, needs 10 %");
    passes(&own);
    disks.run("rm \"$ROOT/e/fill\"; head -c 1G /dev/zero >\"$ROOT/e/fill\" 2>/dev/null || true");
    fails(&node, "DiskPressure: /e: 0 % of bytes free, needs 10 %");
    fails(&own, "DiskPressure: /e: 0 % of bytes free, needs 2 %");
    disks.run("rm \"$ROOT/e/fill\"");
    passes(&node);
    passes(&own);
}

#[test]
fn a_disk_without_free_inodes_fails() {
    let disks = Disks::start("ext4 rw e 64M '-N 128'");
    let agent = agent(&disks, "paths=/e");
    passes(&agent);
    disks.run(
        "mkdir \"$ROOT/e/many\"
         n=0
         while [ $n -lt 1000 ] && touch \"$ROOT/e/many/$n\" 2>/dev/null; do n=$((n + 1)); done
         [ $n -lt 1000 ]",
    );
    fails(&agent, "DiskPressure: /e: 0 % of inodes free, needs 5 %");
    disks.run("rm -r \"$ROOT/e/many\"");
    passes(&agent);
}

#[test]
fn the_image_directory_has_a_higher_limit_and_each_disk_is_reported_once() {
    let disks = Disks::start(
        "ext4 rw e
         mkdir -p \"$ROOT/e/kubelet\" \"$ROOT/e/containerd\" \"$ROOT/var/lib\"
         ln -s /e/kubelet \"$ROOT/var/lib/kubelet\"
         ln -s /e/containerd \"$ROOT/var/lib/containerd\"",
    );
    let agent = agent(&disks, "rise=1");
    passes(&agent);
    leave(&disks, 12);
    fails(&agent, "DiskPressure: /var/lib/containerd: 12 % of bytes free, needs 15 %");
    leave(&disks, 5);
    let body = agent
        .wait_fails_with("disk_pressure", "DiskPressure: /var/lib/containerd: 5 % of bytes free, needs 15 %")
        .body;
    assert_eq!(body.matches("% of bytes").count(), 1, "{body}");
    leave(&disks, 30);
    passes(&agent);
}

#[test]
fn a_full_squashfs_root_passes_disk_pressure() {
    let disks = Disks::start(
        "mkdir -p \"$ROOT/.tree/var\" \"$ROOT/os\"
         head -c 1M /dev/urandom >\"$ROOT/.tree/file\"
         mksquashfs \"$ROOT/.tree\" \"$ROOT/.os.img\" -quiet -no-progress >/dev/null
         mount -o loop \"$ROOT/.os.img\" \"$ROOT/os\"
         ext4 rw e
         mkdir -p \"$ROOT/e/lib/kubelet\"
         mount --move \"$ROOT/e\" \"$ROOT/os/var\"",
    );
    let agent = disks.agent_of(
        "/os",
        &["--background-checks=disk_pressure", "--check-settings=disk_pressure:interval=100ms"],
    );
    passes(&agent);
    disks.run("head -c 1G /dev/zero >\"$ROOT/os/var/fill\" 2>/dev/null || true");
    fails(&agent, "DiskPressure: /var/lib/kubelet: 0 % of bytes free, needs 10 %");
    disks.run("rm \"$ROOT/os/var/fill\"");
    passes(&agent);
}

#[test]
fn a_filesystem_without_inode_counts_is_judged_by_bytes_alone() {
    let disks = Disks::start(
        "mkdir \"$ROOT/t\"
         mount -t tmpfs -o size=1m,nr_inodes=0 nodegate-test \"$ROOT/t\"
         [ \"$(stat -f -c %c \"$ROOT/t\")\" = 0 ]",
    );
    let agent = agent(&disks, "paths=/t");
    passes(&agent);
    disks.run("head -c 2M /dev/zero >\"$ROOT/t/fill\" 2>/dev/null || true");
    fails(&agent, "DiskPressure: /t: 0 % of bytes free, needs 10 %");
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
fn a_full_disk_that_is_mounted_read_only_passes() {
    let disks = Disks::start("ext4 rw e");
    let agent = agent(&disks, "paths=/e");
    leave(&disks, 1);
    fails(&agent, "DiskPressure: /e: 1 % of bytes free, needs 10 %");
    disks.run("mount -o remount,ro \"$ROOT/e\"");
    passes(&agent);
}

#[test]
fn disk_pressure_fails_without_a_disk() {
    let disks = Disks::start(":");
    let agent = agent(&disks, "paths=/none:/nor/this");
    agent.wait_fails_with(
        "disk_pressure",
        "NothingToMeasure: none of the paths is on a disk; is --host-root=",
    );
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

/// Asserts the number of the check's threads that stay. Others come and go with each run.
fn assert_stuck(agent: &Agent, wanted: usize) {
    let begun = Instant::now();
    let mut stuck = threads_named(agent.pid(), "disk_pressure");
    while begun.elapsed() < LOOKED_FOR || stuck.len() > wanted && begun.elapsed() < SEEN_FOR {
        std::thread::sleep(Duration::from_millis(2));
        let now = threads_named(agent.pid(), "disk_pressure");
        stuck.retain(|thread| now.contains(thread));
    }
    assert_eq!(stuck.len(), wanted, "{stuck:?}");
}

/// Starts an agent whose filesystems have 1.5 s for an answer, with a second check.
fn agent_that_waits(disks: &Disks, settings: &str) -> Agent {
    disks.agent(&[
        "--background-checks=disk_pressure,filesystem_ro",
        &format!("--check-settings=disk_pressure:interval=100ms,timeout=2s,{settings}"),
        "--check-settings=filesystem_ro:interval=100ms,paths=/e",
    ])
}

#[test]
fn a_hung_mount_blocks_one_thread_and_no_other_check() {
    let mut disks = Disks::start(
        "ext4 rw e
         mkdir -p \"$ROOT/from/a\" \"$ROOT/from/b\" \"$ROOT/hangs\"
         ln -s /hangs/a \"$ROOT/link\"",
    );
    let server = disks.serve("/from", "/hangs");
    let agent = agent_that_waits(&disks, "paths=/hangs:/hangs/a:/hangs/b:/link:/e");
    passes(&agent);
    assert_stuck(&agent, 0);

    // Declared here so that it drops after `stopped`, also if the test fails.
    let late;
    let stopped = StoppedProcess::new(server);
    // The reason names any of the places on it: the current run may have come that far.
    fails(&agent, "NotMeasured: /");
    let names_a_place_on_it = |body: &str, reason: &str| {
        ["/hangs", "/link"].iter().any(|place| body.contains(&format!("\"{reason}: {place}")))
    };
    // Many runs; a leak would leave up to four threads behind in each.
    for _ in 0..5 {
        agent.wait_runs("disk_pressure", 10);
        let body = agent.wait_fails_with("disk_pressure", ": Hung for ").body;
        assert!(names_a_place_on_it(&body, "NotMeasured") && !body.contains("; "), "{body}");
        assert_stuck(&agent, 1);
    }
    assert!(agent.logged("Timeout after ") > 0, "{}", agent.log_text());
    agent.wait_passes("filesystem_ro");
    leave(&disks, 5);
    let body = agent.wait_fails_with("disk_pressure", "; /e: 5 % of bytes free, needs 10 %").body;
    assert!(names_a_place_on_it(&body, "DiskPressure") && body.contains(": Hung for "), "{body}");
    assert_eq!(agent.get("/livez").status, 200);

    late = agent_that_waits(&disks, "paths=/hangs/a:/hangs/b:/e,limits=/e=0%/0%");
    fails(&late, "NotMeasured: /hangs/a: Hung for ");
    // It started while the mount hung already.
    assert_stuck(&late, 1);

    drop(stopped);
    passes(&late);
    disks.run("rm \"$ROOT/e/fill\"");
    passes(&agent);
    assert_stuck(&agent, 0);
}
