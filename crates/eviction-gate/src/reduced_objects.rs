//! Objects of the API, reduced to the fields on which a decision depends. `gate` reads them.

use crate::decision::{EVICT_WHEN_WORDS, EvictWhen, Why};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use nodegate_agent_client::{NodeIdentity, agent_addresses};
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::{DrainSignals, EXCLUDE_LABEL, NodeFacts};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The annotation of a Pod or of its Namespace.
pub(crate) const EVICT_WHEN: &str = "nodegate.io/evict-when";
/// The label by which the gate recognizes its own pods, and its value.
const APP: (&str, &str) = ("app.kubernetes.io/name", "nodegate-eviction-gate");
/// The kubelet's mark of a pod that it made from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The node controller's taint of a cordoned Node, which has the date of the cordon.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// A Pod that the gate may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadPod {
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) evict_when: Option<EvictWhen>,
}

/// Parses a Pod. The inner error is why the gate, which runs in this namespace, does not hold it, whatever its Node.
pub(crate) fn pod(json: &str, own_namespace: &str) -> serde_json::Result<Result<ReadPod, Why>> {
    let Pod { metadata, spec, status } = serde_json::from_str(json)?;
    let node = spec.and_then(|spec| spec.node_name).unwrap_or_default();
    let is_running = status.and_then(|status| status.phase).is_some_and(|phase| phase == "Running");
    let mut owners = metadata.owner_references.iter().flatten();
    let app = metadata.labels.as_ref().and_then(|labels| labels.get(APP.0));
    Ok(if metadata.deletion_timestamp.is_some() {
        Err("pod_terminating")
    } else if !is_running || node.is_empty() {
        Err("pod_not_running")
    } else if owners.any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet") {
        Err("daemonset")
    } else if metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR)) {
        Err("mirror_pod")
    } else if metadata.namespace.as_deref() == Some(own_namespace) && app.is_some_and(|app| app == APP.1) {
        // Any pod may have the label.
        Err("gate_pod")
    } else {
        Ok(ReadPod { evict_when: evict_when(&metadata), uid: metadata.uid.unwrap_or_default(), node })
    })
}

pub(crate) fn namespace(json: &str) -> serde_json::Result<Option<EvictWhen>> {
    serde_json::from_str(json).map(|Namespace { metadata, .. }| evict_when(&metadata))
}

/// Returns the annotation; one that can't be read counts as none.
fn evict_when(meta: &ObjectMeta) -> Option<EvictWhen> {
    let word = meta.annotations.as_ref()?.get(EVICT_WHEN)?;
    EVICT_WHEN_WORDS.into_iter().find(|(known, _)| *known == word.trim()).map(|(_, when)| when)
}

/// A Node, and how its agent is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadNode {
    pub(crate) identity: NodeIdentity,
    /// Whether it has a drain signal besides its label [`EXCLUDE_LABEL`].
    pub(crate) is_draining: bool,
    /// Whether that label is a drain signal of it: load balancers leave it out by design.
    pub(crate) is_excluded: bool,
    /// For how long its condition `Ready` has not been True.
    pub(crate) not_ready_for: Option<Duration>,
    /// The addresses at which its agent is asked, the preferred one first.
    pub(crate) addresses: Vec<IpAddr>,
    /// The age of its first drain signal, if that has a date.
    pub(crate) drained_for: Option<Duration>,
    /// The date of the cordon, if nothing else drains it.
    pub(crate) cordoned_at: Option<SystemTime>,
}

impl ReadNode {
    /// Returns what tells it from all other Nodes: the UID, or the name of a Node without one.
    pub(crate) fn key(&self) -> &str {
        self.identity.uid.as_deref().unwrap_or(&self.identity.name)
    }
}

/// Parses a Node, as of this time by the API server's clock. The dates in a Node come from the control plane's clocks, so
/// that the gate's own does not matter.
pub(crate) fn node(json: &str, signals: &DrainSignals, now: SystemTime) -> serde_json::Result<ReadNode> {
    let node: WatchedNode = serde_json::from_str(json)?;
    let Node { metadata, spec, status } = serde_json::from_str(json)?;
    let taints = spec.and_then(|spec| spec.taints).unwrap_or_default();
    let tainted_at = |key: &str| date(taints.iter().find(|taint| taint.key == key)?.time_added.as_ref());
    let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let not_ready = ready.filter(|condition| condition.status != "True");
    let facts = node.facts();
    let reason = signals.reason(&facts);
    let cordon = tainted_at(CORDON);
    let without_cordon = NodeFacts { unschedulable: false, ..facts.clone() };
    let mut without_label = facts.clone();
    without_label.labels.remove(EXCLUDE_LABEL);
    let is_cordoned_only = facts.unschedulable && signals.reason(&without_cordon).is_none();
    let drained_since = reason.as_ref().and_then(|reason| match reason.as_str() {
        "Unschedulable" => cordon,
        "Deleting" => date(metadata.deletion_timestamp.as_ref()),
        other => tainted_at(other.strip_prefix("Taint:")?),
    });
    let since_then = |date: SystemTime| now.duration_since(date).unwrap_or_default();
    Ok(ReadNode {
        is_draining: signals.reason(&without_label).is_some(),
        is_excluded: reason.is_some() && facts.labels.contains_key(EXCLUDE_LABEL),
        identity: NodeIdentity { name: metadata.name.unwrap_or_default(), uid: facts.uid },
        not_ready_for: not_ready.and_then(|ready| date(ready.last_transition_time.as_ref())).map(since_then),
        addresses: agent_addresses(node.addresses()),
        drained_for: drained_since.map(since_then),
        cordoned_at: cordon.filter(|_| is_cordoned_only),
    })
}

