//! The work of a descheduler: a node that is back gets its share of the pods. Kubernetes itself does not do
//! that.

use crate::node::DemoNode;
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// The interval of looks. It is so short that pods move before the balancers know that the node is back.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const GRACE_SECONDS: u32 = 30;

/// Moves one pod after the other, for as long as the demo runs.
pub(crate) async fn run(sim: Sim, nodes: [DemoNode; 3]) {
    loop {
        sleep(LOOK_EVERY).await;
        let schedulable = |node: &&DemoNode| {
            let object = sim.node(node.name);
            object.is_some_and(|object| object.pointer("/spec/unschedulable") != Some(&json!(true)))
        };
        let mut pods: Vec<Vec<Value>> =
            nodes.iter().filter(schedulable).map(|node| running_on(&sim, node.name)).collect();
        pods.sort_by_key(Vec::len);
        if let (Some(fewest), Some(most)) = (pods.first(), pods.last())
            && fewest.len() + 1 < most.len()
            && let Some(pod) = most.first()
        {
            evict(&sim, pod.clone());
        }
    }
}

/// Returns the pods of the service on a node, except those that are ending.
fn running_on(sim: &Sim, node: &str) -> Vec<Value> {
    let here = |pod: &Value| {
        let is = |pointer: &str, value: &str| pod.pointer(pointer).and_then(Value::as_str) == Some(value);
        is("/spec/nodeName", node)
            && is("/metadata/labels/app", "web")
            && pod.pointer("/metadata/deletionTimestamp").is_none()
    };
    sim.list("pods").into_iter().filter(here).collect()
}

fn evict(sim: &Sim, mut pod: Value) {
    if let Some(meta) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("deletionTimestamp".to_owned(), json!(jiff::Timestamp::now().to_string()));
        meta.insert("deletionGracePeriodSeconds".to_owned(), json!(GRACE_SECONDS));
    }
    // The pod may be gone meanwhile, which is fine.
    let _ = sim.apply(pod);
}
