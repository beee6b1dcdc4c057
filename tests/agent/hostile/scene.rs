//! An agent on a simulated cluster, a well-behaved balancer, and the assertions at the end of an attack.

use super::balancer::Balancer;
use nodegate_testbed::process;
use nodegate_testbed::{Agent, Cluster, until};
use std::net::{SocketAddr, TcpStream};

/// The most memory that a hostile client may cost, in KiB. 1,024 connections with half a request each take 23
/// MiB.
const ROOM: u64 = 40 * 1024;

/// The number of connections that a flood opens between two of the balancer's probes, 20 ms: a quarter of the
/// agent's capacity.
const BURST: usize = 250;

/// The most log lines of an attack, which takes seconds and causes no event of the agent's own. The start
/// takes some ten lines.
const LINES: usize = 40;

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) agent: Agent,
    name: &'static str,
    balancer: Balancer,
    before: Usage,
    most: Usage,
}

/// The agent's use of resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// The anonymous resident memory, in KiB.
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
}

impl Usage {
    fn of(agent: &Agent) -> Self {
        let pid = agent.pid();
        Self { memory: process::memory(pid).anonymous, descriptors: process::descriptors(pid) }
    }
}

impl Scene {
    /// Starts the cluster, the agent and the balancer, and waits until the balancer has settled.
    pub(crate) fn begin(name: &'static str, args: &[&str]) -> Self {
        let cluster = Cluster::start();
        let agent = cluster.ready_agent(args);
        let balancer = Balancer::start(agent.address());
        balancer.wait(6);
        let before = Usage::of(&agent);
        Self { cluster, agent, name, balancer, before, most: before }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.agent.address()
    }

    /// Measures the agent's current usage; the test reports the peak.
    pub(crate) fn look(&mut self) -> Usage {
        let now = Usage::of(&self.agent);
        self.most.memory = self.most.memory.max(now.memory);
        self.most.descriptors = self.most.descriptors.max(now.descriptors);
        now
    }

    /// Opens `count` connections with `open`, as fast as the balancer allows. However busy this machine is, a
    /// balancer must be able to send its request before a thousand other connections have come after it.
    pub(crate) fn flood(&self, count: usize, mut open: impl FnMut() -> TcpStream) -> Vec<TcpStream> {
        let mut streams = Vec::with_capacity(count);
        while streams.len() < count {
            streams.extend((streams.len()..count).take(BURST).map(|_| open()));
            self.balancer.wait(1);
        }
        streams
    }

    /// Lets the balancer probe for a while.
    pub(crate) fn probe_on(&self) {
        self.balancer.wait(11);
    }

    /// Ends the attack and asserts that the balancer saw no wrong answer, that its kept connection was never
    /// closed, and that the agent's resources are back to normal.
    pub(crate) fn end(mut self) {
        self.probe_on();
        self.look();
        let (seen, before, most, name) = (self.balancer.end(), self.before, self.most, self.name);
        eprintln!(
            "{name}: {} probes on new connections and {} on a kept one right, {} wrong, kept one lost {} times, slowest {:?}; \
             memory {} -> {} KiB, descriptors {} -> {}",
            seen.new,
            seen.kept,
            seen.wrong.len(),
            seen.lost,
            seen.slowest,
            before.memory,
            most.memory,
            before.descriptors,
            most.descriptors,
        );
        let log = self.agent.log_text();
        assert!(seen.wrong.is_empty(), "{name}: {:#?}\n{log}", seen.wrong);
        assert_eq!(seen.lost, 0, "{name}: the kept connection was closed");
        assert!(seen.new >= 15 && seen.kept >= 15, "{name}: {seen:?}");
        assert_eq!(self.agent.get("/livez").status, 200);
        assert!(!log.contains("panicked") && log.lines().count() <= LINES, "{name}: {log}");
        assert!(most.memory <= before.memory + ROOM, "{name}: {before:?} {most:?}");
        until("the descriptors to come back", || {
            (Usage::of(&self.agent).descriptors <= self.before.descriptors).then_some(())
        });
    }
}
