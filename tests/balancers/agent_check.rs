//! agent-check: HAProxy's state follows the agents' answers, also after a restart or reload of `HAProxy`.

use crate::nodes::{NODES, Nodes};
use nodegate_testbed::haproxy::{Haproxy, LiveServer};

const NODE: &str = NODES[0];

/// Events, and the state of the node in HAProxy after them. Any other word is the status of the condition Ready.
type Step = (&'static str, &'static str);

const TWICE: [Step; 6] = [
    ("cordon", "draining"),
    ("False", "down"),
    ("True", "draining"),
    ("uncordon", "ready"),
    ("Unknown", "down"),
    ("True", "ready"),
];

const OVER_RESTARTS: [Step; 9] = [
    ("cordon", "draining"),
    ("reload", "draining"),
    ("restart", "draining"),
    ("False", "down"),
    ("reload", "down"),
    ("restart", "down"),
    ("uncordon", "down"),
    ("reload, True", "ready"),
    ("reload", "ready"),
];

#[test]
fn every_transition_leaves_haproxy_in_the_right_state_which_a_reload_and_a_restart_keep() {
    let nodes = Nodes::start(&[]);
    let (sim, front) = (&nodes.cluster.sim, nodes.lan.front());
    let configuration = nodes.configuration("haproxy/agent-check.cfg");
    let mut haproxy = front.act(|| Haproxy::start(&configuration));
    haproxy.wait_server(NODE, "ready", LiveServer::is_ready);
    for (events, state) in [&TWICE[..], &TWICE, &OVER_RESTARTS].concat() {
        for event in events.split(", ") {
            match event {
                "cordon" => assert!(sim.cordon(NODE)),
                "uncordon" => assert!(sim.uncordon(NODE)),
                "reload" => drop(front.act(|| haproxy.reload())),
                "restart" => front.act(|| haproxy.restart()),
                status => assert!(sim.set_ready(NODE, status, "Kubelet")),
            }
        }
        if (events, state) == ("reload", "draining") {
            // At once, from the state file, before HAProxy has probed the agent.
            assert!(haproxy.server(NODE).is_some_and(|server| server.is_draining()));
        }
        let is_so = match state {
            "ready" => LiveServer::is_ready,
            "draining" => LiveServer::is_draining,
            _ => LiveServer::is_down,
        };
        haproxy.wait_server(NODE, state, is_so);
    }
    let others = NODES[1..].iter().map(|name| haproxy.server(name).unwrap());
    assert!(others.into_iter().all(|state| state.is_ready()));
}
