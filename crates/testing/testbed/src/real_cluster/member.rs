//! Artificial members of the real cluster: Nodes without a machine, whose Leases a thread renews.

use super::RealCluster;
use super::api::{Api, MERGE, STRATEGIC};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The interval of Lease renewals, as a kubelet's.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A Node whose Lease is renewed every 10 s until it is silenced. Drop deletes it.
pub struct Member {
    api: Api,
    name: String,
    silent: Arc<AtomicBool>,
    /// The thread that renews the Lease. It ends when the sender is dropped.
    renewal: Option<(Sender<()>, JoinHandle<()>)>,
}

impl RealCluster {
    pub fn member(&self, name: &str) -> Member {
        let silent = Arc::new(AtomicBool::new(false));
        let mut member = Member { api: self.api.clone(), name: name.to_owned(), silent, renewal: None };
        let _ = member.api.delete(&member.path());
        let metadata =
            json!({"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": ready()});
        member.api.create("/api/v1/nodes", &node).unwrap();
        renew(&member.api, name);
        let (api, name, silent) = (member.api.clone(), name.to_owned(), member.silent.clone());
        let (sender, ended) = channel();
        let thread = thread::spawn(move || {
            while ended.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                if !silent.load(Ordering::SeqCst) {
                    renew(&api, &name);
                }
            }
        });
        member.renewal = Some((sender, thread));
        member
    }
}

/// Renews or creates a Lease. Like a kubelet, it ignores failures during an outage.
fn renew(api: &Api, name: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now});
    if api.patch(&format!("{LEASES}/{name}"), MERGE, &json!({"spec": &spec})).is_err() {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
        let _ = api.create(LEASES, &lease);
    }
}

/// Returns the status of a Node that is Ready from now on.
fn ready() -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]})
}

impl Member {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// Stops the Lease renewals if `silent`, and resumes them otherwise.
    pub fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
        if !silent {
            renew(&self.api, &self.name);
            let status = json!({"status": ready()});
            self.api.patch(&format!("{}/status", self.path()), STRATEGIC, &status).unwrap();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.renewal.take() {
            drop(sender);
            let _ = thread.join();
        }
        let _ = self.api.delete(&self.path());
        let _ = self.api.delete(&format!("{LEASES}/{}", self.name));
    }
}
