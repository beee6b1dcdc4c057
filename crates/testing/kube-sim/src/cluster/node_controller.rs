//! The node lifecycle controller: a `NoSchedule` taint follows `spec.unschedulable`.

use crate::cluster::node::edit;
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
                edit(&store, &name, ("kube-controller-manager", ""), set_taint);
            }
        }
    }
}

fn set_taint(node: &mut Value) {
    let is_cordoned = node["spec"]["unschedulable"] == true;
    let is_own = |taint: &Value| taint["key"] == UNSCHEDULABLE;
    let spec = child_mut(node, "spec");
    let mut taints = spec.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    match (is_cordoned, taints.iter().any(is_own)) {
        (true, false) => {
            taints.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": now()}));
        }
        (false, true) => taints.retain(|taint| !is_own(taint)),
        _ => return,
    }
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".to_owned(), Value::Array(taints));
    }
}
