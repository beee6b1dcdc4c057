//! One agent in a cluster of one node, and in a cluster of thousands: it must cost the same and answer the
//! same.

// `cargo test` compares 1 with 200 nodes; `make soak SCALE=5000` compares 1 with 5,000.

use crate::setting;
use nodegate_kube_sim::Sim;
use nodegate_testbed::{Agent, Cluster, NODE, process, programs, until};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The size of a Node with a hundred images.
const NODE_BYTES: usize = 20_000;
/// The time after the start for the first lists and the first heartbeat.
const SETTLE: Duration = Duration::from_secs(5);
const FLIPS: usize = 20;

/// A figure: its name, one agent's values in a small and in a large cluster, and its bound if it must be flat.
struct Figure {
    name: &'static str,
    values: [f64; 2],
    most: Option<f64>,
}

/// One agent's figures in a cluster of a certain size.
#[derive(Default)]
struct Cost {
    nodes: f64,
    /// The writes by the other nodes, a second.
    writes: f64,
    anonymous_kib: f64,
    cpu_ms_a_minute: f64,
    wake_ups_a_second: f64,
    /// From the API server until the agent was in step, and afterwards.
    first_bytes: f64,
    bytes_a_minute: f64,
    requests: f64,
    connections: f64,
    watches: f64,
    /// The median from the acknowledged cordon to the first 503.
    flip_ms: f64,
}

/// Starts an agent in a cluster of this size and measures it for this time.
fn measure(program: &Path, nodes: usize, time: Duration) -> Cost {
    let others = (1..nodes).map(|number| format!("other-{number}"));
    // A controller would write taints, which would double the time of the setup.
    let cluster =
        Cluster::with(|builder| builder.kubelets(true).lifecycle(false).node_bytes(NODE_BYTES).nodes(others));
    let sim = &cluster.sim;
    sim.counters().reset();
    let agent = cluster.launch(Command::new(program));
    agent.wait_ready();
    until("both watches", || (sim.counters().read().watches == 2).then_some(()));
    let first = sim.counters().read();
    sleep(SETTLE);

    let scheduled = || (process::cpu(agent.pid()), process::sleeps(agent.pid()));
    let (version, before, (cpu, wake_ups)) = (sim.version(), sim.counters().read(), scheduled());
    sleep(time);
    let (after, (cpu_then, wake_ups_then)) = (sim.counters().read(), scheduled());
    let (seconds, minutes) = (time.as_secs_f64(), time.as_secs_f64() / 60.0);
    let mut flips: Vec<Duration> = (0..FLIPS).map(|_| flip(sim, &agent)).collect();
    flips.sort_unstable();
    Cost {
        nodes: nodes as f64,
        writes: (sim.version() - version) as f64 / seconds,
        anonymous_kib: process::memory(agent.pid()).anonymous as f64,
        cpu_ms_a_minute: cpu_then.saturating_sub(cpu).as_secs_f64() * 1e3 / minutes,
        wake_ups_a_second: (wake_ups_then - wake_ups) as f64 / seconds,
        first_bytes: first.bytes_sent as f64,
        bytes_a_minute: (after.bytes_sent - before.bytes_sent) as f64 / minutes,
        requests: (after.total() - before.total()) as f64,
        connections: after.connections as f64,
        watches: after.watches as f64,
        flip_ms: flips[FLIPS / 2].as_secs_f64() * 1e3,
    }
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

/// Compares an agent's figures in the two clusters. `cpu` is false where other tests use the processor, too.
fn compare(small: &Cost, large: &Cost, cpu: bool) -> Vec<Figure> {
    let figure =
        |name, of: fn(&Cost) -> f64, most: Option<f64>| Figure { name, values: [of(small), of(large)], most };
    vec![
        figure("nodes", |cost| cost.nodes, None),
        figure("writes by other nodes, a second", |cost| cost.writes, None),
        figure("anonymous memory, KiB", |cost| cost.anonymous_kib, Some(small.anonymous_kib + 256.0)),
        figure(
            "processor time, ms a minute",
            |cost| cost.cpu_ms_a_minute,
            cpu.then_some(small.cpu_ms_a_minute * 2.0 + 10.0),
        ),
        figure("wake-ups a second", |cost| cost.wake_ups_a_second, None),
        figure("bytes until in step", |cost| cost.first_bytes, Some(small.first_bytes * 1.2)),
        // The Lease's heartbeat has jitter, so one more may fall into the time.
        figure("bytes a minute", |cost| cost.bytes_a_minute, Some(small.bytes_a_minute * 1.5 + 3000.0)),
        figure("requests in that time", |cost| cost.requests, Some(small.requests + 1.0)),
        figure("connections", |cost| cost.connections, Some(small.connections)),
        figure("watches", |cost| cost.watches, Some(small.watches)),
        figure("cordon to 503, ms (median)", |cost| cost.flip_ms, None),
    ]
}

/// Asserts that nothing has grown by more than the machine's noise, and prints the table.
fn assert_flat(agent: &Path, nodes: usize, time: Duration, cpu: bool) {
    let [small, large] = [1, nodes].map(|nodes| measure(agent, nodes, time));
    let (mut table, mut grown) = (String::new(), Vec::new());
    for Figure { name, values: [one, many], most } in compare(&small, &large, cpu) {
        let _ = writeln!(table, "  {name:<34} {one:>12.2} {many:>12.2}");
        if most.is_some_and(|most| many > most) {
            grown.push(name);
        }
    }
    println!("{table}");
    assert!(grown.is_empty(), "more with {nodes} nodes than with one: {grown:?}\n{table}");
}

#[test]
fn an_agent_costs_the_same_with_two_hundred_nodes_as_with_one() {
    assert_flat(&programs::agent(), 200, Duration::from_secs(8), false);
}

/// Runs `make soak SCALE=5000`: `SCALE` is the number of nodes, `SCALE_SECONDS` the time for each cluster,
/// `SCALE_AGENT` the program.
#[test]
#[ignore = "takes minutes: make soak SCALE=5000"]
fn scale() {
    let time = Duration::from_secs(setting("SCALE_SECONDS", 120));
    assert_flat(&setting("SCALE_AGENT", programs::agent()), setting("SCALE", 5000), time, true);
}
