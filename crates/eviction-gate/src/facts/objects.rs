//! Objects of the API, reduced to the fields that matter.

use crate::decision::{EvictWhen, NodeView, PodView};
use k8s_openapi::jiff::Timestamp;
use nodegate_agent_client::{NodeIdentity, harmless};
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::DrainSignals;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The annotation of a Pod or of its Namespace.
pub const EVICT_WHEN: &str = "nodegate.io/evict-when";
/// The label by which the gate recognizes its own pods.
const APP: &str = "app.kubernetes.io/name";
/// The kubelet's mark of a pod that it made from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The most addresses of a Node at which its agent is asked.
const MOST_ADDRESSES: usize = 4;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    phase: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ReadySince {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Option<Vec<DatedCondition>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DatedCondition {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    last_transition_time: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Annotated {
    #[serde(default)]
    metadata: Meta,
}

/// Parses a Pod.
pub fn pod(json: &str) -> serde_json::Result<PodView> {
    let Pod { metadata, spec, status } = serde_json::from_str(json)?;
    let evict_when = evict_when(&metadata);
    let owners = metadata.owner_references.unwrap_or_default();
    Ok(PodView {
        uid: metadata.uid.unwrap_or_default(),
        namespace: metadata.namespace.unwrap_or_default(),
        node: spec.node_name.unwrap_or_default(),
        is_terminating: metadata.deletion_timestamp.is_some(),
        is_running: status.phase.as_deref() == Some("Running"),
        is_daemon: owners.iter().any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet"),
        is_mirror: metadata.annotations.is_some_and(|all| all.contains_key(MIRROR)),
        app: metadata.labels.and_then(|mut labels| labels.remove(APP)),
        evict_when,
    })
}

/// Parses the annotation of a Namespace.
pub fn namespace(json: &str) -> serde_json::Result<Option<EvictWhen>> {
    let Annotated { metadata } = serde_json::from_str(json)?;
    Ok(evict_when(&metadata))
}

/// Returns the annotation; one that can't be read counts as none.
fn evict_when(meta: &Meta) -> Option<EvictWhen> {
    let word = meta.annotations.as_ref()?.get(EVICT_WHEN)?;
    let parsed = EvictWhen::of(word);
    if parsed.is_none() {
        let value = harmless(&word.chars().take(64).collect::<String>());
        tracing::debug!(value, "the annotation {EVICT_WHEN} takes told, released or now; ignoring it");
    }
    parsed
}

/// A Node, and how its agent is asked.
#[derive(Clone, Debug)]
pub struct ReadNode {
    /// What the decision depends on.
    pub view: NodeView,
    /// Name and UID.
    pub identity: NodeIdentity,
    /// The addresses of type `InternalIP`.
    pub addresses: Vec<IpAddr>,
}

/// Parses a Node, as of this wall time.
pub fn node(json: &str, signals: &DrainSignals, now: SystemTime) -> serde_json::Result<ReadNode> {
    let node: WatchedNode = serde_json::from_str(json)?;
    let dated: ReadySince = serde_json::from_str(json)?;
    let name = node.metadata.name.clone().unwrap_or_default();
    let facts = node.facts();
    let internal = node.addresses().filter(|(kind, _)| *kind == "InternalIP").map(|(_, address)| address);
    Ok(ReadNode {
        view: NodeView {
            name: name.clone(),
            drain_reason: signals.reason(&facts).map(|reason| reason.to_string()),
            not_ready_for: not_ready_for(&dated, now),
        },
        identity: NodeIdentity { name, uid: facts.uid.clone() },
        addresses: internal.take(MOST_ADDRESSES).collect(),
    })
}

/// Returns `None` for a Node that is ready, or that does not say since when it is not.
fn not_ready_for(node: &ReadySince, now: SystemTime) -> Option<Duration> {
    let conditions = node.status.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.kind == "Ready")?;
    if ready.status == "True" {
        return None;
    }
    let since: Timestamp = ready.last_transition_time.as_ref()?.parse().ok()?;
    let now = i64::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    let millis = now.saturating_sub(since.as_millisecond());
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_read() {
        let read = |value: serde_json::Value| pod(&value.to_string()).unwrap();
        assert_eq!(read(json!({})), PodView::default());
        let view = read(json!({
            "metadata": {"uid": "u", "namespace": "d", "annotations": {EVICT_WHEN: "released"},
                "labels": {APP: "web"}, "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
        }));
        let expected = PodView {
            uid: "u".into(),
            namespace: "d".into(),
            node: "n1".into(),
            is_running: true,
            app: Some("web".into()),
            evict_when: Some(EvictWhen::Released),
            ..PodView::default()
        };
        assert_eq!(view, expected);
        assert!(
            read(json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": true}]}}))
                .is_daemon
        );
        assert!(!read(json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}})).is_daemon);
        assert!(read(json!({"metadata": {"annotations": {MIRROR: "x"}}})).is_mirror);
        assert!(read(json!({"metadata": {"deletionTimestamp": "2026-11-23T00:00:00Z"}})).is_terminating);
        assert_eq!(read(json!({"metadata": {"annotations": {EVICT_WHEN: "tolled"}}})).evict_when, None);
    }

    #[test]
    fn a_node_is_read() {
        let json = json!({
            "metadata": {"name": "n1", "uid": "u1"}, "spec": {"unschedulable": true},
            "status": {
                "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-23T00:00:00Z"}],
            },
        });
        let at = UNIX_EPOCH + Duration::from_secs(1_795_392_000 + 40);
        let read = node(&json.to_string(), &DrainSignals::default(), at).unwrap();
        assert_eq!(read.view.drain_reason.as_deref(), Some("Unschedulable"));
        assert_eq!(read.view.not_ready_for, Some(Duration::from_secs(40)));
        assert_eq!(read.identity, NodeIdentity { name: "n1".into(), uid: Some("u1".into()) });
        assert_eq!(read.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        // A clock that is behind the API server's.
        let read = node(&json.to_string(), &DrainSignals::default(), UNIX_EPOCH).unwrap();
        assert_eq!(read.view.not_ready_for, Some(Duration::ZERO));
        let none: DrainSignals = "none".parse().unwrap();
        assert_eq!(node(&json.to_string(), &none, at).unwrap().view.drain_reason, None);
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
                let _ = pod(text);
                let _ = namespace(text);
            }
        }
    }
}
