//! agent-check: HAProxy's administrative and operational state follows the agents' answers, also after a
//! restart or reload of `HAProxy`.

use crate::nodes::Nodes;
use crate::site::NODES;
use nodegate_testbed::haproxy::{Haproxy, LiveServer};

const NODE: &str = NODES[0];

struct Scenario {
    nodes: Nodes,
    haproxy: Haproxy,
}

impl Scenario {
    fn begin() -> Self {
        let nodes = Nodes::start();
        let haproxy = Haproxy::start(&nodes.site.configuration("haproxy/agent-check.cfg"));
        let scenario = Self { nodes, haproxy };
        scenario.is_ready();
        scenario
    }

    fn cordon(&self) {
        assert!(self.nodes.cluster.sim.cordon(NODE));
    }

    fn uncordon(&self) {
        assert!(self.nodes.cluster.sim.uncordon(NODE));
    }

    fn set_ready(&self, status: &str) {
        assert!(self.nodes.cluster.sim.set_ready(NODE, status, "Kubelet"));
    }

    fn is_ready(&self) {
        self.haproxy.wait_server(NODE, "ready", LiveServer::is_ready);
    }

    fn is_draining(&self) {
        self.haproxy.wait_server(NODE, "draining", LiveServer::is_draining);
    }

    fn is_down(&self) {
        self.haproxy.wait_server(NODE, "down", LiveServer::is_down);
    }
}

#[test]
fn every_transition_leaves_haproxy_in_the_right_state() {
    let scenario = Scenario::begin();
    for _ in 0..2 {
        // Ready -> Draining -> NotReady -> Ready
        scenario.cordon();
        scenario.is_draining();
        scenario.set_ready("False");
        scenario.is_down();
        scenario.set_ready("True");
        scenario.is_draining();
        scenario.uncordon();
        scenario.is_ready();
        // Ready -> NotReady -> Ready, and straight from down and cordoned.
        scenario.set_ready("Unknown");
        scenario.is_down();
        scenario.set_ready("True");
        scenario.is_ready();
    }
    let others = NODES[1..].iter().map(|name| scenario.haproxy.server(name).unwrap());
    assert!(others.into_iter().all(|state| state.is_ready()));
}

#[test]
fn haproxys_restart_and_reload_keep_the_server_state() {
    let mut scenario = Scenario::begin();
    scenario.cordon();
    scenario.is_draining();
    scenario.haproxy.reload();
    // At once, from the state file, before HAProxy has probed the agent.
    assert!(scenario.haproxy.server(NODE).is_some_and(|state| state.is_draining()));
    scenario.haproxy.restart();
    scenario.is_draining();

    scenario.set_ready("False");
    scenario.is_down();
    scenario.haproxy.reload();
    scenario.is_down();
    scenario.haproxy.restart();
    scenario.is_down();

    scenario.haproxy.reload();
    scenario.set_ready("True");
    scenario.uncordon();
    scenario.is_ready();
    scenario.haproxy.reload();
    scenario.is_ready();
}
