//! Agents that are replaced under load balancers' probes, as in a surge rollout: no probe fails.

use nodegate_testbed::network::cable::{Cable, NODE_IP};
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Prober, agent_check, health};
use nodegate_testbed::{Agent, Scenario};
use std::mem::replace;
use std::time::Duration;

/// With 5 ms to the node and 5 ms back, two handshakes are in flight at any time.
const DELAY: Duration = Duration::from_millis(5);
const PROBES_A_SECOND: u32 = 200;

/// Asks an agent to end at once. In a cluster, it ends `minReadySeconds` after its successor has started to listen.
fn end(agent: Agent) {
    let (status, log) = agent.terminate();
    assert!(status.success(), "{status}: {log}");
}

/// After an undone rollout the agent that ends is the newer one, to which the kernel gives the connections.
#[test]
fn no_probe_and_no_handshake_in_flight_is_lost_while_agents_are_replaced() {
    let cable = Cable::start(DELAY);
    cable.node.act(|| {
        // Each successor must get the same ports.
        let (cluster, port, agent_port) = (Scenario::start(), ports::free(), ports::free());
        let ports = [format!("--listen-port={port}"), format!("--agent-check-port={agent_port}")];
        let start = || cluster.agent(&["--listen-address=0.0.0.0", &ports[0], &ports[1]]);
        let mut agent = start();
        let targets: [(_, fn(_) -> _); 2] = [(port, health), (agent_port, agent_check)];
        let probers = cable.balancer.act(|| {
            targets.map(|(port, ask)| Prober::start((NODE_IP, port).into(), ask, PROBES_A_SECOND / 2, 4))
        });
        for _ in 0..5 {
            for prober in &probers {
                prober.wait(10);
            }
            let successor = start();
            end(replace(&mut agent, successor));
            end(start());
        }
        for mut prober in probers {
            prober.wait(10);
            prober.stop();
            let counts = prober.counts();
            eprintln!("{counts:?}");
            assert!(counts.keys().all(|saw| saw == "200 fresh" || saw == "200 up ready"), "{counts:?}");
        }
    });
}
