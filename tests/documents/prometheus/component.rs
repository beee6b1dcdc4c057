//! The manifests for Prometheus' operator and Grafana. The types have the fields of the operator's
//! resources and of a rule file that nodegate uses, and reject all others: so a wrong field is found without
//! a cluster that has the definitions.

use crate::manifests::manifest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a component has for Prometheus.
pub(crate) struct Component {
    pub(crate) rules: RuleFile,
    pub(crate) dashboard: Value,
}

/// The `spec` of a `PrometheusRule`, which is a rule file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleFile {
    pub(crate) groups: Vec<Group>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) rules: Vec<Alert>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alert {
    #[serde(rename = "alert")]
    pub(crate) name: String,
    pub(crate) expr: String,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub(crate) hold: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Component {
    /// Returns the agent's.
    pub(crate) fn render() -> Self {
        Self::of(&agent_objects(), "nodegate-dashboard.json")
    }

    /// Returns that of nodegate-haproxy.
    pub(crate) fn haproxy() -> Self {
        Self::of(&haproxy_objects(), "nodegate-haproxy-dashboard.json")
    }

    /// Returns that of the eviction gate.
    pub(crate) fn gate() -> Self {
        Self::of(&gate_objects(), "nodegate-eviction-gate-dashboard.json")
    }

    fn of(objects: &[Value], dashboard: &str) -> Self {
        let spec = |kind: &str| the(objects, kind)["spec"].clone();
        let dashboard = the(objects, "ConfigMap")["data"][dashboard].as_str().unwrap();
        Self {
            rules: serde_json::from_value(spec("PrometheusRule")).unwrap(),
            dashboard: serde_json::from_str(dashboard).unwrap(),
        }
    }
}

fn agent_objects() -> Vec<Value> {
    [manifest("install").0, manifest("prometheus").0].concat()
}

fn haproxy_objects() -> Vec<Value> {
    [manifest("haproxy").0, manifest("prometheus-haproxy").0].concat()
}

/// Returns all objects of the eviction gate, with those for Prometheus.
pub(crate) fn gate_objects() -> Vec<Value> {
    [manifest("eviction-gate").0, manifest("prometheus-eviction-gate").0].concat()
}

fn the<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let one = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    one
}
