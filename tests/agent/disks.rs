//! The checks `filesystem_ro` and `disk_pressure` of the real agent, without privileges, on a host with its own filesystems
//! on loop devices, in a private mount namespace. Needs root.

// Nothing of it is visible from outside, and nothing can be deleted through it. For the test and for all
// other processes of this machine, the host's root is an empty directory. In the namespace, it is a tmpfs
// that holds all images and mount points. The tmpfs goes with the last process of the namespace. So do the
// loop devices, which detach themselves when they are unmounted. No directory of this machine is ever
// mounted into the namespace.

use nodegate_testbed::agent::Agent;
use nodegate_testbed::programs::{self, needs_root};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The user id of the agent in a cluster: manifests/install.yaml.
const UID: &str = "65521";

/// The start of each script: it exits unless it is in a namespace of its own.
const GUARD: &str = "\
PATH=/usr/sbin:/sbin:/usr/bin:/bin
[ -n \"$OUTSIDE\" ] && [ \"$(readlink /proc/self/ns/mnt)\" != \"$OUTSIDE\" ] || { echo 'not in a namespace of its own' >&2; exit 1; }
cd /
";

/// The script that makes the root and keeps the namespace alive until its input ends.
const HOLD: &str = "\
mount -t tmpfs -o size=2g,mode=755 nodegate-test \"$ROOT\"
cp \"$PROGRAM\" \"$ROOT/.nodegate\"
echo ready
exec cat";

/// The functions for scripts. A device always has its blocks in the test's own tmpfs.
const WORDS: &str = "\
device() {
  found=$(findmnt --noheadings --first-only --output SOURCE --mountpoint \"$ROOT$1\")
  case \"$found\" in /dev/loop[0-9]*) ;; *) echo \"$1 is on '$found'\" >&2; exit 1;; esac
  back=$(losetup --noheadings --output BACK-FILE \"$found\")
  case \"$back\" in \"$ROOT\"/.*.img) ;; *) echo \"$found is '$back'\" >&2; exit 1;; esac
  echo \"${found#/dev/}\"
}
ext4() {
  truncate -s \"${3:-64M}\" \"$ROOT/.$2.img\"
  mkfs.ext4 -q -m 0 ${4:-} \"$ROOT/.$2.img\"
  mkdir -p \"$ROOT/$2\"
  mount -o \"loop,$1\" \"$ROOT/.$2.img\" \"$ROOT/$2\"
}
";

/// The host. Drop removes it; drop agents that run on it first.
struct Disks {
    root: PathBuf,
    holder: Child,
    /// The input of the process that holds the namespace. That process ends with this process in any case.
    _input: ChildStdin,
}

impl Disks {
    fn start(script: &str) -> Self {
        needs_root("filesystems that are mounted where no other process sees them");
        let root = tempfile::Builder::new().prefix("nodegate-disks").tempdir().unwrap();
        // The directory is kept: from here on, it is removed as an empty directory or not at all.
        let root = root.keep().canonicalize().unwrap();
        std::fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", &format!("{GUARD}{HOLD}")]);
        command.env("PROGRAM", programs::agent());
        let command = environment(&mut command, &root).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("unshare starts");
        let input = holder.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let disks = Self { root, holder, _input: input };
        assert_eq!(line.trim(), "ready", "no namespace of its own; see above");
        disks.run(script);
        disks
    }

    /// Runs a shell script on the host. `$ROOT` is the host's root.
    fn run(&self, script: &str) {
        let mut command = self.inside(&["sh", "-euc", &format!("{GUARD}{WORDS}{script}")]);
        let status = command.stdin(Stdio::null()).status().unwrap();
        assert!(status.success(), "{script}");
    }

    /// Returns a program that will run in the namespace, in place of the started process.
    fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).args(words);
        environment(&mut command, &self.root);
        command
    }

    /// Starts the agent in a container whose root is `/e` of the host, which holds nothing else.
    fn agent_in_container(&self, kind: Container, args: &[&str]) -> Agent {
        self.run(
            "[ ! -e \"$ROOT/e/nodegate\" ] || exit 0
             cp \"$ROOT/.nodegate\" \"$ROOT/e/nodegate\"
             mkdir -p \"$ROOT/e/proc\"
             for file in $(ldd \"$ROOT/.nodegate\" | grep -o '/[^ ]*'); do
               mkdir -p \"$ROOT/e/${file%/*}\"; cp -L \"$file\" \"$ROOT/e/$file\"
             done",
        );
        let directory = format!("--root={}/e", self.root.display());
        let mut words = vec!["unshare", &directory];
        match kind {
            Container::OfItsOwn => words.extend(["--pid", "--fork", "--kill-child", "--mount-proc"]),
            Container::WithOthers => self.run("mount -t proc proc \"$ROOT/e/proc\""),
        }
        let mut command = self.inside(&words);
        command.arg("/nodegate").args(args);
        Agent::launch_alone(command)
    }

    /// Starts the agent without any privilege, with the check of these settings.
    fn agent_of(&self, settings: &str) -> Agent {
        let user = [format!("--setuid={UID}"), format!("--setgid={UID}")];
        let program = self.root.join(".nodegate");
        let mut command = self.inside(&[&user[0], &user[1], "--", program.to_str().unwrap()]);
        let check = settings.split(':').next().unwrap();
        command.arg(format!("--host-root={}", self.root.display()));
        command.args([format!("--background-checks={check}"), format!("--check-settings={settings}")]);
        Agent::launch_alone(command)
    }
}

/// The first process that a container sees.
#[derive(Clone, Copy, Debug)]
enum Container {
    /// It is the agent.
    OfItsOwn,
    /// It belongs to the host (`hostPID`), or to a pod whose containers share it. It has another root.
    WithOthers,
}

fn environment<'a>(command: &'a mut Command, root: &Path) -> &'a mut Command {
    let outside = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    command.env("ROOT", root).env("OUTSIDE", outside)
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // Never remove it recursively: outside of the namespace, the directory has always been empty.
        if let Err(error) = std::fs::remove_dir(&self.root) {
            eprintln!("{}: {error}", self.root.display());
        }
    }
}

