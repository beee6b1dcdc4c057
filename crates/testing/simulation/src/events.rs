//! Draws the changes of the Node, the same ones for the same seed. `world.rs` performs them.

use crate::cluster::NODE;
use nodegate_kube_sim::Sim;
use nodegate_readiness::{ConditionStatus, Node};

const PRESSURE: &str = "DiskPressure";

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// `kubectl cordon` if true, `kubectl uncordon` if false.
    Cordon(bool),
    /// Ready=True, or Ready=False with this reason.
    Ready(Option<String>),
    DiskPressure(bool),
    Delete,
    Create,
    /// An update of the kubelet's status that changes no answer.
    Heartbeat,
}

pub(crate) struct Events {
    random: fastrand::Rng,
    number: u32,
}

impl Events {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), number: 0 }
    }

    /// Draws the next event for a Node in this state.
    pub(crate) fn next(&mut self, node: &Node) -> Event {
        let Some(facts) = node.facts() else { return Event::Create };
        let pressure = facts.condition(PRESSURE);
        let pressure = pressure.is_some_and(|pressure| pressure.status == ConditionStatus::True);
        match self.random.u32(..20) {
            0..5 => Event::Cordon(!facts.unschedulable),
            5..8 => self.marker(node),
            8..14 => Event::Ready(None),
            14 => Event::DiskPressure(!pressure),
            15 => Event::Delete,
            _ => Event::Heartbeat,
        }
    }

    /// Returns a unique event: an agent that shows it has seen it.
    pub(crate) fn marker(&mut self, node: &Node) -> Event {
        self.number += 1;
        node.facts().map_or(Event::Create, |_| Event::Ready(Some(format!("Marker{}", self.number))))
    }
}

impl Event {
    /// Performs the event. The store has it when this returns.
    pub(crate) fn perform(&self, sim: &Sim) {
        let done = match self {
            Self::Cordon(true) => sim.cordon(NODE),
            Self::Cordon(false) => sim.uncordon(NODE),
            Self::Ready(None) => sim.set_ready(NODE, "True", "KubeletReady"),
            Self::Ready(Some(reason)) => sim.set_ready(NODE, "False", reason),
            Self::DiskPressure(on) => {
                let status = if *on { "True" } else { "False" };
                sim.set_condition(NODE, PRESSURE, status, "KubeletHasDiskPressure")
            }
            Self::Delete => sim.delete_node(NODE),
            Self::Create => {
                sim.add_node(NODE);
                true
            }
            Self::Heartbeat => {
                sim.set_condition(NODE, "MemoryPressure", "False", &format!("Enough{}", fastrand::u32(..)))
            }
        };
        assert!(done, "{self:?}");
    }
}
