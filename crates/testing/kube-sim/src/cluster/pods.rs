//! The kubelets' work with pods. A bound pod runs until it is told to end, and has its grace period for that.
//! The embedding program supplies the code that runs in a pod.

use crate::store::object::{Key, Obj, as_map};
use crate::store::resource::by_plural;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::time::now;
use crate::store::{Edit, Feed, Start, Store};
use crate::writes::managers;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The program that runs in pods. The simulator calls it when a pod is bound to a node. The pod is gone when
/// the future has ended, or when the simulator drops the future at the end of the grace period.
#[derive(Clone)]
pub struct PodProgram(Arc<dyn Fn(RunningPod) -> BoxFuture<'static, ()> + Send + Sync>);

impl PodProgram {
    /// Wraps a function that starts a pod's program.
    pub fn new<F>(program: impl Fn(RunningPod) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        PodProgram(Arc::new(move |pod| Box::pin(program(pod))))
    }
}

/// A pod as its program sees it.
#[derive(Clone)]
pub struct RunningPod {
    store: Arc<Store>,
    bound: Obj,
    /// The grace period; `None` until the pod is told to end.
    grace: watch::Receiver<Option<Duration>>,
}

impl RunningPod {
    /// Returns the pod as it was bound to its node.
    pub fn object(&self) -> &Value {
        &self.bound.value
    }

    /// Returns the name of the pod.
    pub fn name(&self) -> &str {
        &self.bound.key.name
    }

    /// Returns the name of the pod's node.
    pub fn node(&self) -> &str {
        node_of(&self.bound.value)
    }

    /// Marks the pod as running and ready at this address.
    pub fn ready(&self, address: IpAddr) {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now()});
        let _ = self.store.write(by_plural("pods"), &self.bound.key, |old| {
            let old = same(&self.bound, old)?;
            let mut new = old.value.clone();
            let status = json!({"phase": "Running", "podIP": address, "conditions": [ready]});
            as_map(&mut new).insert("status".to_owned(), status);
            managers::record(Some(&old.value), &mut new, "kubelet", "status");
            Ok(Edit::Put(new))
        });
    }

    /// Waits until the pod is told to end, as by SIGTERM.
    pub async fn asked_to_end(&mut self) {
        self.told_to_end().await;
    }

    fn gone(&self) {
        let _ = self
            .store
            .write(by_plural("pods"), &self.bound.key, |old| same(&self.bound, old).map(|_| Edit::Remove));
    }

    /// Waits until the pod is told to end, and returns its grace period. Returns `None` if the pod was
    /// removed without one.
    async fn told_to_end(&mut self) -> Option<Duration> {
        self.grace.wait_for(Option::is_some).await.ok().and_then(|grace| *grace)
    }

    async fn taken_away(&mut self) {
        while self.grace.changed().await.is_ok() {}
    }

    async fn run(self, program: PodProgram) {
        let (mut pod, mut runs) = (self.clone(), (program.0)(self));
        tokio::select! {
            () = &mut runs => pod.gone(),
            grace = pod.told_to_end() => {
                let Some(grace) = grace else { return };
                tokio::select! {
                    _ = timeout(grace, runs) => pod.gone(),
                    () = pod.taken_away() => {}
                }
            }
        }
    }
}

/// Returns the pod if it is still the bound one, and not another pod with the same name.
fn same<'a>(bound: &Obj, now: Option<&'a Obj>) -> Result<&'a Obj, ApiStatus> {
    let missing = || ApiStatus::not_found(bound.resource.subject(&bound.key.name));
    now.filter(|now| now.meta("uid") == bound.meta("uid")).ok_or_else(missing)
}

pub(crate) fn node_of(pod: &Value) -> &str {
    pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_ending(pod: &Obj) -> bool {
    pod.meta("deletionTimestamp").is_some()
}

pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let is = |condition: &Value, key: &str, value: &str| condition.get(key) == Some(&json!(value));
    conditions.into_iter().any(|c| is(c, "type", "Ready") && is(c, "status", "True"))
}

/// Runs all pods for as long as the store lives.
pub(crate) async fn run(store: Arc<Store>, program: PodProgram) {
    // The running pods by UID. Dropping a sender ends the pod's program at once.
    let mut running: HashMap<String, watch::Sender<Option<Duration>>> = HashMap::new();
    loop {
        let everything = Selector::default();
        let Ok(mut pods) = store.watch(by_plural("pods"), None, &everything, Start::Everything) else {
            return;
        };
        running.retain(|uid, _| pods.initial.iter().any(|pod| pod.meta("uid") == Some(uid)));
        for pod in &pods.initial {
            take(&store, &program, &mut running, pod);
        }
        while let Some(Feed::Change(change)) = pods.feed.recv().await {
            if change.deleted {
                running.remove(change.object.meta("uid").unwrap_or_default());
            } else {
                take(&store, &program, &mut running, &change.object);
            }
        }
    }
}

fn take(
    store: &Arc<Store>,
    program: &PodProgram,
    running: &mut HashMap<String, watch::Sender<Option<Duration>>>,
    pod: &Obj,
) {
    let uid = pod.meta("uid").unwrap_or_default();
    let seconds = pod.value.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
    match running.get(uid) {
        Some(orders) if is_ending(pod) => {
            orders.send_replace(Some(Duration::from_secs(seconds.unwrap_or(0))));
        }
        Some(_) => {}
        None if node_of(&pod.value).is_empty() || has_ended(&pod.value) => {}
        None => {
            let orders = watch::Sender::new(None);
            let alive = RunningPod { store: store.clone(), bound: pod.clone(), grace: orders.subscribe() };
            if is_ending(pod) {
                return alive.gone();
            }
            running.insert(uid.to_owned(), orders);
            tokio::spawn(alive.run(program.clone()));
        }
    }
}

/// Returns a pod as a controller makes it from its template.
pub(crate) fn make(key: &Key, template: &Value, owner: &Obj) -> Value {
    let part = |pointer: &str| template.pointer(pointer).cloned().unwrap_or_else(|| json!({}));
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": key.name, "namespace": key.namespace, "uid": crate::store::object::uuid(), "creationTimestamp": now(),
            "labels": part("/metadata/labels"), "annotations": part("/metadata/annotations"),
            "ownerReferences": [{
                "apiVersion": owner.resource.api_version(), "kind": owner.resource.kind, "name": owner.key.name,
                "uid": owner.meta("uid"), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": part("/spec"),
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    })
}
