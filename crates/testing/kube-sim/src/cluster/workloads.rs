//! The controllers around pods: `ReplicaSets` create their pods, the scheduler binds them to nodes, and the
//! Services' EndpointSlices list their addresses.

use super::pods::{has_ended, is_ending, make, node_of};
use super::{endpoints, list, node};
use crate::store::object::{Key, Obj, child_mut};
use crate::store::resource::by_plural;
use crate::store::selector::Selector;
use crate::store::{Edit, Feed, Start, Store};
use futures::future::select_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// The delay of the captured cluster's controllers.
const REACTION: Duration = Duration::from_millis(5);
const WATCHED: [&str; 4] = ["pods", "nodes", "replicasets", "services"];

/// Runs all controllers for as long as the store lives.
pub(crate) async fn run(store: Arc<Store>) {
    let everything = Selector::default();
    loop {
        let watch = |plural: &&str| store.watch(by_plural(plural), None, &everything, Start::Everything).ok();
        let mut feeds: Vec<_> = WATCHED.iter().filter_map(watch).map(|watch| watch.feed).collect();
        loop {
            replicate(&store);
            schedule(&store);
            endpoints::publish(&store);
            if !next_change(&mut feeds).await {
                // A watch was too slow, or it has ended: restart the watches.
                break;
            }
        }
    }
}

async fn next_change(feeds: &mut [Receiver<Feed>]) -> bool {
    let next = select_all(feeds.iter_mut().map(|feed| Box::pin(feed.recv()))).await.0;
    tokio::time::sleep(REACTION).await;
    let goes_on = |feed: Option<Feed>| matches!(feed, Some(Feed::Change(_)));
    let mut rest = feeds.iter_mut().flat_map(|feed| std::iter::from_fn(|| feed.try_recv().ok()));
    rest.all(|feed| goes_on(Some(feed))) && goes_on(next)
}

pub(crate) fn controls(owner: &Obj, pod: &Value) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    owners.into_iter().any(|o| o.get("uid").and_then(Value::as_str) == owner.meta("uid"))
}

pub(crate) fn wanted(owner: &Obj) -> usize {
    let replicas = owner.value.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(usize::MAX)
}

/// Creates the missing pods. A pod that is told to end does not count.
fn replicate(store: &Store) {
    let pods = list(store, "pods");
    for set in list(store, "replicasets") {
        let counts = |pod: &&Obj| controls(&set, &pod.value) && !is_ending(pod) && !has_ended(&pod.value);
        let empty = json!({});
        let template = set.value.pointer("/spec/template").unwrap_or(&empty);
        for _ in pods.iter().filter(counts).count()..wanted(&set) {
            let suffix: String = std::iter::repeat_with(fastrand::lowercase).take(5).collect();
            let key = Key::new(&*set.key.namespace, format!("{}-{suffix}", set.key.name));
            let _ = store.write(by_plural("pods"), &key, |old| {
                Ok(if old.is_some() { Edit::Keep } else { Edit::Put(make(&key, template, &set)) })
            });
        }
    }
}

/// Binds each pod without a node to the node with the fewest of its siblings, then the fewest pods of all.
fn schedule(store: &Store) {
    let nodes = list(store, "nodes");
    let mut pods = list(store, "pods");
    for at in 0..pods.len() {
        let Some(pod) = pods.get(at).cloned() else { continue };
        if !node_of(&pod.value).is_empty() || is_ending(&pod) || has_ended(&pod.value) {
            continue;
        }
        let on = |node: &Obj| pods.iter().filter(|p| node_of(&p.value) == node.key.name).collect::<Vec<_>>();
        let siblings = |p: &&&Obj| owner(&p.value).is_some() && owner(&p.value) == owner(&pod.value);
        let free =
            |n: &&Obj| takes_pods(&n.value) && on(n).iter().all(|p| !share_a_port(&p.value, &pod.value));
        let load = |n: &&Obj| (on(n).iter().filter(|p| siblings(p)).count(), on(n).len());
        let Some(node) = nodes.iter().filter(free).min_by_key(load) else { continue };
        let bound = store.write(by_plural("pods"), &pod.key, |old| {
            let Some(old) = old.filter(|old| old.meta("uid") == pod.meta("uid")) else {
                return Ok(Edit::Keep);
            };
            let mut new = old.value.clone();
            child_mut(&mut new, "spec").insert("nodeName".to_owned(), json!(node.key.name));
            Ok(Edit::Put(new))
        });
        if let (Ok((Some(bound), _)), Some(place)) = (bound, pods.get_mut(at)) {
            *place = bound;
        }
    }
}

fn owner(pod: &Value) -> Option<&Value> {
    pod.pointer("/metadata/ownerReferences/0/uid")
}

fn takes_pods(node: &Value) -> bool {
    node.pointer("/spec/unschedulable") != Some(&json!(true))
        && node::condition(node, "Ready") == Some("True")
}

fn share_a_port(one: &Value, other: &Value) -> bool {
    let taken = host_ports(one);
    host_ports(other).iter().any(|port| taken.contains(port))
}

fn host_ports(pod: &Value) -> Vec<u64> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let ports = containers.flat_map(|c| c.get("ports").and_then(Value::as_array).into_iter().flatten());
    ports.filter_map(|port| port.get("hostPort").and_then(Value::as_u64)).collect()
}