const READ_ONLY: &str = "filesystem_ro";
const PRESSURE: &str = "disk_pressure";
const NOTHING: &str = "NoDisk: none of the paths is on a disk; is --host-root=";
const MOUNT: &str = "mount -o loop,errors=remount-ro \"$ROOT/.e.img\" \"$ROOT/e\"";

#[test]
fn a_disk_fails_from_its_error_to_its_repair() {
    let disks = Disks::start("ext4 errors=remount-ro e; umount \"$ROOT/e\"");
    let start = || disks.agent_of("filesystem_ro:paths=/e,interval=200ms");
    let agent = start();
    let fails = |agent: &Agent, reason: &str| {
        agent.wait_fails_with(READ_ONLY, &format!("{reason}: /e (ext4 /dev/loop"));
    };
    let repair = format!(
        "umount \"$ROOT/e\"; fsck.ext4 -fy \"$ROOT/.e.img\" >/dev/null 2>&1 || [ $? -lt 4 ]; {MOUNT}"
    );
    agent.wait_fails_with(READ_ONLY, NOTHING);
    disks.run(MOUNT);
    agent.wait_passes(READ_ONLY);
    disks.run("loop=$(device /e); echo nodegate test >\"/sys/fs/ext4/$loop/trigger_fs_error\"");
    fails(&agent, "FilesystemError");
    fails(&start(), "FilesystemError");
    disks.run(&repair);
    agent.wait_passes(READ_ONLY);
    disks.run("xfs_io -x -c shutdown \"$ROOT/e\"");
    fails(&agent, "");
    disks.run(&repair);
    agent.wait_passes(READ_ONLY);
    disks.run("mount -o remount,ro \"$ROOT/e\"");
    fails(&agent, "RemountedReadOnly");
    // For a new agent it is read-only by design.
    start().wait_passes(READ_ONLY);
    disks.run("mount -o remount,rw \"$ROOT/e\"");
    agent.wait_passes(READ_ONLY);
    disks.run("umount \"$ROOT/e\"");
    agent.wait_fails_with(READ_ONLY, NOTHING);
}

/// Shows that the check recognises a container without the host's root, whatever the runtime uses as the
/// container's root: an overlay, which the mount table shows, or a filesystem of its own.
#[test]
fn a_containers_root_is_not_taken_for_the_hosts_root() {
    let checks = "--background-checks=filesystem_ro,disk_pressure";
    let reason = "HostNotMounted: the host's / is not at --host-root=/";
    let disks = Disks::start("ext4 rw e 256M");
    for kind in [Container::OfItsOwn, Container::WithOthers] {
        let agent = disks.agent_in_container(kind, &[checks]);
        for check in ["filesystem_ro", "disk_pressure"] {
            agent.wait_fails(check, reason);
            agent.logs_once(&format!("local check fails check=\"{check}\""));
        }
    }
    // The check trusts paths that the operator names: they were mounted for the purpose.
    let paths = ["--check-settings=filesystem_ro:paths=/", "--check-settings=disk_pressure:paths=/"];
    let named = disks.agent_in_container(Container::OfItsOwn, &[checks, paths[0], paths[1]]);
    named.wait_passes("filesystem_ro");
    named.wait_passes("disk_pressure");
}

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
    let agent = disks.agent_of("disk_pressure:paths=/e,interval=200ms,timeout=2s");
    agent.wait_fails_with(PRESSURE, NOTHING);
    disks.run("ext4 rw e 64M '-N 128'");
    agent.wait_passes(PRESSURE);
    disks.run(FILL);
    agent.wait_fails(PRESSURE, "DiskPressure: /e: 5 % of bytes free, needs 10 % (kubelet's default)");
    disks.run(&format!("rm \"$ROOT/e/fill\"; {FILL_INODES}"));
    agent.wait_fails(PRESSURE, "DiskPressure: /e: 0 % of inodes free, needs 5 % (kubelet's default)");
    disks.run("rm -r \"$ROOT/e/many\"");
    agent.wait_passes(PRESSURE);
    disks.run(FILL);
    agent.wait_fails_with(PRESSURE, "DiskPressure: /e: 5 % of bytes");
    disks.run("mount -o remount,ro \"$ROOT/e\"");
    agent.wait_passes(PRESSURE);
    disks.run("umount \"$ROOT/e\"; rmdir \"$ROOT/e\"");
    agent.wait_fails_with(PRESSURE, NOTHING);
}
