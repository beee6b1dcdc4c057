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
        scenario.becomes("ready");
        scenario
    }

    /// Cordons or uncordons the node, or sets its condition Ready.
    fn set(&self, what: &str) {
        let sim = &self.nodes.cluster.sim;
        assert!(match what {
            "cordoned" => sim.cordon(NODE),
            "uncordoned" => sim.uncordon(NODE),
            status => sim.set_ready(NODE, status, "Kubelet"),
        });
    }

    fn becomes(&self, state: &str) {
        self.haproxy.wait_server(
            NODE,
            state,
            match state {
                "ready" => LiveServer::is_ready,
                "draining" => LiveServer::is_draining,
                _ => LiveServer::is_down,
            },
        );
    }
}

#[test]
fn every_transition_leaves_haproxy_in_the_right_state_which_a_reload_and_a_restart_keep() {
    let mut scenario = Scenario::begin();
    for _ in 0..2 {
        for (set, state) in [
            ("cordoned", "draining"),
            ("False", "down"),
            ("True", "draining"),
            ("uncordoned", "ready"),
            ("Unknown", "down"),
            ("True", "ready"),
        ] {
            scenario.set(set);
            scenario.becomes(state);
        }
    }
    let others = NODES[1..].iter().map(|name| scenario.haproxy.server(name).unwrap());
    assert!(others.into_iter().all(|state| state.is_ready()));

    scenario.set("cordoned");
    scenario.becomes("draining");
    scenario.haproxy.reload();
    // At once, from the state file, before HAProxy has probed the agent.
    assert!(scenario.haproxy.server(NODE).is_some_and(|state| state.is_draining()));
    scenario.haproxy.restart();
    scenario.becomes("draining");

    scenario.set("False");
    scenario.becomes("down");
    scenario.haproxy.reload();
    scenario.becomes("down");
    scenario.haproxy.restart();
    scenario.becomes("down");

    scenario.haproxy.reload();
    scenario.set("True");
    scenario.set("uncordoned");
    scenario.becomes("ready");
    scenario.haproxy.reload();
    scenario.becomes("ready");
}
