//! The kubelets' work with pods. A bound pod runs until it is told to end, and has its grace period for that.
//! The embedding program supplies the code that runs in a pod.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::store::object::{Key, Obj, child_mut};
use crate::store::resource::by_plural;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::time::now;
use crate::store::{Edit, Feed, Start, Store};
use crate::writes::managed_fields;

/// The program that runs in pods. The simulator calls it when a pod is bound to a node. The pod is gone when
/// the future has ended, or when the simulator drops the future at the end of the grace period.
#[derive(Clone)]
pub struct PodProgram(Arc<dyn Fn(RunningPod) -> BoxFuture<'static, ()> + Send + Sync>);

impl fmt::Debug for PodProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PodProgram")
    }
}

impl PodProgram {
    /// Wraps a function that starts a pod's program.
    pub fn new<F>(program: impl Fn(RunningPod) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        PodProgram(Arc::new(move |pod| Box::pin(program(pod))))
    }

    /// Returns a program that is ready at once, does nothing, and takes this long to end.
    pub fn idle(to_end: Duration) -> Self {
        Self::new(move |mut pod| async move {
            pod.ready(IpAddr::from([10, 244, fastrand::u8(..), fastrand::u8(1..255)]));
            pod.asked_to_end().await;
            sleep(to_end).await;
        })
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
        let now = now();
        self.write("kubelet", |pod| {
            let statuses = containers(pod, &json!({"running": {"startedAt": now}}), true);
            let status = child_mut(pod, "status");
            for (key, value) in [
                ("phase", json!("Running")),
                ("podIP", json!(address)),
                ("podIPs", json!([{"ip": address}])),
                ("startTime", json!(now)),
                ("containerStatuses", statuses),
                ("conditions", conditions("True", &now)),
            ] {
                status.insert(key.to_owned(), value);
            }
        });
    }

    /// Marks the pod as running but not ready.
    pub fn unready(&self) {
        self.write("kubelet", |pod| {
            child_mut(pod, "status").insert("conditions".to_owned(), conditions("False", &now()));
        });
    }

    /// Waits until the pod is told to end, as by SIGTERM.
    pub async fn asked_to_end(&mut self) {
        self.told_to_end().await;
    }

    /// Marks the pod as succeeded: its program has ended by itself.
    fn completed(&self) {
        self.write("kubelet", |pod| {
            let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now()}});
            let statuses = containers(pod, &ended, false);
            let status = child_mut(pod, "status");
            status.insert("phase".to_owned(), json!("Succeeded"));
            status.insert("containerStatuses".to_owned(), statuses);
            status.insert("conditions".to_owned(), conditions("False", &now()));
        });
    }

    fn write(&self, manager: &str, change: impl FnOnce(&mut Value)) {
        let _ = self.store.write(by_plural("pods"), &self.bound.key, |old| {
            let old = same(&self.bound, old)?;
            let mut new = old.value.clone();
            change(&mut new);
            managed_fields::updated(old.resource, Some(&old.value), &mut new, manager, "status");
            Ok(Edit::Put(new))
        });
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

    /// Runs the program to its end.
    async fn run(self, program: PodProgram) {
        let (mut pod, mut runs) = (self.clone(), (program.0)(self));
        let grace = tokio::select! {
            () = &mut runs => None,
            grace = pod.told_to_end() => Some(grace),
        };
        match grace {
            None => {
                pod.completed();
                if pod.told_to_end().await.is_some() {
                    pod.gone();
                }
            }
            Some(None) => {}
            Some(Some(grace)) => tokio::select! {
                _ = timeout(grace, runs) => pod.gone(),
                () = pod.taken_away() => {}
            },
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

/// Returns true if the pod has been told to end.
pub(crate) fn is_ending(pod: &Obj) -> bool {
    pod.meta("deletionTimestamp").is_some()
}

/// Returns true if nothing runs in the pod any more.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

/// Returns true if the pod's Ready condition is True.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let is = |condition: &Value, key: &str, value: &str| condition.get(key) == Some(&json!(value));
    conditions.into_iter().any(|c| is(c, "type", "Ready") && is(c, "status", "True"))
}

fn conditions(ready: &str, now: &str) -> Value {
    let one = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now});
    let all =
        [("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready)];
    Value::Array(all.map(|(kind, status)| one(kind, status)).into())
}

fn containers(pod: &Value, state: &Value, ready: bool) -> Value {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let status = |container: &Value| {
        json!({
            "name": container.get("name"), "image": container.get("image"), "imageID": "", "ready": ready,
            "started": ready, "restartCount": 0, "lastState": {}, "state": state,
        })
    };
    Value::Array(containers.map(status).collect())
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
