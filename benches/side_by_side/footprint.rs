//! The cost of a whole agent besides its answers: at its start, when idle, and after a large number of
//! probes.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::latencies::Latencies;
use crate::load::{Connections, End, Load, Prober};
use crate::peer::Peer;
use nodegate_testbed::process::{self, MemoryUsage};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The lengths and the numbers of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) starts: u32,
    pub(crate) settle: Duration,
    pub(crate) idle: Duration,
    pub(crate) probes: u64,
}

#[derive(Debug)]
pub(crate) struct Footprint {
    /// The time from the start of the process to the first answer that is not stale.
    pub(crate) first_answer: Latencies,
    pub(crate) wakeups_per_second: f64,
    pub(crate) idle: MemoryUsage,
    /// The memory after a tenth of the probes.
    pub(crate) warm: MemoryUsage,
    pub(crate) probes: u64,
    /// The memory after all probes.
    pub(crate) after: MemoryUsage,
    /// The memory with as many kept connections as the agent takes.
    pub(crate) crowded: MemoryUsage,
}

/// The agent's default limit of connections.
pub(crate) const CROWD: usize = 1024;

/// Measures the starts of several agents, and everything else with the last of them.
pub(crate) fn measure(cluster: &Cluster, nodegate: &Path, plan: Plan) -> Result<Footprint, Failure> {
    let mut first_answer = Latencies::default();
    for _ in 1..plan.starts {
        first_answer.add(Peer::first_answer(cluster, nodegate)?.1);
    }
    let (agent, took) = Peer::first_answer(cluster, nodegate)?;
    first_answer.add(took);

    thread::sleep(plan.settle);
    let (before, started) = (process::sleeps(agent.pid()), Instant::now());
    thread::sleep(plan.idle);
    let woken = process::sleeps(agent.pid()) - before;
    #[expect(clippy::cast_precision_loss, reason = "a few a second")]
    let wakeups_per_second = woken as f64 / started.elapsed().as_secs_f64();
    let idle = process::memory(agent.pid());

    ask(&agent, plan.probes / 10)?;
    let warm = process::memory(agent.pid());
    ask(&agent, plan.probes - plan.probes / 10)?;
    let after = process::memory(agent.pid());

    let mut crowd: Vec<_> = (0..CROWD).map(|_| Prober::new(agent.address, Connections::Kept)).collect();
    for prober in &mut crowd {
        prober.probe()?;
    }
    let crowded = process::memory(agent.pid());
    Ok(Footprint { first_answer, wakeups_per_second, idle, warm, probes: plan.probes, after, crowded })
}

/// Sends half of the probes on new connections and half on kept ones.
fn ask(agent: &Peer, probes: u64) -> Result<(), Failure> {
    for connections in [Connections::New, Connections::Kept] {
        let load = Load { address: agent.address, connections, clients: 64, rate: None };
        load.run(End::Requests(probes / 2))?;
    }
    Ok(())
}
