//! The events that happen to one node or to all of them, and how to undo each.

use crate::nodes::{NODES, Nodes};
use crate::scenario::Scenario;
use std::time::Duration;

/// The time for which a service continues after its node is drained: a preStop hook, a grace period.
const SERVICE_ENDS_AFTER: Duration = Duration::from_secs(6);
/// The time for which a killed agent stays away.
const AWAY: Duration = Duration::from_secs(5);
/// The time for which the test watches traffic that must not change.
const WATCHED: Duration = Duration::from_secs(3);
/// For so long all nodes are out: the slowest balancer has noticed by then, and its last resort serves.
const ALL_OUT: Duration = Duration::from_secs(8);
/// Longer than the slowest balancer takes. A balancer that has not noticed by then never does.
const NEVER: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Cordon,
    Drain,
    NotReady,
    ApiOutage,
    AgentRestart,
    AgentKilled,
    Rollout,
    MassCordon,
    LostProbe,
}

impl Event {
    const NAMES: [(Self, &str); 9] = [
        (Self::Cordon, "cordon"),
        (Self::Drain, "drain, service ends"),
        (Self::NotReady, "NotReady"),
        (Self::ApiOutage, "API outage, one node drained before"),
        (Self::AgentRestart, "agent restart"),
        (Self::AgentKilled, "agent killed"),
        (Self::Rollout, "rollout on all nodes"),
        (Self::MassCordon, "all cordoned"),
        (Self::LostProbe, "one probe lost"),
    ];

    pub(crate) fn all() -> [Self; 9] {
        Self::NAMES.map(|(event, _)| event)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    pub(crate) fn must_leave(self) -> bool {
        matches!(self, Self::Cordon | Self::Drain | Self::NotReady)
    }

    /// Does the preparations that the test does not observe, and returns the node that it does observe.
    pub(crate) fn prepare(self, scenario: &mut Scenario) -> usize {
        let node = scenario.node();
        if self != Self::ApiOutage {
            return node;
        }
        scenario.drained = Some(node);
        scenario.drain(node);
        scenario.watch_until_left(node, NEVER);
        scenario.nodes.backends[node].stop();
        // The observed node stays in the pool, and no outage may take it out.
        scenario.holder().unwrap_or((node + 1) % NODES.len())
    }

    /// Triggers the event and watches the node until it has left, or should have.
    pub(crate) fn happen(self, node: usize, scenario: &mut Scenario) {
        let sim = scenario.nodes.cluster.sim.clone();
        match self {
            Self::Cordon => {
                assert!(sim.cordon(NODES[node]));
                scenario.watch_until_left(node, NEVER);
            }
            Self::Drain => {
                scenario.drain(node);
                scenario.watch(node, SERVICE_ENDS_AFTER);
                scenario.nodes.backends[node].stop();
                scenario.watch(node, WATCHED);
            }
            Self::NotReady => {
                assert!(sim.set_ready(NODES[node], "False", "KubeletNotReady"));
                scenario.watch_until_left(node, NEVER);
            }
            Self::ApiOutage => {
                let Nodes { lan, cluster, .. } = &scenario.nodes;
                lan.router.act(|| cluster.kill_api());
                scenario.nodes.each_agent(|agent| {
                    agent.wait_for("a stale answer", |reply| reply.status == 200 && reply.is_stale());
                });
                scenario.watch(node, WATCHED);
            }
            Self::AgentRestart => {
                scenario.nodes.agents[node].take().unwrap().terminate();
                scenario.nodes.agents[node] = Some(scenario.nodes.new_agent(node));
                scenario.watch(node, WATCHED);
            }
            Self::AgentKilled => {
                scenario.nodes.agents[node] = None;
                scenario.watch(node, AWAY);
            }
            Self::Rollout => {
                for index in 0..NODES.len() {
                    let successor = scenario.nodes.new_agent(index);
                    scenario.nodes.agents[index].replace(successor).unwrap().terminate();
                }
                scenario.watch(node, WATCHED);
            }
            Self::MassCordon => {
                for name in NODES {
                    assert!(sim.cordon(name));
                }
                scenario.watch(node, ALL_OUT);
            }
            Self::LostProbe => {
                scenario.nodes.agent(node).signal("STOP");
                scenario.watch(node, scenario.row.one_question);
                scenario.nodes.agent(node).signal("CONT");
                scenario.watch(node, WATCHED);
            }
        }
    }

    /// Undoes the event and waits until the agents answer Ready.
    pub(crate) fn undo(self, node: usize, scenario: &mut Scenario) {
        let sim = scenario.nodes.cluster.sim.clone();
        match self {
            Self::Cordon => drop(sim.uncordon(NODES[node])),
            Self::Drain => {
                scenario.nodes.revive(node);
                sim.uncordon(NODES[node]);
            }
            Self::NotReady => drop(sim.set_ready(NODES[node], "True", "KubeletReady")),
            Self::ApiOutage => {
                let drained = scenario.drained.take().unwrap();
                scenario.nodes.revive(drained);
                let Nodes { lan, cluster, .. } = &scenario.nodes;
                lan.router.act(|| cluster.restart_api());
                sim.uncordon(NODES[drained]);
            }
            Self::MassCordon => assert!(NODES.iter().all(|name| sim.uncordon(name))),
            Self::AgentKilled => scenario.nodes.agents[node] = Some(scenario.nodes.new_agent(node)),
            Self::AgentRestart | Self::Rollout | Self::LostProbe => {}
        }
        scenario.nodes.each_agent(|agent| drop(agent.wait_ready()));
    }
}
