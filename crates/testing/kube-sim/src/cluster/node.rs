//! Realistic nodes: the shape of a captured node, with an adjustable size.

use crate::store::object::{Key, now, uuid};
use crate::store::resource::nodes;
use crate::store::status::ApiStatus;
use crate::store::{Edit, Store};
use crate::writes::record_manager;
use serde_json::{Value, json};

const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// Returns a node as a kubelet registers it. `index` makes its address unique. Images fill its JSON up to about `bytes`;
/// a node that runs many has 20 kB.
pub fn make(name: &str, index: usize, bytes: usize) -> Value {
    let (now, id) = (now(), uuid().replace('-', ""));
    let conditions: Vec<Value> = CONDITIONS
        .iter()
        .map(|(kind, status, reason, message)| {
            json!({"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": reason, "message": message})
        })
        .collect();
    let address = format!("10.{}.{}.{}", 64 + (index >> 16) % 64, (index >> 8) & 255, index & 255);
    let resources = json!({"cpu": "8", "ephemeral-storage": "264212084Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": "32684092Ki", "pods": "110"});
    let mut node = json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": id, "systemUUID": id, "bootID": uuid(),
                "kernelVersion": "6.12.44", "osImage": "Debian GNU/Linux 12 (bookworm)",
                "containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
            "images": [],
        },
    });
    let image = |number: usize| {
        let name = format!("registry.example.com/service-{number}");
        let digest = format!("{:064x}", fastrand::u128(..));
        let names = [format!("{name}@sha256:{digest}"), format!("{name}:v1.{}.0", fastrand::u8(..))];
        json!({"names": names, "sizeBytes": fastrand::u64(1_000_000..900_000_000)})
    };
    let images = bytes.saturating_sub(node.to_string().len() + 700) / image(0).to_string().len();
    node["status"]["images"] = (0..images).map(image).collect();
    node
}

/// Changes a node as `manager`. Nothing is written if the node stays the same. Returns false if the node does
/// not exist.
pub(crate) fn edit(
    store: &Store,
    name: &str,
    (manager, subresource): (&str, &'static str),
    change: impl FnOnce(&mut Value),
) -> bool {
    let written = store.write(nodes(), &Key::new("", name), |old| {
        let old = &old.ok_or_else(|| ApiStatus::not_found(nodes().subject(name)))?.value;
        let mut new = old.clone();
        change(&mut new);
        if *old == new {
            return Ok(Edit::Keep);
        }
        record_manager(Some(old), &mut new, manager, subresource);
        Ok(Edit::Put(new))
    });
    written.is_ok()
}

/// Sets a condition as a kubelet or the node-problem-detector would: the transition time changes only when
/// the status does.
pub(crate) fn set_condition(node: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let now = now();
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut fresh = json!({
        "type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
        "reason": reason, "message": message,
    });
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            if old["status"] == fresh["status"] {
                fresh["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = fresh;
        }
        None => conditions.push(fresh),
    }
    node["status"]["conditions"] = json!(conditions);
}
