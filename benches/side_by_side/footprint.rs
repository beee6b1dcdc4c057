//! What a whole agent costs, beside its answers: to start, to be idle, and after very many probes.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::latencies::Latencies;
use crate::load::{Connections, End, Load, Prober};
use crate::peer::Peer;
use nodegate_testbed::process::{self, MemoryUsage};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long and how often to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) starts: u32,
    pub(crate) settle: Duration,
    pub(crate) idle: Duration,
    pub(crate) probes: u64,
}

#[derive(Debug)]
pub(crate) struct Footprint {
    /// From the start of the process to the first answer that is not stale.
    pub(crate) first_answer: Latencies,
    pub(crate) wakeups_per_second: f64,
    pub(crate) idle: MemoryUsage,
    /// After a tenth of the probes.
    pub(crate) warm: MemoryUsage,
    pub(crate) probes: u64,
    /// After all of them.
    pub(crate) after: MemoryUsage,
    /// With as many kept connections as the agent takes.
    pub(crate) crowded: MemoryUsage,
}

/// The agent's limit of connections unless it is told another.
pub(crate) const CROWD: usize = 1024;

/// Follows agents from their start on; the last one through everything.
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

/// Half of the probes on new connections, half on kept ones.
fn ask(agent: &Peer, probes: u64) -> Result<(), Failure> {
    for connections in [Connections::New, Connections::Kept] {
        let load = Load { address: agent.address, connections, clients: 64, rate: None };
        load.run(End::Requests(probes / 2))?;
    }
    Ok(())
}
