//! What happens to the Node: at random, but the same for the same seed.

use super::truth::{DRAIN_TAINTS, Ready, Truth};
use nodegate_kube_sim::Sim;
use nodegate_testbed::NODE;
use serde_json::json;

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const OTHER_TAINT: &str = "example.com/maintenance";
const OTHER_LABEL: &str = "example.com/rack";
/// Share of the events that take something back, so that the Node is Ready often enough.
const UNDO: f64 = 0.4;

/// One event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Cordon(bool),
    Ready(Ready),
    Taint(&'static str, bool),
    Exclude(bool),
    DiskPressure(bool),
    Deleting,
    Delete,
    Create,
    /// Taints, labels and statuses that mean nothing to a load balancer.
    Noise(Noise),
}

/// Updates after which the answer is the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noise {
    Heartbeat,
    Images,
    OtherTaint,
    OtherLabel,
}

/// Draws events.
pub(crate) struct Events {
    random: fastrand::Rng,
    number: u32,
}

impl Events {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), number: 0 }
    }

    /// The next event for a Node like this.
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

    /// An event that no other looks like: whoever shows it has seen it.
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
    /// The Node after it.
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

    /// Lets it happen; written when this returns.
    pub(crate) fn perform(&self, sim: &Sim) {
        let done = match self {
            Self::Cordon(true) => sim.cordon(NODE),
            Self::Cordon(false) => sim.uncordon(NODE),
            Self::Ready(Ready::True) => sim.set_ready(NODE, "True", "KubeletReady"),
            Self::Ready(Ready::False(reason)) => sim.set_ready(NODE, "False", reason),
            Self::Ready(Ready::Unknown(reason)) => sim.set_ready(NODE, "Unknown", reason),
            Self::Ready(Ready::Missing) => sim.remove_condition(NODE, "Ready"),
            Self::Taint(key, true) => sim.taint(NODE, key, "", "NoSchedule"),
            Self::Taint(key, false) => sim.untaint(NODE, key),
            Self::Exclude(on) => sim.label(NODE, EXCLUDE, on.then_some("")),
            Self::DiskPressure(true) => {
                sim.set_condition(NODE, "DiskPressure", "True", "KubeletHasDiskPressure")
            }
            Self::DiskPressure(false) => {
                sim.set_condition(NODE, "DiskPressure", "False", "KubeletHasNoDiskPressure")
            }
            Self::Deleting => sim.edit_node(NODE, "kubectl", |node| {
                node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            Self::Delete => sim.delete_node(NODE),
            Self::Create => {
                sim.add_node(NODE);
                true
            }
            Self::Noise(noise) => noise.perform(sim),
        };
        assert!(done, "{self:?}");
    }
}

/// Whether the Node has something of this name there.
fn has(sim: &Sim, place: &str, name: &str) -> bool {
    let node = sim.get("nodes", "", NODE).unwrap_or_default();
    node.pointer(place).is_some_and(|there| there.to_string().contains(name))
}

impl Noise {
    fn perform(self, sim: &Sim) -> bool {
        match self {
            Self::Heartbeat => sim.set_condition(
                NODE,
                "MemoryPressure",
                "False",
                &format!("KubeletHasSufficientMemory{}", fastrand::u32(..)),
            ),
            Self::Images => sim.edit_node(NODE, "kubelet", |node| {
                if let Some(images) = node["status"]["images"].as_array_mut() {
                    let one = usize::from(!images.is_empty());
                    images.rotate_left(one);
                }
            }),
            Self::OtherTaint if has(sim, "/spec/taints", OTHER_TAINT) => sim.untaint(NODE, OTHER_TAINT),
            Self::OtherTaint => sim.taint(NODE, OTHER_TAINT, "soon", "PreferNoSchedule"),
            Self::OtherLabel => {
                let value = (!has(sim, "/metadata/labels", OTHER_LABEL)).then_some("r1");
                sim.label(NODE, OTHER_LABEL, value)
            }
        }
    }
}
