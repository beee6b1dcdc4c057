//! What happens to a node, and what the balancer makes of it.

use crate::nodes::Nodes;
use crate::site::NODES;
use crate::traffic::{Held, failures, served};
use nodegate_testbed::prober::Prober;
use nodegate_testbed::until;
use std::fmt;
use std::time::{Duration, Instant};

/// The node that it happens to.
const NODE: usize = 0;
/// At a third of a hundred requests a second, a node without one for so long gets none any more.
const QUIET: Duration = Duration::from_millis(1500);
/// How long traffic is watched where nothing is to change.
const WATCHED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Cordon,
    Drain,
    NotReady,
    ApiOutage,
    AgentRestart,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) failures: Vec<String>,
    /// From the event to the last new connection on the node; `None` if it stayed in the pool.
    pub(crate) left_after: Option<Duration>,
    /// Whether a connection that was open on the node still works.
    pub(crate) existing_works: bool,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left_after.map_or("stays".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()));
        let kept = if self.existing_works { "kept" } else { "CUT" };
        write!(f, "{} of {} · {left} · {kept}", self.failures.len(), self.requests)
    }
}

impl Event {
    pub(crate) const ALL: [Self; 5] =
        [Self::Cordon, Self::Drain, Self::NotReady, Self::ApiOutage, Self::AgentRestart];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Drain => "drain, service ends",
            Self::NotReady => "NotReady",
            Self::ApiOutage => "API outage",
            Self::AgentRestart => "agent restart",
        }
    }

    /// Plays it under traffic, with a connection that stays, and undoes it.
    pub(crate) fn play(self, nodes: &mut Nodes, traffic: &Prober) -> Outcome {
        nodes.wait_for_traffic();
        let mut held = Held::on(NODES[NODE], nodes.site.frontend());
        self.play_with(nodes, traffic, || held.works())
    }

    /// The same for a balancer that takes requests apart: no connection of a client's stays with one node.
    pub(crate) fn play_new(self, nodes: &mut Nodes, traffic: &Prober) -> Outcome {
        nodes.wait_for_traffic();
        self.play_with(nodes, traffic, || true)
    }

    fn play_with(self, nodes: &mut Nodes, traffic: &Prober, existing: impl FnOnce() -> bool) -> Outcome {
        let begun = Instant::now();
        let left = self.happen(nodes);
        let left_after = left.then(|| {
            let last = nodes.backends[NODE].last().expect("there was traffic");
            last.saturating_duration_since(begun)
        });
        let existing_works = existing();
        self.end(nodes);
        nodes.wait_for_traffic();
        Outcome {
            requests: served(traffic, begun).values().sum(),
            failures: failures(traffic, begun),
            left_after,
            existing_works,
        }
    }

    /// Says whether the node is out of the pool by it.
    fn happen(self, nodes: &mut Nodes) -> bool {
        match self {
            Self::Cordon => assert!(nodes.cluster.sim.cordon(NODES[NODE])),
            Self::Drain => {
                let args = ["drain", NODES[NODE], "--ignore-daemonsets"];
                nodes.cluster.kubectl(&args);
                wait_quiet(nodes);
                // Its pods are gone now. Connections that they have go on to their end.
                nodes.backends[NODE].stop();
                return true;
            }
            Self::NotReady => {
                assert!(nodes.cluster.sim.set_ready(NODES[NODE], "False", "KubeletNotReady"));
            }
            Self::ApiOutage => {
                nodes.cluster.wait(nodes.cluster.sim.kill());
                for agent in nodes.agents.iter().flatten() {
                    agent.wait_for("a stale answer", |reply| reply.status == 200 && reply.is_stale());
                }
                return left_while_watched(nodes);
            }
            Self::AgentRestart => {
                nodes.restart_agent(NODE);
                return left_while_watched(nodes);
            }
        }
        wait_quiet(nodes);
        true
    }

    fn end(self, nodes: &mut Nodes) {
        let sim = nodes.cluster.sim.clone();
        match self {
            Self::Cordon => drop(sim.uncordon(NODES[NODE])),
            Self::Drain => {
                nodes.revive(NODE);
                sim.uncordon(NODES[NODE]);
            }
            Self::NotReady => drop(sim.set_ready(NODES[NODE], "True", "KubeletReady")),
            Self::ApiOutage => {
                nodes.cluster.wait(sim.restart(false)).unwrap();
                for agent in nodes.agents.iter().flatten() {
                    agent.wait_ready();
                }
            }
            Self::AgentRestart => drop(nodes.agent(NODE).wait_ready()),
        }
    }
}

fn wait_quiet(nodes: &Nodes) {
    until("the last new connection on the node", || nodes.backends[NODE].quiet_for(QUIET).then_some(()));
}

/// Whether the node goes without new connections at any time while it is watched.
fn left_while_watched(nodes: &Nodes) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        if nodes.backends[NODE].quiet_for(QUIET) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
