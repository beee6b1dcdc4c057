//! The kernel's RTNL lock, held as by a hanging driver: it may block only one thread of the agent.

// The whole machine shares the lock, so this test runs alone, and holds it for seconds.

use nodegate_local_checks::PodRoutes;
use nodegate_testbed::network::node_network::{NodeNetwork, RESOLVER_V4};
use nodegate_testbed::process::{Program, threads_named};
use nodegate_testbed::programs::run;
use nodegate_testbed::{Agent, NODE, Scenario, needs_root, until, until_or};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

const HELD: Duration = Duration::from_secs(5);

/// Far above the time of a flip, and far below that of a stall.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Starts a program that holds the kernel's lock until its end.
fn hold_rtnl() -> Program {
    needs_root("the kernel's lock");
    let directory = tempfile::tempdir().unwrap();
    let [program, log] = ["rtnl_holder", "log"].map(|name| directory.path().join(name));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/rtnl_holder.c");
    run(&format!("cc -Wall -Werror -o {} {source}", program.display()));
    let holder = Program::start_into(&mut Command::new(&program), &log);
    let waits = format!("/proc/{}/wchan", holder.pid());
    let holds = || fs::read_to_string(&waits).unwrap().contains("userfault").then_some(());
    until_or(holds, || fs::read_to_string(&log).unwrap());
    holder
}

fn at_once(agent: &Agent, wanted: impl FnOnce(&Agent)) {
    let began = Instant::now();
    wanted(agent);
    assert!(began.elapsed() < AT_ONCE, "{:?}\n{}", began.elapsed(), agent.log_text());
}

#[test]
fn a_held_rtnl_lock_stops_only_the_network_check() {
    let mut net = NodeNetwork::start();
    net.start_resolver();
    net.nameservers(&[RESOLVER_V4]);
    net.node("ip link add cni0 type bridge; ip addr add 10.88.0.1/24 dev cni0; ip link set cni0 up");
    let cluster = Scenario::start();
    cluster.sim.set_addresses(NODE, &["10.77.0.2"]);
    let agent = net.agent_of(&cluster, "interval=200ms,timeout=1s,name=node.test", &["--stale-after=4s"]);
    agent.wait_ready();
    agent.wait_passes("network");
    let restarts = || agent.metric_sum("nodegate_watch_restarts_total");
    let before = restarts();

    let held = hold_rtnl();
    let began = Instant::now();
    agent.wait_fails_with("network", "Gateway: IPv4 links: Hung for ");
    while began.elapsed() < HELD {
        cluster.sim.cordon(NODE);
        at_once(&agent, |agent| drop(agent.wait_reason("Unschedulable")));
        cluster.sim.uncordon(NODE);
        at_once(&agent, |agent| drop(agent.wait_ready()));
        assert_eq!(threads_named(agent.pid(), "network_links"), 1, "one thread waits");
        assert_eq!(agent.get("/livez").status, 200);
        // Twenty runs of the check in between, all of which would send a request.
        agent.wait_runs("network", 20);
    }
    assert!(agent.get("/health?check=network").body.contains("IPv4 links: Hung for "), "it was held");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pod = [10, 88, 0, 9].into();
    let is_pod = thread::spawn(move || runtime.block_on(PodRoutes::default().lead_to_pod(pod)));
    agent.wait_runs("network", 8);
    drop(held);
    assert!(is_pod.join().unwrap(), "a hook waits until the kernel says that it is a pod's");
    agent.wait_passes("network");
    until("the thread to end", || (threads_named(agent.pid(), "network_links") == 0).then_some(()));
    assert_eq!(restarts().to_bits(), before.to_bits(), "no watch was lost: {}", agent.log_text());
}