fn date(at: Option<&Time>) -> Option<SystemTime> {
    Some(UNIX_EPOCH + Duration::from_millis(u64::try_from(at?.0.as_millisecond()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_read_and_those_without_traffic_are_free() {
        let with = |pointer: &str, value: serde_json::Value| {
            let mut pod = json!({
                "metadata": {"uid": "u", "namespace": "d", "annotations": {EVICT_WHEN: "released"}, "labels": {APP.0: APP.1},
                    "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]},
                "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
            });
            *pod.pointer_mut(pointer).unwrap() = value;
            super::pod(&pod.to_string(), "nodegate").unwrap()
        };
        let evict_when = Some(EvictWhen::Released);
        let held = ReadPod { uid: "u".into(), node: "n1".into(), evict_when };
        assert_eq!(with("/metadata/namespace", json!("other")), Ok(held), "any pod may have the label");
        for (pointer, value, why) in [
            ("/metadata", json!({"deletionTimestamp": "2026-11-23T00:00:00Z"}), "pod_terminating"),
            ("/status/phase", json!("Pending"), "pod_not_running"),
            ("/spec", json!({}), "pod_not_running"),
            ("/metadata/ownerReferences/0/kind", json!("DaemonSet"), "daemonset"),
            ("/metadata/annotations", json!({MIRROR: "x"}), "mirror_pod"),
            ("/metadata/namespace", json!("nodegate"), "gate_pod"),
        ] {
            assert_eq!(with(pointer, value), Err(why), "{pointer}");
        }
        assert!(with("/metadata/ownerReferences/0", json!({"kind": "DaemonSet"})).is_ok());
        for (word, evict_when) in [
            ("acknowledged", Some(EvictWhen::Acknowledged)),
            ("now ", Some(EvictWhen::Now)),
            ("acknowledge", None),
        ] {
            let pod = with("/metadata/annotations", json!({EVICT_WHEN: word}));
            assert_eq!(pod.unwrap().evict_when, evict_when);
        }
    }

    #[test]
    fn a_node_is_read() {
        let json = json!({
            "metadata": {"name": "n1", "uid": "u1"},
            "spec": {"unschedulable": true, "taints": [{"key": CORDON, "effect": "NoSchedule", "timeAdded": "2026-11-22T23:59:30Z"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-23T00:00:00Z"}],
            },
        });
        let read = |signals: &str, json: &serde_json::Value, at| {
            let signals = signals.parse().unwrap();
            node(&json.to_string(), &signals, at).unwrap()
        };
        let all = DrainSignals::default().to_string();
        let at = UNIX_EPOCH + Duration::from_secs(1_795_392_000 + 40);
        let cordoned = read(&all, &json, at);
        assert!(cordoned.is_draining);
        assert_eq!(cordoned.not_ready_for, Some(Duration::from_secs(40)));
        assert_eq!(cordoned.drained_for, Some(Duration::from_secs(70)));
        assert_eq!(cordoned.cordoned_at, Some(at - Duration::from_secs(70)));
        assert_eq!(cordoned.identity, NodeIdentity { name: "n1".into(), uid: Some("u1".into()) });
        assert_eq!(cordoned.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        // A clock that is behind the dates.
        let early = read(&all, &json, UNIX_EPOCH);
        assert_eq!((early.not_ready_for, early.drained_for), (Some(Duration::ZERO), Some(Duration::ZERO)));
        assert!(!read("none", &json, at).is_draining);
        let mut labelled = json.clone();
        labelled["metadata"]["labels"] = json!({EXCLUDE_LABEL: ""});
        let states = |json: &serde_json::Value| {
            [&all, "none"].map(|signals| {
                let node = read(signals, json, at);
                (node.is_draining, node.is_excluded)
            })
        };
        assert_eq!(states(&labelled), [(true, true), (false, false)]);
        labelled["spec"] = json!({});
        assert_eq!(states(&labelled), [(false, true), (false, false)]);
        // A second signal, which may have been there before the cordon and stay after it.
        let mut json = json;
        json["metadata"]["deletionTimestamp"] = json!("2026-11-23T00:00:00Z");
        assert_eq!(read(&all, &json, at).cordoned_at, None);
        json["spec"]["unschedulable"] = json!(false);
        assert_eq!(read(&all, &json, at).drained_for, Some(Duration::from_secs(40)));
    }
}
