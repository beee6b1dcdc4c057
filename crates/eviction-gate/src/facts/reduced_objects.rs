//! Objects of the API, reduced to the fields on which a decision depends. `review::gate` reads them.

use crate::decision::{EvictWhen, Why};
use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use nodegate_agent_client::{NodeIdentity, agent_addresses};
use nodegate_kube_follow::WatchedNode;
use nodegate_program::sanitize_short;
use nodegate_readiness::{DrainSignals, EXCLUDE_LABEL, NodeFacts};
use serde::Deserialize;
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

/// What the gate reads of a Pod, of a Namespace, and besides [`WatchedNode`] of a Node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    /// Of a Pod.
    node_name: String,
    /// Of a Node.
    taints: Option<Vec<Taint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    /// Of a Pod.
    phase: String,
    /// Of a Node.
    conditions: Option<Vec<NodeCondition>>,
}

/// A Pod that the gate may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadPod {
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) evict_when: Option<EvictWhen>,
}

/// Parses a Pod. The inner error is why the gate, which runs in this namespace, does not hold it, whatever its Node.
pub(crate) fn pod(json: &str, own_namespace: &str) -> serde_json::Result<Result<ReadPod, Why>> {
    let Object { metadata, spec, status } = serde_json::from_str(json)?;
    let mut owners = metadata.owner_references.iter().flatten();
    let is_gate = metadata.namespace.as_deref() == Some(own_namespace)
        && metadata.labels.iter().flatten().any(|(key, value)| (key.as_str(), value.as_str()) == APP);
    let exemptions = [
        (metadata.deletion_timestamp.is_some(), Why::POD_TERMINATING),
        (status.phase != "Running" || spec.node_name.is_empty(), Why::POD_NOT_RUNNING),
        (
            owners.any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet"),
            Why::POD_OF_DAEMON_SET,
        ),
        (metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR), Why::MIRROR_POD),
        // Any pod may have the label.
        (is_gate, Why::GATE_POD),
    ];
    Ok(match exemptions.into_iter().find(|(applies, _)| *applies) {
        Some((_, why)) => Err(why),
        None => Ok(ReadPod {
            evict_when: evict_when(&metadata),
            uid: metadata.uid.unwrap_or_default(),
            node: spec.node_name,
        }),
    })
}

pub(crate) fn namespace(json: &str) -> serde_json::Result<Option<EvictWhen>> {
    let Object { metadata, .. } = serde_json::from_str(json)?;
    Ok(evict_when(&metadata))
}

/// Returns the annotation; one that can't be read counts as none.
fn evict_when(meta: &ObjectMeta) -> Option<EvictWhen> {
    let word = meta.annotations.as_ref()?.get(EVICT_WHEN)?;
    let parsed = EvictWhen::of(word);
    if parsed.is_none() {
        let value = sanitize_short(word, 64);
        tracing::debug!(
            value,
            "the annotation {EVICT_WHEN} takes acknowledged, released or now; ignoring it"
        );
    }
    parsed
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
    let dated: Object = serde_json::from_str(json)?;
    let facts = node.facts();
    let reason = signals.reason(&facts);
    let cordon = dated.taint(CORDON);
    let without_cordon = NodeFacts { unschedulable: false, ..facts.clone() };
    let mut without_label = facts.clone();
    without_label.labels.remove(EXCLUDE_LABEL);
    let reason_without_label = signals.reason(&without_label);
    let is_cordoned_only = facts.unschedulable && signals.reason(&without_cordon).is_none();
    let drained_since = reason.as_ref().and_then(|reason| match reason.as_str() {
        "Unschedulable" => cordon,
        "Deleting" => dated.metadata.deletion_timestamp.as_ref().and_then(date),
        other => dated.taint(other.strip_prefix("Taint:")?),
    });
    Ok(ReadNode {
        identity: NodeIdentity {
            name: node.metadata.name.clone().unwrap_or_default(),
            uid: facts.uid.clone(),
        },
        is_draining: reason_without_label.is_some(),
        is_excluded: reason.is_some() && facts.labels.contains_key(EXCLUDE_LABEL),
        not_ready_for: dated.not_ready_since().map(|since| since_then(since, now)),
        addresses: agent_addresses(node.addresses()),
        drained_for: drained_since.map(|since| since_then(since, now)),
        cordoned_at: cordon.filter(|_| is_cordoned_only),
    })
}

impl Object {
    fn taint(&self, key: &str) -> Option<SystemTime> {
        date(self.spec.taints.iter().flatten().find(|taint| taint.key == key)?.time_added.as_ref()?)
    }

    /// Returns `None` for a Node that is ready, or that does not say since when it is not.
    fn not_ready_since(&self) -> Option<SystemTime> {
        let ready = self.status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready")?;
        (ready.status != "True").then(|| date(ready.last_transition_time.as_ref()?))?
    }
}

fn date(Time(at): &Time) -> Option<SystemTime> {
    Some(UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_millisecond()).ok()?))
}

fn since_then(date: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(date).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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
            ("/metadata", json!({"deletionTimestamp": "2026-11-23T00:00:00Z"}), Why::POD_TERMINATING),
            ("/status/phase", json!("Pending"), Why::POD_NOT_RUNNING),
            ("/spec", json!({}), Why::POD_NOT_RUNNING),
            ("/metadata/ownerReferences/0/kind", json!("DaemonSet"), Why::POD_OF_DAEMON_SET),
            ("/metadata/annotations", json!({MIRROR: "x"}), Why::MIRROR_POD),
            ("/metadata/namespace", json!("nodegate"), Why::GATE_POD),
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

    const NODE: &str = r#"{"metadata":{"name":"n","uid":"u"},"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2026-11-23T00:00:00Z"}],"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#;

    proptest! {
        #[test]
        fn damaged_objects_are_read_or_refused(at in 0..NODE.len(), byte: u8, cut in 0..=NODE.len()) {
            let mut json = NODE.as_bytes().to_vec();
            json[at] = byte;
            json.truncate(cut.max(NODE.len() - 60));
            if let Ok(text) = std::str::from_utf8(&json) {
                let _ = node(text, &DrainSignals::default(), UNIX_EPOCH);
                let _ = pod(text, "nodegate");
                let _ = namespace(text);
            }
        }
    }
}
