//! `filesystem_ro` on real disks that the real kernel stops writing to.

use crate::check_states::part::{Pace, Part, Says, State};
use crate::host::disks::{Container, Disks};
use nodegate_testbed::Agent;

/// A script that makes ext4 report an error.
const ERROR: &str = "loop=$(device /e); echo nodegate test >\"/sys/fs/ext4/$loop/trigger_fs_error\"";
const MOUNT: &str = "mount -o loop,errors=remount-ro \"$ROOT/.e.img\" \"$ROOT/e\"";
const UNMOUNT: &str = "umount \"$ROOT/e\"";

const NOTHING: Says = Says::Fails("NothingToWatch: no disk under the watched paths; is --host-root=…");

pub(crate) struct Filesystem {
    pace: Pace,
    disks: Disks,
}

impl Part for Filesystem {
    const CHECK: &'static str = "filesystem_ro";
    const PLAYED_WITH: &'static str = "ext4 on a loop device of the running kernel, at `/e`; `paths=/e`. A `stat` that hangs is not played here: no disk of this \
         kernel does that when asked to. `disk_pressure`, which waits for a call in the same way, has one";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: no disk under the paths", |_| (), NOTHING),
        State::new("healthy", |part| part.disks.run(MOUNT), Says::Passes),
        State::new("the kernel finds an error in it, and writes no more", Self::fail, ERROR_FOUND),
        State::new("repaired: `fsck`, and mounted again", Self::repair, Says::Passes),
        State::new("shut down", Self::shut_down, Says::Fails("…: /e (ext4 /dev/loop…")),
        State::new("repaired again", Self::repair, Says::Passes),
        State::new(
            "an operator mounts it read-only",
            Self::remount,
            Says::Fails("RemountedReadOnly: /e (ext4 /dev/loop…"),
        )
        .newcomer(Says::Passes),
        State::new("and writable again", Self::writable, Says::Passes),
        State::new("removed: unmounted", |part| part.disks.run(UNMOUNT), NOTHING),
    ];

    fn start(pace: Pace) -> Self {
        let disks = Disks::start("ext4 errors=remount-ro e; umount \"$ROOT/e\"");
        Self { pace, disks }
    }

    fn agent(&self) -> Agent {
        let settings = format!("--check-settings=filesystem_ro:paths=/e,{}", self.pace.settings());
        self.disks.agent(&["--background-checks=filesystem_ro", &settings])
    }
}

const ERROR_FOUND: Says = Says::Fails("FilesystemError: /e (ext4 /dev/loop…");

impl Filesystem {
    fn fail(&mut self) {
        self.disks.run(ERROR);
    }

    fn repair(&mut self) {
        self.disks.run(&format!(
            "{UNMOUNT}; fsck.ext4 -fy \"$ROOT/.e.img\" >/dev/null 2>&1 || [ $? -lt 4 ]; {MOUNT}"
        ));
    }

    fn shut_down(&mut self) {
        self.disks.run("xfs_io -x -c shutdown \"$ROOT/e\"");
    }

    fn remount(&mut self) {
        self.disks.run("mount -o remount,ro \"$ROOT/e\"");
    }

    fn writable(&mut self) {
        self.disks.run("mount -o remount,rw \"$ROOT/e\"");
    }
}

/// Disks beside an agent that does not see the host.
pub(crate) struct Unseen(Pace, Disks);

impl Part for Unseen {
    const CHECK: &'static str = "filesystem_ro";
    const TITLE: &'static str = "filesystem_ro, of an agent in a container that does not see the host";
    const PLAYED_WITH: &'static str = "a root of its own for the agent, on ext4";
    const STATES: &'static [State<Self>] = &[State::new(
        "absent: nothing is mounted at `--host-root`",
        |_| (),
        Says::Fails("HostNotMounted: the host's / is not at --host-root=/"),
    )];

    fn start(pace: Pace) -> Self {
        Self(pace, Disks::start("ext4 rw e 256M"))
    }

    fn agent(&self) -> Agent {
        let settings = format!("--check-settings=filesystem_ro:{}", self.0.settings());
        self.1.agent_in_container(
            Container::OfItsOwn,
            "/e",
            &["--background-checks=filesystem_ro", &settings],
        )
    }
}
