//! One agent in a cluster of one node, and in one of thousands: it must cost the same and answer the same.

// `cargo test` compares 1 with 200 nodes; `make soak SCALE=5000` compares 1 with 5,000.

use crate::setting;
use nodegate_kube_sim::Sim;
use nodegate_testbed::{Agent, NODE, Scenario, process, until};
use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The size of a Node with a hundred images.
const NODE_BYTES: usize = 20_000;
const SETTLE: Duration = Duration::from_secs(5);
const FLIPS: usize = 20;

/// A figure: its name, its value, and the most that it may be in a large cluster after this value in a small one.
type Figure = (&'static str, f64, fn(f64) -> f64);

fn any(_: f64) -> f64 {
    f64::INFINITY
}

/// Starts an agent in a cluster of this size and measures it for this time.
fn measure(nodes: usize, time: Duration) -> [Figure; 10] {
    let others = (1..nodes).map(|number| format!("other-{number}"));
    let cluster = Scenario::with(|builder| builder.kubelets(true).node_bytes(NODE_BYTES).nodes(others));
    let sim = &cluster.sim;
    sim.counters().reset();
    let agent = cluster.ready_agent(&[]);
    until("both watches", || (sim.counters().read().watches == 2).then_some(()));
    let first = sim.counters().read();
    sleep(SETTLE);

    let scheduled = || (process::cpu(agent.pid()), process::sleeps(agent.pid()));
    let (version, before, (cpu, wake_ups)) = (sim.version(), sim.counters().read(), scheduled());
    sleep(time);
    let (after, (cpu_then, wake_ups_then)) = (sim.counters().read(), scheduled());
    let (seconds, minutes) = (time.as_secs_f64(), time.as_secs_f64() / 60.0);
    let cpu = cpu_then.saturating_sub(cpu).as_secs_f64() * 1e3 / minutes;
    let mut flips: Vec<Duration> = (0..FLIPS).map(|_| flip(sim, &agent)).collect();
    flips.sort_unstable();
    [
        ("writes by other nodes, a second", (sim.version() - version) as f64 / seconds, any),
        ("anonymous memory, KiB", process::memory(agent.pid()).anonymous as f64, |small| small + 256.0),
        ("processor time, ms a minute", cpu, |small| small * 2.0 + 10.0),
        ("wake-ups a second", (wake_ups_then - wake_ups) as f64 / seconds, any),
        ("bytes until in step", first.bytes_sent as f64, |small| small * 1.2),
        // The Lease's heartbeat has jitter, so one more may fall into the time, which is 8 s at least.
        ("bytes a minute", (after.bytes_sent - before.bytes_sent) as f64 / minutes, |small| {
            small * 1.5 + 2000.0 * 60.0 / 8.0
        }),
        ("requests in that time", (after.total() - before.total()) as f64, |small| small + 1.0),
        ("connections", after.connections as f64, |small| small),
        ("watches", after.watches as f64, |small| small),
        ("cordon to 503, ms (median)", flips[FLIPS / 2].as_secs_f64() * 1e3, any),
    ]
}

/// Cordons the node, waits for the first 503, and uncordons it.
fn flip(sim: &Sim, agent: &Agent) -> Duration {
    let wait = |status: u16| while agent.get("/nodecheck").status != status {};
    sim.cordon(NODE);
    let cordoned = Instant::now();
    wait(503);
    let took = cordoned.elapsed();
    sim.uncordon(NODE);
    wait(200);
    took
}

/// Prints the table. `cpu` is false where other tests use the processor, too.
fn assert_flat(nodes: usize, time: Duration, cpu: bool) {
    let [small, large] = [1, nodes].map(|nodes| measure(nodes, time));
    let (mut table, mut grown) = (String::new(), Vec::new());
    for ((name, one, most), (_, many, _)) in small.into_iter().zip(large) {
        let _ = writeln!(table, "  {name:<34} {one:>12.2} {many:>12.2}");
        if many > most(one) && (cpu || !name.starts_with("processor")) {
            grown.push(name);
        }
    }
    println!("{table}");
    assert!(grown.is_empty(), "more with {nodes} nodes than with one: {grown:?}\n{table}");
}

#[test]
fn an_agent_costs_the_same_with_two_hundred_nodes_as_with_one() {
    assert_flat(200, Duration::from_secs(8), false);
}

/// Runs `make soak SCALE=5000`: `SCALE` is the number of nodes, `SCALE_SECONDS` the time for each cluster.
#[test]
#[ignore = "takes minutes: make soak SCALE=5000"]
fn scale() {
    let time = Duration::from_secs(setting("SCALE_SECONDS", 120));
    assert_flat(setting("SCALE", 5000), time, true);
}
