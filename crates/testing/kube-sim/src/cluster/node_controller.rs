//! The node lifecycle controller: taints follow conditions and `spec.unschedulable`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::node::{condition, edit};
use crate::store::object::{Obj, child_mut, meta_mut};
use crate::store::resource::nodes;
use crate::store::selector::Selector;
use crate::store::{Feed, Start, Store};

/// The field manager of this controller's writes.
const OURS: (&str, &str) = ("kube-controller-manager", "");
/// The controller's delay. The captured cluster's controller reacted to a cordon after 9 to 14 ms.
const REACTION: Duration = Duration::from_millis(5);

/// Taints by condition: (type, status, key).
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Follows all nodes for as long as the store lives.
pub(crate) async fn run(store: Arc<Store>) {
    loop {
        let Ok(mut nodes) = store.watch(nodes(), None, &Selector::default(), Start::Everything) else {
            return;
        };
        let mut before = Zone::of(&store);
        let mut dirty: BTreeSet<String> = nodes.initial.iter().map(|n| n.key.name.clone()).collect();
        // The feed ends if this controller is too slow. The outer loop then restarts with all nodes.
        loop {
            if !dirty.is_empty() {
                tokio::time::sleep(REACTION).await;
            } else if let Some(Feed::Change(change)) = nodes.feed.recv().await {
                dirty.insert(change.object.key.name.clone());
                continue;
            } else {
                break;
            }
            while let Ok(Feed::Change(change)) = nodes.feed.try_recv() {
                dirty.insert(change.object.key.name.clone());
            }
            let zone = Zone::of(&store);
            if std::mem::replace(&mut before, zone) != zone {
                dirty = all(&store).iter().map(|n| n.key.name.clone()).collect();
            }
            for name in std::mem::take(&mut dirty) {
                // Each change is a write of its own, as the controllers' separate loops make them.
                edit(&store, &name, OURS, |node| set_taints(node, "NoSchedule", Zone::Normal));
                edit(&store, &name, OURS, |node| set_taints(node, "NoExecute", zone));
                edit(&store, &name, OURS, set_ttl);
            }
        }
    }
}

fn all(store: &Store) -> Vec<Obj> {
    store.list(nodes(), None, &Selector::default()).1
}

/// The state of the only zone. The controller decides by it whether to evict pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    /// The controller adds `NoExecute` to nodes that are not ready.
    Normal,
    /// More than two nodes and at least 55 % of all are not ready. In a cluster of up to 50 nodes, no further
    /// node gets `NoExecute`.
    Partial,
    /// No node is ready. The controller removes `NoExecute` from all nodes.
    Full,
}

impl Zone {
    fn of(store: &Store) -> Self {
        let all = all(store);
        let silent = all.iter().filter(|node| condition(&node.value, "Ready") != Some("True")).count();
        match silent {
            _ if silent > 0 && silent == all.len() => Self::Full,
            3.. if silent * 100 >= all.len() * 55 => Self::Partial,
            _ => Self::Normal,
        }
    }
}

fn wanted(node: &Value, effect: &str) -> Vec<&'static str> {
    let mut keys: Vec<&'static str> = BY_CONDITION
        .iter()
        .filter(|(kind, status, _)| {
            (effect == "NoSchedule" || *kind == "Ready") && condition(node, kind) == Some(status)
        })
        .map(|(.., key)| *key)
        .collect();
    if effect == "NoSchedule" && node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        keys.push(UNSCHEDULABLE);
    }
    keys
}

fn set_taints(node: &mut Value, effect: &str, zone: Zone) {
    let wanted = if zone == Zone::Full { Vec::new() } else { wanted(node, effect) };
    let spec = child_mut(node, "spec");
    let mut taints = spec.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |taint: &Value| {
        let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = text("key");
        let managed = BY_CONDITION.iter().any(|(.., k)| *k == key) || key == UNSCHEDULABLE;
        (managed && text("effect") == effect).then_some(key)
    };
    taints.retain(|taint| ours(taint).is_none_or(|key| wanted.contains(&key.as_str())));
    for key in wanted {
        if zone == Zone::Normal && !taints.iter().any(|taint| ours(taint).as_deref() == Some(key)) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": crate::store::time::now()}));
        }
    }
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".to_owned(), Value::Array(taints));
    }
}

fn set_ttl(node: &mut Value) {
    let annotations = meta_mut(node).entry("annotations").or_insert_with(|| json!({}));
    if let Some(map) = annotations.as_object_mut() {
        map.entry("node.alpha.kubernetes.io/ttl").or_insert_with(|| json!("0"));
    }
}
