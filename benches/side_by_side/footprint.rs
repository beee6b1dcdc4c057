//! The cost of a whole agent besides its answers: when idle, and after a large number of probes.

use crate::Failure;
use crate::load::{Connections, End, Load};
use crate::peer::{Kind, Peer};
use nodegate_testbed::cluster::Cluster;
use nodegate_testbed::process::{self, MemoryUsage};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The number of times that each half of the probes alternates between new and kept connections. The heap
/// reaches its size after some of them.
const TURNS: u64 = 5;

/// The lengths and the numbers of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) settle: Duration,
    pub(crate) idle: Duration,
    pub(crate) probes: u64,
}

#[derive(Debug)]
pub(crate) struct Footprint {
    pub(crate) wakeups_per_second: f64,
    pub(crate) idle: MemoryUsage,
    /// The memory after half of the probes.
    pub(crate) warm: MemoryUsage,
    pub(crate) probes: u64,
    /// The memory after all probes.
    pub(crate) after: MemoryUsage,
}

/// Measures a new agent.
pub(crate) fn measure(cluster: &Cluster, nodegate: &Path, plan: Plan) -> Result<Footprint, Failure> {
    let agent = Peer::start(Kind::Nodegate, cluster, nodegate)?;
    thread::sleep(plan.settle);
    let (before, started) = (process::sleeps(agent.pid()), Instant::now());
    thread::sleep(plan.idle);
    let woken = process::sleeps(agent.pid()) - before;
    #[expect(clippy::cast_precision_loss, reason = "a few a second")]
    let wakeups_per_second = woken as f64 / started.elapsed().as_secs_f64();
    let idle = process::memory(agent.pid());

    let half = || {
        for _ in 0..TURNS {
            ask(&agent, plan.probes / 2 / TURNS)?;
        }
        Ok::<_, Failure>(process::memory(agent.pid()))
    };
    let (warm, after) = (half()?, half()?);
    Ok(Footprint { wakeups_per_second, idle, warm, probes: plan.probes, after })
}

/// Sends half of the probes on new connections and half on kept ones.
fn ask(agent: &Peer, probes: u64) -> Result<(), Failure> {
    for connections in [Connections::New, Connections::Kept] {
        let load = Load { address: agent.address, connections, clients: 64 };
        load.run(End::Requests(probes / 2))?;
    }
    Ok(())
}
