//! The cost of one agent, for its node and for the API server.

use nodegate_kube_sim::Sim;
use nodegate_testbed::process;
use nodegate_testbed::{Agent, Cluster, NODE, until};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The size of a Node with a hundred images.
const NODE_BYTES: usize = 20_000;
/// The time after the start for the first lists and the first heartbeat.
const SETTLE: Duration = Duration::from_secs(5);
const FLIPS: usize = 20;
/// The overhead of the API server's answer to a GET: the head, and the frames of HTTP/2 and TLS.
const RESPONSE_HEAD: u64 = 250;

/// One agent's figures in a cluster of a certain size.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    pub(crate) nodes: usize,
    pub(crate) time: Duration,
    pub(crate) rss_kib: u64,
    pub(crate) anonymous_kib: u64,
    pub(crate) cpu: Duration,
    pub(crate) wake_ups: u64,
    /// From the API server, in `first_…` until the agent was in sync, and in `bytes` and `requests` within
    /// `time`.
    pub(crate) first_bytes: u64,
    pub(crate) first_requests: u64,
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
    pub(crate) connections: u64,
    pub(crate) watches: u64,
    /// The bytes of one change of the Node, of one renewal of the Lease and of one GET of the Node.
    pub(crate) node_event: u64,
    pub(crate) lease_event: u64,
    pub(crate) get: u64,
    pub(crate) flips: Vec<Duration>,
    /// The writes by the other nodes in `time`.
    pub(crate) others: u64,
}

impl Cost {
    fn minutes(&self) -> f64 {
        self.time.as_secs_f64() / 60.0
    }

    pub(crate) fn bytes_a_minute(&self) -> f64 {
        self.bytes as f64 / self.minutes()
    }

    pub(crate) fn cpu_ms_a_minute(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / self.minutes()
    }

    /// Returns the table of the figures side by side.
    pub(crate) fn table(costs: &[&Self]) -> String {
        type Row = (&'static str, fn(&Cost) -> f64, usize);
        let flip = |cost: &Cost| {
            let mut flips = cost.flips.clone();
            flips.sort_unstable();
            flips.get(flips.len() / 2).map_or(0.0, |flip| flip.as_secs_f64() * 1e3)
        };
        let rows: [Row; 16] = [
            ("nodes", |cost| cost.nodes as f64, 0),
            ("writes by other nodes, a second", |cost| cost.others as f64 / cost.time.as_secs_f64(), 1),
            ("resident memory, KiB", |cost| cost.rss_kib as f64, 0),
            ("of it anonymous, KiB", |cost| cost.anonymous_kib as f64, 0),
            ("processor time, ms a minute", Cost::cpu_ms_a_minute, 1),
            ("wake-ups a second", |cost| cost.wake_ups as f64 / cost.time.as_secs_f64(), 2),
            ("bytes until in step", |cost| cost.first_bytes as f64, 0),
            ("requests until in step", |cost| cost.first_requests as f64, 0),
            ("bytes a minute", Cost::bytes_a_minute, 0),
            ("requests in that time", |cost| cost.requests as f64, 0),
            ("connections", |cost| cost.connections as f64, 0),
            ("watches", |cost| cost.watches as f64, 0),
            ("bytes of a change of the Node", |cost| cost.node_event as f64, 0),
            ("bytes of a renewal of the Lease", |cost| cost.lease_event as f64, 0),
            ("bytes of a GET of the Node", |cost| cost.get as f64, 0),
            ("cordon to 503, ms (median)", flip, 1),
        ];
        let mut text = String::new();
        for (name, value, digits) in rows {
            let _ = write!(text, "  {name:<34}");
            for cost in costs {
                let _ = write!(text, " {:>12.digits$}", value(cost));
            }
            text.push('\n');
        }
        text
    }
}

/// Starts a cluster with the kubelets of the other nodes, whose writes do not reach the agent.
fn cluster(nodes: usize) -> Cluster {
    let others = (1..nodes).map(|number| format!("other-{number}"));
    Cluster::with(|builder| {
        // A controller would write taints, which would double the time of the setup.
        builder.kubelets(true).lifecycle(false).node_bytes(NODE_BYTES).nodes(others)
    })
}

/// Returns the bytes that `act` makes the API server send. They are complete when no more are sent.
fn bytes_of(sim: &Sim, act: impl FnOnce()) -> u64 {
    let before = sim.counters().read().bytes_sent;
    act();
    let mut last = before;
    until("the bytes to be sent", || {
        std::thread::sleep(Duration::from_millis(30));
        let now = sim.counters().read().bytes_sent;
        let rest = now == std::mem::replace(&mut last, now) && now > before;
        rest.then_some(())
    });
    last - before
}

/// Starts an agent in a cluster of this size and measures it for this time.
pub(crate) fn measure(program: &Path, nodes: usize, time: Duration) -> Cost {
    let cluster = cluster(nodes);
    let sim = &cluster.sim;
    sim.counters().reset();
    let agent = cluster.launch(Command::new(program));
    agent.wait_ready();
    until("both watches", || (sim.counters().read().watches == 2).then_some(()));
    let first = sim.counters().read();
    std::thread::sleep(SETTLE);

    let scheduled = || (process::cpu(agent.pid()), process::sleeps(agent.pid()));
    let (version, before, (cpu, wake_ups)) = (sim.version(), sim.counters().read(), scheduled());
    std::thread::sleep(time);
    let (after, (cpu_then, wake_ups_then)) = (sim.counters().read(), scheduled());
    let memory = process::memory(agent.pid());
    let mut cost = Cost {
        nodes,
        time,
        rss_kib: memory.resident,
        anonymous_kib: memory.anonymous,
        cpu: cpu_then.saturating_sub(cpu),
        wake_ups: wake_ups_then - wake_ups,
        first_bytes: first.bytes_sent,
        first_requests: first.total(),
        bytes: after.bytes_sent - before.bytes_sent,
        requests: after.total() - before.total(),
        connections: after.connections,
        watches: after.watches,
        others: sim.version() - version,
        ..Cost::default()
    };
    cost.flips = (0..FLIPS).map(|_| flip(sim, &agent)).collect();
    // From here on, only the requested changes happen.
    sim.stop_kubelet(NODE);
    cost.node_event = bytes_of(sim, || {
        sim.set_condition(NODE, "MemoryPressure", "False", "KubeletIsFine");
    });
    cost.lease_event = bytes_of(sim, || sim.start_kubelet(NODE));
    sim.stop_kubelet(NODE);
    cost.get = sim.node(NODE).map_or(0, |node| node.to_string().len() as u64) + RESPONSE_HEAD;
    cost
}

/// Cordons the node, waits for the first 503, and uncordons it.
fn flip(sim: &Sim, agent: &Agent) -> Duration {
    let wait = |status: u16| while agent.get("/nodecheck").status != status {};
    sim.cordon(NODE);
    let acknowledged = Instant::now();
    wait(503);
    let took = acknowledged.elapsed();
    sim.uncordon(NODE);
    wait(200);
    took
}
