//! The times at which the API server stored the relevant changes of a node.

use nodegate_kube_sim::Sim;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The interval of looks at the store. A change counts as old as the look before it. A latency can be too
/// long by up to this interval, and is never too short.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The newest change of each node that no answer has shown yet. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Changes(Arc<Mutex<HashMap<&'static str, Change>>>);

struct Change {
    matters: Option<Vec<Value>>,
    stored: Option<Instant>,
}

impl Changes {
    /// Follows the store from now on, to the end of the process. It reads the store rather than a watch, so
    /// that no fault of the API server hides a change.
    pub(crate) fn follow(sim: Sim, nodes: Vec<&'static str>) -> io::Result<Self> {
        let changes = Self::default();
        let writer = changes.clone();
        // This is a thread, since a task could wait behind the tasks that send events to the agents.
        thread::Builder::new().name("changes".to_owned()).spawn(move || writer.run(&sim, &nodes))?;
        Ok(changes)
    }

    fn run(&self, sim: &Sim, nodes: &[&'static str]) {
        let mut seen = None;
        let mut last_look = Instant::now();
        loop {
            let now = Instant::now();
            let version = sim.version();
            if seen.replace(version) != Some(version) {
                for &node in nodes {
                    self.take(node, sim.node(node).as_ref(), last_look);
                }
            }
            last_look = now;
            thread::sleep(LOOK_EVERY);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Change>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, node: &'static str, value: Option<&Value>, stored: Instant) {
        let matters = value.map(matters);
        let mut all = self.lock();
        if all.get(node).is_none_or(|known| known.matters != matters) {
            all.insert(node, Change { matters, stored: Some(stored) });
        }
    }

    /// Returns the time at which the change behind the current answer was stored. Each change is returned
    /// once.
    pub(crate) fn shown(&self, node: &str) -> Option<Instant> {
        self.lock().get_mut(node)?.stored.take()
    }
}

/// A JSON pointer, in which `~1` is a slash.
const EXCLUDED: &str = "/metadata/labels/node.kubernetes.io~1exclude-from-external-load-balancers";

/// Returns the parts of a Node that can change the answer. Heartbeats and the taint that follows a cordon
/// can't.
fn matters(node: &Value) -> Vec<Value> {
    let ready = list(node, "/status/conditions").filter(|condition| text(condition, "type") == "Ready");
    let ready = ready.flat_map(|condition| ["status", "reason"].map(|key| text(condition, key).into()));
    let draining = list(node, "/spec/taints").map(|taint| text(taint, "key")).filter(|key| {
        [
            "ToBeDeletedByClusterAutoscaler",
            "karpenter.sh/disrupted",
            "karpenter.sh/disruption",
            "node.kubernetes.io/out-of-service",
        ]
        .contains(key)
    });
    let fields = ["/spec/unschedulable", "/metadata/deletionTimestamp", EXCLUDED];
    let fields = fields.map(|pointer| node.pointer(pointer).cloned().unwrap_or_default());
    ready.chain(draining.map(Value::from)).chain(fields).collect()
}

fn list<'a>(node: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    node.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
