//! A host with its own filesystems on loop devices, in a private mount namespace. Needs root.

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
pub(crate) struct Disks {
    root: PathBuf,
    holder: Child,
    /// The input of the process that holds the namespace. That process ends with this process in any case.
    _input: ChildStdin,
}

impl Disks {
    pub(crate) fn start(script: &str) -> Self {
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
    pub(crate) fn run(&self, script: &str) {
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

    /// Starts the agent in a container whose root is this directory of the host, which holds nothing else.
    pub(crate) fn agent_in_container(&self, kind: Container, root: &str, args: &[&str]) -> Agent {
        self.run(&format!(
            "[ ! -e \"$ROOT{root}/nodegate\" ] || exit 0
             cp \"$ROOT/.nodegate\" \"$ROOT{root}/nodegate\"
             mkdir -p \"$ROOT{root}/proc\"
             for file in $(ldd \"$ROOT/.nodegate\" | grep -o '/[^ ]*'); do
               mkdir -p \"$ROOT{root}/${{file%/*}}\"; cp -L \"$file\" \"$ROOT{root}/$file\"
             done"
        ));
        let directory = format!("--root={}{root}", self.root.display());
        let mut words = vec!["unshare", &directory];
        match kind {
            Container::OfItsOwn => words.extend(["--pid", "--fork", "--kill-child", "--mount-proc"]),
            Container::WithOthers => self.run(&format!("mount -t proc proc \"$ROOT{root}/proc\"")),
        }
        let mut command = self.inside(&words);
        command.arg("/nodegate").args(args);
        Agent::launch_alone(command)
    }

    /// Starts the agent without any privilege, with this directory as the host's root.
    pub(crate) fn agent_of(&self, root: &str, args: &[&str]) -> Agent {
        let user = [format!("--setuid={UID}"), format!("--setgid={UID}")];
        let program = self.root.join(".nodegate");
        let mut command = self.inside(&[&user[0], &user[1], "--", program.to_str().unwrap()]);
        command.arg(format!("--host-root={}{root}", self.root.display())).args(args);
        Agent::launch_alone(command)
    }
}

/// The first process that a container sees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Container {
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
