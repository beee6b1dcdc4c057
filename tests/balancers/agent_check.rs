//! agent-check: HAProxy's administrative and operational state follows the agents' answers, also after a
//! restart or reload of `HAProxy`.

use crate::nodes::Nodes;
use crate::site::NODES;
use nodegate_testbed::haproxy::{Haproxy, LiveServer};

const NODE: &str = NODES[0];

struct Story {
    nodes: Nodes,
    haproxy: Haproxy,
}

impl Story {
    fn begin() -> Self {
        let nodes = Nodes::start();
        let haproxy = Haproxy::start(&nodes.site.configuration("haproxy/agent-check.cfg"));
        let story = Self { nodes, haproxy };
        story.is_ready();
        story
    }

    fn cordon(&self) {
        assert!(self.nodes.cluster.sim.cordon(NODE));
    }

    fn uncordon(&self) {
        assert!(self.nodes.cluster.sim.uncordon(NODE));
    }

    fn set_ready(&self, status: &str, reason: &str) {
        assert!(self.nodes.cluster.sim.set_ready(NODE, status, reason));
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
    let story = Story::begin();
    for _ in 0..2 {
        // Ready -> Draining -> NotReady -> Ready
        story.cordon();
        story.is_draining();
        story.set_ready("False", "KubeletNotReady");
        story.is_down();
        story.set_ready("True", "KubeletReady");
        story.is_draining();
        story.uncordon();
        story.is_ready();
        // Ready -> NotReady -> Ready, and straight from down and cordoned.
        story.set_ready("Unknown", "NodeStatusUnknown");
        story.is_down();
        story.set_ready("True", "KubeletReady");
        story.is_ready();
    }
    let others = NODES[1..].iter().map(|name| story.haproxy.server(name).unwrap());
    assert!(others.into_iter().all(|state| state.is_ready()));
}

/// Shows the third state without an agent-check: a `NOLB` server runs and takes no new connections.
#[test]
fn a_404_puts_haproxys_server_into_nolb() {
    let nodes = Nodes::start();
    let haproxy = Haproxy::start(&nodes.site.configuration("haproxy/disable-on-404.cfg"));
    let story = Story { nodes, haproxy };
    let sees = |status: &'static str| {
        story.haproxy.wait_server(NODE, status, |state| state.status.starts_with(status));
    };
    sees("UP");
    story.cordon();
    sees("NOLB");
    story.set_ready("False", "KubeletNotReady");
    sees("DOWN");
    // A 404 does not bring a server up that is down.
    story.set_ready("True", "KubeletReady");
    story.nodes.agent(0).wait_reason("Unschedulable");
    sees("DOWN");
    story.uncordon();
    story.is_ready();
    story.cordon();
    sees("NOLB");
}

#[test]
fn haproxys_restart_and_reload_keep_the_server_state() {
    let mut story = Story::begin();
    story.cordon();
    story.is_draining();
    story.haproxy.reload();
    // At once, from the state file, before HAProxy has probed the agent.
    assert!(story.haproxy.server(NODE).is_some_and(|state| state.is_draining()));
    story.haproxy.restart();
    story.is_draining();

    story.set_ready("False", "KubeletNotReady");
    story.is_down();
    story.haproxy.reload();
    story.is_down();
    story.haproxy.restart();
    story.is_down();

    story.haproxy.reload();
    story.set_ready("True", "KubeletReady");
    story.uncordon();
    story.is_ready();
    story.haproxy.reload();
    story.is_ready();
}
