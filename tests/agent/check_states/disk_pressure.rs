//! `disk_pressure` on real disks that are filled, and on one that hangs.

use crate::check_states::part::{Pace, Part, Says, State};
use crate::host::disks::{Container, Disks};
use nodegate_testbed::Agent;
use nodegate_testbed::process::{Slowed, signal, slow_down};
use std::time::Duration;

const SLOW: Duration = Duration::from_secs(2);

const NOTHING: Says = Says::Fails("NothingToMeasure: none of the paths is on a disk; is --host-root=…");
const LITTLE: Says = Says::Fails("DiskPressure: /e: 5 % of bytes free, needs 10 % (kubelet's default)");

pub(crate) struct Disk {
    pace: Pace,
    disks: Disks,
}

impl Part for Disk {
    const CHECK: &'static str = "disk_pressure";
    const PLAYED_WITH: &'static str = "ext4 on a loop device of the running kernel, at `/e`; `paths=/e`";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: none of the paths exists", |_| (), NOTHING),
        State::new("healthy", |disk| disk.disks.run("ext4 rw e 64M '-N 128'"), Says::Passes),
        State::new("5 % of its bytes are free", Self::fill, LITTLE),
        State::new("emptied", |disk| disk.disks.run("rm \"$ROOT/e/fill\""), Says::Passes),
        State::new(
            "no inode is free",
            Self::fill_inodes,
            Says::Fails("DiskPressure: /e: 0 % of inodes free, needs 5 % (kubelet's default)"),
        ),
        State::new("emptied again", |disk| disk.disks.run("rm -r \"$ROOT/e/many\""), Says::Passes),
        State::new("5 % of its bytes are free again", Self::fill, LITTLE),
        State::new("and it is mounted read-only: not its matter", Self::read_only, Says::Passes),
        State::new("removed: unmounted, and its directory", Self::remove, NOTHING),
    ];

    fn start(pace: Pace) -> Self {
        Self { pace, disks: Disks::start(":") }
    }

    fn agent(&self) -> Agent {
        agent(&self.disks, "/e", self.pace)
    }
}

fn agent(disks: &Disks, paths: &str, pace: Pace) -> Agent {
    let settings = format!("--check-settings=disk_pressure:paths={paths},{}", pace.settings());
    disks.agent(&["--background-checks=disk_pressure", &settings])
}

impl Disk {
    fn fill(&mut self) {
        self.disks.run(
            "set -- $(stat -f -c '%b %a %S' \"$ROOT/e\")
             fallocate -l \"$(( ($1 * 945 / 1000 - ($1 - $2)) * $3 ))\" \"$ROOT/e/fill\"",
        );
    }

    fn fill_inodes(&mut self) {
        self.disks.run(
            "mkdir \"$ROOT/e/many\"
             n=0
             while [ $n -lt 1000 ] && touch \"$ROOT/e/many/$n\" 2>/dev/null; do n=$((n + 1)); done
             [ $n -lt 1000 ]",
        );
    }

    fn read_only(&mut self) {
        self.disks.run("mount -o remount,ro \"$ROOT/e\"");
    }

    fn remove(&mut self) {
        self.disks.run("umount \"$ROOT/e\"; rmdir \"$ROOT/e\"");
    }
}

/// A filesystem whose server hangs, as an NFS server does.
pub(crate) struct Served {
    pace: Pace,
    slowed: Option<Slowed>,
    server: u32,
    disks: Disks,
}

impl Part for Served {
    const CHECK: &'static str = "disk_pressure";
    const TITLE: &'static str = "disk_pressure, of a filesystem that a server keeps";
    const PLAYED_WITH: &'static str =
        "FUSE (bindfs): a call to it waits for its server as one to NFS does; `paths=/served:/e`";
    const STATES: &'static [State<Self>] = &[
        State::new("healthy", |_| (), Says::Passes),
        State::new("slow: takes 2 s", Self::slow, Says::Passes),
        State::new(
            "hung: its server does not answer",
            Self::hang,
            Says::Fails("NotMeasured: /served: Hung for …"),
        )
        .newcomer_at_first(Says::Fails("NotMeasured: /served: Timeout after 3s 750ms"))
        .within(15),
        State::new("goes on", |served| signal(served.server, "CONT"), Says::Passes),
        State::new(
            "its server is killed",
            Self::kill,
            Says::Fails("NotMeasured: /served: Transport endpoint is not connected …"),
        ),
    ];

    fn start(pace: Pace) -> Self {
        let mut disks = Disks::start("ext4 rw e; mkdir -p \"$ROOT/from\" \"$ROOT/served\"");
        let server = disks.serve("/from", "/served");
        Self { pace, slowed: None, server, disks }
    }

    fn agent(&self) -> Agent {
        agent(&self.disks, "/served:/e", self.pace)
    }
}

impl Served {
    fn slow(&mut self) {
        self.slowed = Some(slow_down(self.server, self.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.slowed = None;
        signal(self.server, "STOP");
    }

    fn kill(&mut self) {
        signal(self.server, "KILL");
    }
}

/// Disks beside an agent that does not see the host.
pub(crate) struct Unseen(Pace, Disks);

impl Part for Unseen {
    const CHECK: &'static str = "disk_pressure";
    const TITLE: &'static str = "disk_pressure, of an agent in a container that does not see the host";
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
        let settings = format!("--check-settings=disk_pressure:{}", self.0.settings());
        self.1.agent_in_container(
            Container::OfItsOwn,
            "/e",
            &["--background-checks=disk_pressure", &settings],
        )
    }
}
