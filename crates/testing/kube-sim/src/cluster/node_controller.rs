//! The node lifecycle controller: `NoSchedule` taints follow conditions and `spec.unschedulable`.

use crate::cluster::node::{condition, edit};
use crate::store::object::{child_mut, now};
use crate::store::resource::nodes;
use crate::store::selector::Selector;
use crate::store::{Feed, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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
        let Ok(mut nodes) = store.watch(nodes(), &Selector::default(), None) else {
            return;
        };
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
            for name in std::mem::take(&mut dirty) {
                edit(&store, &name, ("kube-controller-manager", ""), set_taints);
            }
        }
    }
}

fn set_taints(node: &mut Value) {
    let mut wanted: Vec<&str> = BY_CONDITION
        .iter()
        .filter(|(kind, status, _)| condition(node, kind) == Some(status))
        .map(|(.., key)| *key)
        .collect();
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        wanted.push(UNSCHEDULABLE);
    }
    let spec = child_mut(node, "spec");
    let mut taints = spec.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |taint: &Value| {
        let key = taint.get("key")?.as_str()?.to_owned();
        let managed = BY_CONDITION.iter().any(|(.., k)| *k == key) || key == UNSCHEDULABLE;
        (managed && taint.get("effect") == Some(&json!("NoSchedule"))).then_some(key)
    };
    taints.retain(|taint| ours(taint).is_none_or(|key| wanted.contains(&key.as_str())));
    for key in wanted {
        if !taints.iter().any(|taint| ours(taint).as_deref() == Some(key)) {
            taints.push(json!({"key": key, "effect": "NoSchedule", "timeAdded": now()}));
        }
    }
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".to_owned(), Value::Array(taints));
    }
}
