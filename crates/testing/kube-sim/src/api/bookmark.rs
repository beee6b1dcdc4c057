//! Bookmarks: their times and their content.

use crate::store::object::{Key, Obj, Object, meta_mut};
use crate::store::resource::Resource;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_mins(1);
/// The time between the API server's last bookmark and the end of the watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Returns the time of the next bookmark: after one interval with a little jitter, or shortly before the end
/// if that is sooner.
pub(super) fn next(now: Instant, deadline: Instant) -> Option<Instant> {
    let jittered = INTERVAL.mul_f64(1.0 - fastrand::f64() / 50.0);
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now)?;
    Some((now + jittered).min(last))
}

/// Returns an empty object with only a version.
pub(super) fn object(resource: &'static Resource, version: u64) -> Obj {
    let mut value = match resource.plural {
        "nodes" => json!({"spec": {}, "status": blank_status()}),
        "pods" => json!({"spec": {"containers": null}, "status": {}}),
        "services" => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        "endpointslices" => json!({"addressType": "", "endpoints": null, "ports": null}),
        "configmaps" | "secrets" | "serviceaccounts" => json!({}),
        _ if resource.has_status() => json!({"spec": {}, "status": {}}),
        _ => json!({"spec": {}}),
    };
    meta_mut(&mut value).insert("resourceVersion".to_owned(), Value::String(version.to_string()));
    Object::new(resource, Key::new("", ""), value)
}

/// Returns an empty status of a Node. Go prints these fields even when they are empty.
fn blank_status() -> Value {
    json!({
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "", "architecture": "",
        },
    })
}
