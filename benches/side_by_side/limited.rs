//! An agent with the CPU limit of the manifests. Balancers ask it, clients flood it, and its node is
//! cordoned.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::flips::{self, Flips};
use crate::latencies::Latencies;
use crate::load::{Connections, Prober};
use crate::peer::{Kind, Peer, Programs};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The period and quota of `limits.cpu` in manifests/install.yaml: 100m.
const PERIOD_US: u32 = 100_000;
const QUOTA_US: u32 = 10_000;

const FLOODING: usize = 64;
/// The number of balancers. Each asks twice a second, as HAProxy does with `inter 500`.
const BALANCERS: u32 = 10;
const EVERY: Duration = Duration::from_millis(500);
/// The interval of the prober that watches for flips. It adds little to the flood and is short enough to time
/// a flip.
const FLIP_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Limited {
    pub(crate) balancers: Latencies,
    pub(crate) flips: Flips,
}

/// Cordons and uncordons the node `times` times under load.
pub(crate) fn measure(cluster: &Cluster, programs: Programs<'_>, times: u32) -> Result<Limited, Failure> {
    let agent = Peer::start(Kind::Nodegate, cluster, programs)?;
    let _group = Group::of(&agent)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..FLOODING {
            scope.spawn(|| flood(&agent, &stop));
        }
        let (asked, stopped) = (&agent, &stop);
        let ask = |number| scope.spawn(move || ask(asked, EVERY / BALANCERS * number, stopped));
        let asking: Vec<_> = (0..BALANCERS).map(ask).collect();
        let flips = flips::measure(cluster, &agent, FLIP_EVERY, times);
        stop.store(true, Ordering::Relaxed);
        let latencies =
            asking.into_iter().map(|asking| asking.join().map_err(|_| "a balancer panicked".into()));
        let balancers =
            latencies.collect::<Result<Vec<_>, Failure>>()?.into_iter().collect::<io::Result<_>>()?;
        Ok(Limited { balancers, flips: flips? })
    })
}

/// Sends probes without a pause, and ignores the answers.
fn flood(agent: &Peer, stop: &AtomicBool) {
    let mut prober = Prober::new(agent.address, Connections::New);
    while !stop.load(Ordering::Relaxed) {
        let _ = prober.probe();
    }
}

fn ask(agent: &Peer, begin: Duration, stop: &AtomicBool) -> io::Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut prober = Prober::new(agent.address, Connections::NewWithState);
    thread::sleep(begin);
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        prober.probe()?;
        latencies.add(asked.elapsed());
        thread::sleep(EVERY.saturating_sub(asked.elapsed()));
    }
    Ok(latencies)
}

/// A cgroup with its own CPU limit. Drop moves its processes out and removes it.
struct Group(PathBuf);

impl Group {
    fn of(peer: &Peer) -> Result<Self, Failure> {
        let unified = PathBuf::from("/sys/fs/cgroup");
        let name = format!("nodegate-bench-{}", std::process::id());
        let group = if fs::read_to_string(unified.join("cgroup.controllers")).is_ok() {
            fs::write(unified.join("cgroup.subtree_control"), "+cpu")?;
            let group = Self(unified.join(name));
            fs::create_dir(&group.0)?;
            fs::write(group.0.join("cpu.max"), format!("{QUOTA_US} {PERIOD_US}"))?;
            group
        } else {
            let group = Self(unified.join("cpu").join(name));
            fs::create_dir(&group.0)?;
            fs::write(group.0.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(group.0.join("cpu.cfs_quota_us"), QUOTA_US.to_string())?;
            group
        };
        fs::write(group.0.join("cgroup.procs"), peer.pid().to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel refuses to remove a cgroup with processes in it. They move to the parent cgroup.
        let parent = self.0.parent().map(|parent| parent.join("cgroup.procs"));
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            let _ = parent.as_ref().map(|parent| fs::write(parent, pid));
        }
        let _ = fs::remove_dir(&self.0);
    }
}
