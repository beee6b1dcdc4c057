//! Faults that only real sockets and files show, under a load balancer's probes. The simulation has the others.

// `make faults` prints a line for each.

mod scenario;

use nodegate_kube_sim::Effect;
use nodegate_testbed::{NODE, needs_root, programs, until};
use scenario::{CORDONED, FRESH, LOST, REPLACED, SOON_STALE, STALE, Scenario};
use std::net::TcpStream;
use std::process::Command;

/// The maximum of open connections: one that the agent leaves stays open until its watches have ended.
const CONNECTIONS: u64 = 6;

#[test]
fn a_connection_whose_packets_vanish_is_replaced() {
    needs_root("packets that the kernel drops");
    let mut scenario = Scenario::start(&[]);
    scenario.fault(|scenario| {
        scenario.cluster.sim.half_open();
        scenario.cluster.sim.cordon(NODE);
    });
    scenario.notices(CORDONED, REPLACED);
    scenario.restarts("disconnected", 1.0);
    scenario.agent.logs_once(LOST);
    let open = scenario.cluster.sim.counters().read().connections_max;
    assert!(open <= 3 + 2, "{open}: three of the agent's, and the dead ones");
    scenario.heal(|scenario| scenario.cluster.sim.heal());
    scenario.recovers("packets of open connections dropped", &[FRESH, CORDONED]);
}

#[test]
fn attempts_to_connect_end() {
    needs_root("packets that the kernel drops");
    let into_a_black_hole = |cluster: &nodegate_testbed::Scenario| {
        cluster.sim.half_open();
        cluster.sim.blackhole_new().unwrap();
    };
    let unserved = |cluster: &nodegate_testbed::Scenario| {
        cluster.sim.ignore_new();
        cluster.sim.reset_connections();
    };
    // How it begins, and the restarts of the Node's watch, with their number, that show what the agent has given up. The
    // first is the end of the old connection.
    let faults: [(_, fn(&nodegate_testbed::Scenario), _, _); 2] = [
        ("packets of new connections dropped, too", into_a_black_hole, "disconnected", 2.0),
        ("new connections accepted, never served", unserved, "timeout", 1.0),
    ];
    for (name, begin, reason, times) in faults {
        let mut scenario = Scenario::start(SOON_STALE);
        scenario.fault(|scenario| begin(&scenario.cluster));
        scenario.fails_open();
        scenario.restarts(reason, times);
        scenario.heal(|scenario| scenario.cluster.sim.heal());
        scenario.recovers(name, &[FRESH, STALE, FRESH]);
    }
}

/// Sends GOAWAY after every answer, fifty times as often as the maximum of `--goaway-chance`.
#[test]
fn goaway_after_every_answer_makes_no_storm_of_connections() {
    // Long enough for each watch to live for more than 5 s before the consistency check moves it. A watch
    // that ends sooner counts as failed, and backs off for up to 10 s.
    let mut scenario = Scenario::start(&["--stale-after=12s"]);
    let going = scenario.fault(|scenario| {
        let going = scenario.cluster.sim.faults().add(Effect::GoAway.everywhere());
        scenario.cluster.sim.close_watches(None);
        going
    });
    // Twelve seconds of probes.
    scenario.prober.wait(600);
    let counted = scenario.cluster.sim.counters().read();
    assert!(counted.total() <= 4 * 14, "{} requests in 12 s", counted.total());
    assert!(counted.connections_max <= CONNECTIONS, "{} connections", counted.connections_max);
    scenario.heal(|scenario| scenario.cluster.sim.faults().remove(going));
    until("watches", || (scenario.cluster.sim.counters().read().watches >= 2).then_some(()));
    scenario.recovers("GOAWAY after every answer", &[FRESH]);
}

/// Floods the agent with idle clients, and then breaks the connection to the API server.
#[test]
fn idle_clients_leave_descriptors_for_the_api_server() {
    const CLIENTS: u32 = 300;
    let cluster = scenario::cluster();
    let mut command = Command::new("prlimit");
    command.arg("--nofile=64:64").arg(programs::agent());
    let agent = cluster.launch(command);
    let mut scenario = Scenario::of(cluster, agent);
    scenario.agent.logs_once("the limit of file descriptors allows fewer connections");
    let idle = scenario.fault(|scenario| {
        let connect = |number: u32| {
            // With more than the three places of this node's clients, a probe's connection would be closed.
            if number.is_multiple_of(2) {
                scenario.prober.wait(1);
            }
            TcpStream::connect(scenario.agent.address()).unwrap()
        };
        let idle: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
        scenario.cluster.sim.reset_connections();
        scenario.cluster.sim.cordon(NODE);
        idle
    });
    scenario.notices(CORDONED, REPLACED);
    scenario.lasts();
    // In a crowd, they are closed unread.
    let closed = ["nodegate_connections_evicted_total", "nodegate_connections_refused_total"];
    let closed: f64 = closed.iter().filter_map(|name| scenario.agent.metric(name)).sum();
    assert!(closed >= f64::from(CLIENTS) - 64.0, "{closed}");
    scenario.heal(|scenario| {
        drop(idle);
        scenario.cluster.sim.uncordon(NODE);
    });
    scenario.recovers("64 file descriptors, 300 idle clients, API reset", &[FRESH, CORDONED, FRESH]);
}
