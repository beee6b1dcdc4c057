//! The bodies of requests, and what is read from answers.

use crate::plan::facts::ServiceKey;
use crate::plan::names::hash;
use crate::plan::status::{Change, Ingress, ServiceStatus};
use crate::status::candidate::{DURATION, LeaseState};
use crate::watch::objects::ServiceObject;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The reason of Events about Services that are not published.
pub const NOT_PUBLISHED: &str = "NotPublished";

/// Returns a time as an object has it, to the microsecond or to the second.
fn time(at: SystemTime, micros: bool) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    let text = Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default();
    if micros { format!("{}.{:06}Z", text.trim_end_matches('Z'), since.subsec_micros()) } else { text }
}

/// Returns the Lease of an answer.
pub fn lease(json: &str) -> Result<LeaseState, serde_json::Error> {
    let lease: Value = serde_json::from_str(json)?;
    let text = |at: &str| lease.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |at: &str| lease.pointer(at).and_then(Value::as_i64).unwrap_or_default();
    let duration = u64::try_from(number("/spec/leaseDurationSeconds")).unwrap_or_default();
    Ok(LeaseState {
        holder: text("/spec/holderIdentity"),
        duration: Duration::from_secs(duration),
        transitions: number("/spec/leaseTransitions"),
        version: text("/metadata/resourceVersion"),
    })
}

fn lease_spec(holder: &str, transitions: i64, anew: bool, now: SystemTime) -> Value {
    let now = time(now, true);
    let mut spec = json!({
        "holderIdentity": holder, "leaseDurationSeconds": DURATION.as_secs(),
        "leaseTransitions": transitions, "renewTime": now,
    });
    if let (true, Some(spec)) = (anew, spec.as_object_mut()) {
        spec.insert("acquireTime".to_owned(), now.into());
    }
    spec
}

/// Returns a new Lease.
pub fn new_lease(namespace: &str, name: &str, holder: &str, now: SystemTime) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": lease_spec(holder, 0, true, now),
    })
}

/// Returns the patch of a Lease that is taken or renewed.
pub fn held_lease(version: &str, holder: &str, transitions: i64, anew: bool, now: SystemTime) -> Value {
    json!({
        "metadata": {"resourceVersion": version}, "spec": lease_spec(holder, transitions, anew, now),
    })
}

/// Returns the patch of a Lease that is released.
pub fn released_lease(version: &str) -> Value {
    json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": null, "leaseDurationSeconds": 1}})
}

/// Returns the patch of a Service's status. It fails if the Service has changed since it was observed.
pub fn status_patch(status: &ServiceStatus, change: &Change) -> Value {
    let ingress = match change {
        Change::Set(entries) => json!(entries),
        Change::Remove => Value::Null,
    };
    json!({
        "metadata": {"uid": status.uid, "resourceVersion": status.version},
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

/// Returns the status in an answer.
pub fn service_status(json: &str) -> Result<ServiceStatus, serde_json::Error> {
    Ok(serde_json::from_str::<ServiceObject>(json)?.status())
}

/// Returns the entries as a log line shows them.
pub fn shown(entries: &[Ingress]) -> String {
    entries.iter().map(Ingress::address).collect::<Vec<_>>().join(",")
}

/// Returns an Event about a Service that is not published. Its name follows from the Service and the reason, so
/// that no process repeats it while the API server has it.
pub fn not_published(key: &ServiceKey, uid: &str, why: &str, instance: &str, now: SystemTime) -> Value {
    let (namespace, name) = key;
    let (now, digest) = (time(now, false), hash(format!("{uid} {why}")));
    let digest: String = digest.chars().take(16).collect();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{name}.{digest}")},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name, "uid": uid,
        },
        "type": "Warning", "reason": NOT_PUBLISHED, "message": why,
        "source": {"component": "nodegate-haproxy"},
        "reportingComponent": "nodegate-haproxy", "reportingInstance": instance,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let now = UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_042);
        let mut lease_object = new_lease("nodegate", "x", "me", now);
        lease_object["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(lease_object["spec"]["renewTime"], "2023-11-14T22:13:20.000042Z");
        let read = lease(&lease_object.to_string()).unwrap();
        let holder = "me".to_owned();
        assert_eq!(read, LeaseState { holder, duration: DURATION, transitions: 0, version: "7".to_owned() });
        assert_eq!(lease("{}").unwrap(), LeaseState::default());
        assert!(lease("<html>").is_err());
        let renewal = held_lease("7", "me", 0, false, now);
        assert!(
            renewal["spec"].get("acquireTime").is_none() && renewal["metadata"]["resourceVersion"] == "7"
        );
    }

    #[test]
    fn one_reason_of_one_service_has_one_name() {
        let key = ("shop".to_owned(), "web".to_owned());
        let name = |uid, why, at| {
            let event = not_published(&key, uid, why, "me", UNIX_EPOCH + Duration::from_secs(at));
            event["metadata"]["name"].as_str().unwrap().to_owned()
        };
        assert_eq!(name("u", "why", 1), name("u", "why", 2));
        assert!(name("u", "why", 1) != name("u", "other", 1) && name("u", "why", 1) != name("v", "why", 1));
    }
}
