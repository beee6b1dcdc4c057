//! The status of a DaemonSet. There is no controller and there are no pods: every rollout is complete at
//! once.

use serde_json::{Value, json};

use crate::store::object::{Obj, as_map, meta_mut};
use crate::store::resource::Resource;

/// Counts the generation of a workload's spec. Gives a DaemonSet the status of one whose pods run on all of
/// these nodes that it selects.
pub(crate) fn settle(resource: &Resource, old: Option<&Value>, new: &mut Value, nodes: &[Obj]) {
    if resource.group != "apps" {
        return;
    }
    let before = old.and_then(|old| old.pointer("/metadata/generation")).and_then(Value::as_u64).unwrap_or(0);
    let same = old.is_some_and(|old| old.get("spec") == new.get("spec"));
    let generation = before + u64::from(!same);
    meta_mut(new).insert("generation".to_owned(), json!(generation));
    if resource.plural == "daemonsets" {
        let selector = new.pointer("/spec/template/spec/nodeSelector").and_then(Value::as_object);
        let labels = |node: &Obj| node.value.pointer("/metadata/labels").cloned().unwrap_or_default();
        let selected = |node: &&Obj| {
            selector.into_iter().flatten().all(|(key, value)| labels(node).get(key) == Some(value))
        };
        let count = nodes.iter().filter(selected).count();
        let status = json!({
            "observedGeneration": generation, "desiredNumberScheduled": count, "currentNumberScheduled": count,
            "updatedNumberScheduled": count, "numberReady": count, "numberAvailable": count, "numberMisscheduled": 0,
        });
        as_map(new).insert("status".to_owned(), status);
    }
}
