//! Draws the events of the Node, the same ones for the same seed. `world.rs` performs them.

use crate::truth::{DRAIN_TAINTS, Ready, Truth};
use nodegate_kube_sim::Sim;
use serde_json::json;

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const OTHER_TAINT: &str = "example.com/maintenance";
const OTHER_LABEL: &str = "example.com/rack";
/// The share of the events that revert a change, so that the Node is Ready often enough.
const UNDO: f64 = 0.4;

/// One change of the Node.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// `kubectl cordon` if true, `kubectl uncordon` if false.
    Cordon(bool),
    /// A new state of the Ready condition.
    Ready(Ready),
    /// A taint that drains, added or removed.
    Taint(&'static str, bool),
    /// The label that excludes from load balancers, added or removed.
    Exclude(bool),
    /// The condition `DiskPressure`, true or false.
    DiskPressure(bool),
    /// A deletionTimestamp on the Node.
    Deleting,
    /// The deletion of the Node.
    Delete,
    /// The creation of the Node.
    Create,
    /// A change of taints, labels or status that changes no answer.
    Noise(Noise),
}

/// Updates that change no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noise {
    /// An update of the kubelet's status.
    Heartbeat,
    /// Another order of the images.
    Images,
    /// A taint that is no drain signal.
    OtherTaint,
    /// A label that is no drain signal.
    OtherLabel,
}

/// The source of random events.
pub(crate) struct Events {
    random: fastrand::Rng,
    number: u32,
}

impl Events {
    /// Returns the events of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), number: 0 }
    }

    /// Draws the next event for a Node in this state.
    pub(crate) fn next(&mut self, truth: &Truth) -> Event {
        if !truth.present {
            return Event::Create;
        }
        if truth.deleting {
            return Event::Delete;
        }
        let undo = self.undo(truth);
        if let (false, true) = (undo.is_empty(), self.random.f64() < UNDO) {
            return undo[self.random.usize(..undo.len())].clone();
        }
        match self.random.u32(..20) {
            0..3 => Event::Cordon(!truth.unschedulable),
            3 | 4 => Event::Ready(Ready::False(self.reason("KubeletNotReady"))),
            5 => Event::Ready(Ready::Unknown(self.reason("NodeStatusUnknown"))),
            6 if truth.ready != Ready::Missing => Event::Ready(Ready::Missing),
            7 | 8 => {
                let key = DRAIN_TAINTS[self.random.usize(..DRAIN_TAINTS.len())];
                Event::Taint(key, !truth.taints.contains(key))
            }
            9 => Event::Exclude(!truth.excluded),
            10 => Event::DiskPressure(!truth.disk_pressure),
            11 => Event::Deleting,
            12 => Event::Delete,
            13 | 14 => Event::Noise(Noise::Images),
            15 | 16 => Event::Noise(Noise::OtherTaint),
            17 | 18 => Event::Noise(Noise::OtherLabel),
            _ => Event::Noise(Noise::Heartbeat),
        }
    }

    /// Returns a unique event: an agent that shows it has seen it.
    pub(crate) fn marker(&mut self, truth: &Truth) -> Event {
        if truth.present { Event::Ready(Ready::False(self.reason("Marker"))) } else { Event::Create }
    }

    fn reason(&mut self, word: &str) -> String {
        self.number += 1;
        format!("{word}{}", self.number)
    }

    #[allow(clippy::unused_self, reason = "reads beside the others")]
    fn undo(&self, truth: &Truth) -> Vec<Event> {
        let mut undo = Vec::new();
        if truth.ready != Ready::True {
            undo.push(Event::Ready(Ready::True));
        }
        if truth.unschedulable {
            undo.push(Event::Cordon(false));
        }
        if truth.excluded {
            undo.push(Event::Exclude(false));
        }
        if truth.disk_pressure {
            undo.push(Event::DiskPressure(false));
        }
        undo.extend(truth.taints.iter().map(|key| Event::Taint(key, false)));
        undo
    }
}

impl Event {
    /// Returns the Node's state after the event.
    pub(crate) fn after(&self, truth: &Truth) -> Truth {
        let mut truth = truth.clone();
        match self {
            Self::Cordon(on) => truth.unschedulable = *on,
            Self::Ready(ready) => truth.ready = ready.clone(),
            Self::Taint(key, true) => drop(truth.taints.insert(key)),
            Self::Taint(key, false) => drop(truth.taints.remove(key)),
            Self::Exclude(on) => truth.excluded = *on,
            Self::DiskPressure(on) => truth.disk_pressure = *on,
            Self::Deleting => truth.deleting = true,
            Self::Delete => truth.present = false,
            Self::Create => truth = Truth::healthy(),
            Self::Noise(_) => {}
        }
        truth
    }

    /// Performs the event. The store has it when this returns.
    pub(crate) fn perform(&self, sim: &Sim, node_name: &str) {
        let done = match self {
            Self::Cordon(true) => sim.cordon(node_name),
            Self::Cordon(false) => sim.uncordon(node_name),
            Self::Ready(Ready::True) => sim.set_ready(node_name, "True", "KubeletReady"),
            Self::Ready(Ready::False(reason)) => sim.set_ready(node_name, "False", reason),
            Self::Ready(Ready::Unknown(reason)) => sim.set_ready(node_name, "Unknown", reason),
            Self::Ready(Ready::Missing) => sim.remove_condition(node_name, "Ready"),
            Self::Taint(key, true) => sim.taint(node_name, key, "", "NoSchedule"),
            Self::Taint(key, false) => sim.untaint(node_name, key),
            Self::Exclude(on) => sim.label(node_name, EXCLUDE, on.then_some("")),
            Self::DiskPressure(true) => {
                sim.set_condition(node_name, "DiskPressure", "True", "KubeletHasDiskPressure")
            }
            Self::DiskPressure(false) => {
                sim.set_condition(node_name, "DiskPressure", "False", "KubeletHasNoDiskPressure")
            }
            Self::Deleting => sim.edit_node(node_name, "kubectl", |node| {
                node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            Self::Delete => sim.delete_node(node_name),
            Self::Create => {
                sim.add_node(node_name);
                true
            }
            Self::Noise(noise) => noise.perform(sim, node_name),
        };
        assert!(done, "{self:?}");
    }
}

/// Returns true if the Node has this name at this JSON pointer.
fn has(sim: &Sim, node_name: &str, place: &str, name: &str) -> bool {
    let node = sim.get("nodes", "", node_name).unwrap_or_default();
    node.pointer(place).is_some_and(|there| there.to_string().contains(name))
}

impl Noise {
    fn perform(self, sim: &Sim, node_name: &str) -> bool {
        match self {
            Self::Heartbeat => sim.set_condition(
                node_name,
                "MemoryPressure",
                "False",
                &format!("KubeletHasSufficientMemory{}", fastrand::u32(..)),
            ),
            Self::Images => sim.edit_node(node_name, "kubelet", |node| {
                if let Some(images) = node["status"]["images"].as_array_mut() {
                    let one = usize::from(!images.is_empty());
                    images.rotate_left(one);
                }
            }),
            Self::OtherTaint if has(sim, node_name, "/spec/taints", OTHER_TAINT) => {
                sim.untaint(node_name, OTHER_TAINT)
            }
            Self::OtherTaint => sim.taint(node_name, OTHER_TAINT, "soon", "PreferNoSchedule"),
            Self::OtherLabel => {
                let value = (!has(sim, node_name, "/metadata/labels", OTHER_LABEL)).then_some("r1");
                sim.label(node_name, OTHER_LABEL, value)
            }
        }
    }
}
