//! The node lifecycle controller: taints follow conditions and `spec.unschedulable`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::node::condition;
use crate::store::object::{Key, child_mut, meta_mut};
use crate::store::resource::nodes;
use crate::store::selector::Selector;
use crate::store::{Edit, Feed, Start, Store};
use crate::writes::managed_fields::{self, Write};
use crate::writes::schema::Shape;

/// The captured cluster's controller answered a cordon after 9 to 14 ms.
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
        let mut dirty: BTreeSet<String> = nodes.initial.iter().map(|n| n.key.name.clone()).collect();
        // Cut off when it was too slow: then it begins anew with everything there is.
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
                // One write each, as the controllers' separate loops make them.
                edit(&store, &name, |node| set_taints(node, "NoSchedule"));
                edit(&store, &name, |node| set_taints(node, "NoExecute"));
                edit(&store, &name, set_ttl);
            }
        }
    }
}

/// Changes a node as `kube-controller-manager`; nothing happens if it is gone or stays the same.
fn edit(store: &Store, name: &str, change: impl FnOnce(&mut Value)) {
    let _ = store.write(nodes(), &Key::new("", name), |old| {
        let Some(old) = old else { return Ok(Edit::Keep) };
        let mut new = old.value.clone();
        change(&mut new);
        Ok(recorded(&old.value, new, "kube-controller-manager", ""))
    });
}

/// The edit for a changed object, with its writer recorded.
pub(crate) fn recorded(old: &Value, mut new: Value, manager: &str, subresource: &'static str) -> Edit {
    let set = managed_fields::changed(&Shape::of(nodes()), Some(old), &new);
    if *old == new {
        return Edit::Keep;
    }
    let write = Write { manager: manager.to_owned(), operation: "Update", subresource };
    managed_fields::record(Some(old), &mut new, (&set, &set), &write, "v1");
    Edit::Put(new)
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

fn set_taints(node: &mut Value, effect: &str) {
    let wanted = wanted(node, effect);
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
        if !taints.iter().any(|taint| ours(taint).as_deref() == Some(key)) {
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
