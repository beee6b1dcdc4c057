//! Made-up members of the real cluster: Nodes without a machine, whose Leases a thread renews as a kubelet would.

use super::RealCluster;
use super::api::{Api, MERGE, STRATEGIC};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// As a kubelet's.
const RENEWAL: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A Node whose Lease is renewed every 10 s until it is silenced; deleted when dropped.
pub struct Member {
    api: Api,
    name: String,
    silent: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RealCluster {
    /// Adds a Node of this name that says it is Ready.
    pub fn member(&self, name: &str) -> Member {
        let (silent, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut member = Member { api: self.api.clone(), name: name.to_owned(), silent, ended, thread: None };
        member.remove();
        member.create();
        let (api, name) = (member.api.clone(), name.to_owned());
        let (silent, ended) = (member.silent.clone(), member.ended.clone());
        member.thread = Some(thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                if !silent.load(Ordering::SeqCst) {
                    renew(&api, &name);
                }
                let next = Instant::now() + RENEWAL;
                while Instant::now() < next && !ended.load(Ordering::SeqCst) {
                    thread::sleep(PAUSE);
                }
            }
        }));
        member
    }
}

/// Renews a Lease, or makes it. In an outage it fails, as a kubelet does, and goes on.
fn renew(api: &Api, name: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now});
    if api.patch(&format!("{LEASES}/{name}"), MERGE, &json!({"spec": &spec})).is_err() {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
        let _ = api.create(LEASES, &lease);
    }
}

/// A condition that is so since now.
fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": kind, "status": status, "reason": reason, "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

impl Member {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of its object.
    pub fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// Creates its object, Ready, by one write as a kubelet does.
    pub fn create(&self) {
        let labels = json!({"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"});
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels},
            "status": {"conditions": [condition("Ready", "True", "KubeletReady")]},
        });
        self.api.create("/api/v1/nodes", &object).unwrap();
        renew(&self.api, &self.name);
    }

    /// Patches its object, in the way that `kind` names.
    #[track_caller]
    pub fn patch(&self, kind: &str, patch: &Value) {
        self.api.patch(&self.path(), kind, patch).unwrap();
    }

    /// Patches its status.
    #[track_caller]
    pub fn patch_status(&self, status: &Value) {
        let patch = json!({"status": status});
        self.api.patch(&format!("{}/status", self.path()), STRATEGIC, &patch).unwrap();
    }

    /// Sets a condition as its kubelet would.
    #[track_caller]
    pub fn set_condition(&self, kind: &str, status: &str, reason: &str) {
        self.patch_status(&json!({"conditions": [condition(kind, status, reason)]}));
    }

    /// Its kubelet falls silent, or is heard again.
    pub fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
        if !silent {
            renew(&self.api, &self.name);
            self.set_condition("Ready", "True", "KubeletReady");
        }
    }

    /// Deletes its object, if there is one; a finalizer keeps it.
    pub fn delete(&self) {
        let _ = self.api.delete(&self.path());
    }

    /// Deletes its object, whatever its finalizers.
    fn remove(&self) {
        self.delete();
        let _ = self.api.patch(&self.path(), MERGE, &json!({"metadata": {"finalizers": null}}));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.remove();
        let _ = self.api.delete(&format!("{LEASES}/{}", self.name));
    }
}
