//! An agent on a simulated cluster, a prober that behaves well, and what must be so in the end.

use super::prober::Prober;
use nodegate_testbed::agent::Agent;
use nodegate_testbed::cluster::{Cluster, NODE};
use nodegate_testbed::poll::until;
use std::net::{SocketAddr, TcpStream};

/// A hostile client may not cost more memory than this, in KiB. 1,024 connections with half a request each take 23 MiB.
const ROOM: u64 = 40 * 1024;

/// How many connections are opened between two rounds of the prober, 20 ms: a quarter of what the agent holds.
const BURST: usize = 250;

/// A story of seconds in which nothing of the agent's own happens. Its start takes some ten lines.
const LINES: usize = 40;

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) agent: Agent,
    name: &'static str,
    prober: Prober,
    before: Usage,
    most: Usage,
}

/// What the agent takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Anonymous resident memory, in KiB.
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
}

impl Usage {
    fn of(agent: &Agent) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count();
        Self { memory: line.trim().trim_end_matches(" kB").parse().unwrap(), descriptors }
    }
}

impl Scene {
    /// Starts all three, and lets the prober settle.
    pub(crate) fn begin(name: &'static str, args: &[&str]) -> Self {
        let cluster = Cluster::start();
        let agent = Agent::start(NODE, &cluster.kubeconfig(), args);
        agent.wait_ready();
        let prober = Prober::start(agent.address());
        until("some probes", || (prober.rounds() > 5).then_some(()));
        let before = Usage::of(&agent);
        Self { cluster, agent, name, prober, before, most: before }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.agent.address()
    }

    /// Looks what the agent takes now; the most is reported.
    pub(crate) fn look(&mut self) -> Usage {
        let now = Usage::of(&self.agent);
        self.most.memory = self.most.memory.max(now.memory);
        self.most.descriptors = self.most.descriptors.max(now.descriptors);
        now
    }

    /// Opens many connections, each by `open`, as fast as the prober allows: a balancer must be able to say what it wants
    /// before a thousand others have come after it, however busy this machine is.
    pub(crate) fn flood(&self, count: usize, mut open: impl FnMut() -> TcpStream) -> Vec<TcpStream> {
        let mut streams = Vec::with_capacity(count);
        while streams.len() < count {
            let rounds = self.prober.rounds();
            streams.extend((streams.len()..count).take(BURST).map(|_| open()));
            until("the prober's next round", || (self.prober.rounds() > rounds).then_some(()));
        }
        streams
    }

    /// Lets the prober ask for a while.
    pub(crate) fn probe_on(&self) {
        let rounds = self.prober.rounds();
        until("more probes", || (self.prober.rounds() > rounds + 10).then_some(()));
    }

    /// Ends it: the prober saw nothing wrong, its kept connection was never closed, and the agent is as it was before.
    pub(crate) fn end(mut self) {
        self.probe_on();
        self.look();
        let tally = self.prober.end();
        let (before, most) = (self.before, self.most);
        eprintln!(
            "{}: {} probes on new connections and {} on a kept one right, {} wrong, kept one lost {} times, slowest {:?}; \
             memory {} -> {} KiB, descriptors {} -> {}",
            self.name,
            tally.new,
            tally.kept,
            tally.wrong.len(),
            tally.lost,
            tally.slowest,
            before.memory,
            most.memory,
            before.descriptors,
            most.descriptors,
        );
        let log = self.agent.log_text();
        assert!(tally.wrong.is_empty(), "{}: {:#?}\n{log}", self.name, tally.wrong);
        assert_eq!(tally.lost, 0, "{}: the kept connection was closed", self.name);
        assert!(tally.new >= 15 && tally.kept >= 15, "{}: {tally:?}", self.name);
        assert_eq!(self.agent.get("/livez").status, 200);
        assert!(!log.contains("panicked") && log.lines().count() <= LINES, "{}: {log}", self.name);
        assert!(most.memory <= before.memory + ROOM, "{}: {before:?} {most:?}", self.name);
        until("the descriptors to come back", || {
            (Usage::of(&self.agent).descriptors <= self.before.descriptors).then_some(())
        });
    }
}
