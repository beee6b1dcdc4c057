//! agent-check: what agents say becomes `HAProxy`'s state, administrative and operational, whatever happens to `HAProxy`.

use crate::backend::Backend;
use crate::nodes::Nodes;
use crate::site::{NODES, SERVICE_PORT};
use crate::traffic::traffic;
use nodegate_testbed::haproxy::{Haproxy, LiveServer};
use nodegate_testbed::until;
use std::net::SocketAddr;

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

/// The third state without an agent check: `NOLB` is running, and takes nothing new.
#[test]
fn a_404_is_a_third_state_of_haproxys() {
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
    // A 404 raises nobody who is down.
    story.set_ready("True", "KubeletReady");
    story.nodes.agent(0).wait_reason("Unschedulable");
    sees("DOWN");
    story.uncordon();
    story.is_ready();
    story.cordon();
    sees("NOLB");
}

#[test]
fn haproxys_restart_and_reload_change_nothing() {
    let mut story = Story::begin();
    story.cordon();
    story.is_draining();
    story.haproxy.reload();
    // At once, by the state file, and not only after the agent has been asked.
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

#[test]
fn a_node_whose_port_has_changed_is_reached_there_after_a_reload() {
    let mut story = Story::begin();
    let site = &story.nodes.site;
    let moved = Backend::start(NODE, site.node(0), SERVICE_PORT + 1);
    let at = |port| format!("server {NODE} {}", SocketAddr::new(site.node(0), port));
    story.haproxy.edit(&at(SERVICE_PORT), &at(SERVICE_PORT + 1));
    story.haproxy.reload();
    story.nodes.backends[0].stop();
    let _traffic = traffic(story.nodes.site.frontend());
    until("a request at the new port", || (moved.connections() > 0).then_some(()));
    // And so it remains: the next dump has the new port.
    story.haproxy.reload();
    let before = moved.connections();
    until("another one", || (moved.connections() > before).then_some(()));
}

#[test]
fn an_agent_that_is_away_changes_nothing() {
    let mut story = Story::begin();
    story.cordon();
    story.is_draining();
    story.nodes.restart_agent(0);
    assert!(story.haproxy.server(NODE).is_some_and(|state| state.is_draining()));
    story.nodes.agent(0).wait_reason("Unschedulable");
    story.uncordon();
    story.is_ready();
}

#[test]
fn what_an_operator_sets_by_hand_lasts_until_the_agents_next_word() {
    let story = Story::begin();
    let by_hand = format!("set server nodes/{NODE} state maint");
    story.haproxy.command(&by_hand).unwrap();
    story.is_ready();
    // The documented way: first the agent is silenced.
    story.haproxy.command(&format!("disable agent nodes/{NODE}")).unwrap();
    story.haproxy.command(&by_hand).unwrap();
    let in_maintenance = |state: &LiveServer| state.administrative & 0x01 != 0;
    story.haproxy.wait_server(NODE, "in maintenance", in_maintenance);
    story.haproxy.command(&format!("enable agent nodes/{NODE}")).unwrap();
    story.is_ready();
}

/// An agent that is taken away after it has said `down` leaves the server down: the documented way out.
#[test]
fn a_server_whose_agent_is_gone_for_good_is_raised_by_hand() {
    let mut story = Story::begin();
    story.set_ready("False", "KubeletNotReady");
    story.is_down();
    story.nodes.agents[0] = None;
    story.haproxy.command(&format!("set server nodes/{NODE} agent up")).unwrap();
    story.is_ready();
}
