//! Helm rejects wrong values with a message, and the others work as values.yaml describes.

use super::template;
use crate::manifests::{Json, Manifests};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the agent's variables with their values; a variable that comes from a field has an empty one.
fn variables(manifests: &Manifests) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let container = &manifests.pod().every("/containers")[0];
    container
        .every("/env")
        .iter()
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect()
}

#[test]
fn an_empty_value_keeps_the_agents_default() {
    let empty = json!({"settings": {"onStale": "", "maxDrained": ""}});
    let names: Vec<_> = variables(&template(&empty).unwrap()).into_keys().collect();
    assert_eq!(names, ["NODEGATE_STATE_DIR", "NODE_NAME"]);
}

/// A certificate, as far as the chart looks.
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";

/// Wrong values, and the part of Helm's message that names them.
const REFUSED: &str = include_str!("refused.txt");

#[test]
fn wrong_values_of_the_chart_are_rejected_with_a_message() {
    for row in REFUSED.trim().lines() {
        let (values, why) = row.split_once(" => ").unwrap();
        let values: Value = serde_json::from_str(values).unwrap();
        let said = template(&values).err().unwrap_or_else(|| panic!("{values} is taken"));
        assert!(said.contains(why), "{values}: {said}");
    }
}

#[test]
fn only_the_kubelets_probes_follow_listen_port() {
    let manifests =
        template(&json!({"settings": {"listenPort": 25011, "metricsAddr": "[::]:25004"}})).unwrap();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(manifests.pod().at(&format!("/containers/0/{probe}/httpGet/port")), 25011);
    }
    assert_eq!(manifests.pod().every("/containers")[0].get("ports"), None);
}

#[test]
fn the_chart_gives_haproxy_its_template_and_settings() {
    let manifests = template(&json!({"haproxy": {
        "enabled": true, "template": "global\n  maxconn 100\n", "syncResources": {},
        "settings": {"forward": ["a=1:2@b?c", "d=3:4"], "namespaces": ["a", "b"], "logFormat": "json", "listen": "0.0.0.0:25009"},
    }}))
    .unwrap();
    let template = manifests.the("ConfigMap", "nodegate-haproxy-template");
    assert_eq!(template.at("/data"), &json!({"haproxy.cfg.TEMPLATE": "global\n  maxconn 100\n"}));
    let pod = manifests.the("DaemonSet", "nodegate-haproxy").at("/spec/template/spec");
    let container = pod.at("/containers/1");
    let set: BTreeMap<_, _> =
        container.every("/env").iter().map(|v| (v["name"].as_str().unwrap(), &v["value"])).collect();
    for (name, value) in [
        ("NODEGATE_HAPROXY_NAMESPACES", "a,b"),
        ("NODEGATE_HAPROXY_FORWARD", "a=1:2@b?c;d=3:4"),
        ("NODEGATE_HAPROXY_TEMPLATE", "/etc/nodegate-haproxy/haproxy.cfg.TEMPLATE"),
        ("NODEGATE_LOG_FORMAT", "json"),
    ] {
        assert_eq!(set[name], value);
    }
    assert_eq!(pod.at("/containers/1/readinessProbe/httpGet/port"), 25009);
}

#[test]
fn the_gate_takes_what_it_must_know_of_the_agents_and_its_certificate() {
    let gate = |values: Value| {
        let manifests = template(&values).unwrap();
        let name = values["fullnameOverride"].as_str().unwrap_or("nodegate").to_owned() + "-eviction-gate";
        let container = manifests.the("Deployment", &name).at("/spec/template/spec/containers/0").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let set: BTreeMap<_, _> =
            container.every("/env").iter().map(|each| (text(&each["name"]), text(&each["value"]))).collect();
        (manifests, container, set)
    };
    let ports = json!({"listen": "[::]:26005", "healthListen": "[::]:26006"});
    let (manifests, container, _) = gate(json!({"evictionGate": {"enabled": true, "settings": ports}}));
    assert_eq!(container.at("/readinessProbe/httpGet/port"), 26006);
    // Its own pods that are not ready hold no drain.
    let budget = manifests.the("PodDisruptionBudget", "nodegate-eviction-gate");
    assert_eq!(budget.at("/spec/unhealthyPodEvictionPolicy"), "AlwaysAllow");
    assert_eq!(manifests.the("Service", "nodegate-eviction-gate").at("/spec/ports/0/targetPort"), 26005);

    let agents = json!({"drainOn": ["deleting"], "listenPort": 25012});
    let (_, _, set) = gate(json!({"evictionGate": {"enabled": true}, "settings": agents}));
    assert_eq!(
        (set["NODEGATE_GATE_DRAIN_ON"].as_str(), set["NODEGATE_GATE_AGENT_PORT"].as_str()),
        ("deleting", "25012")
    );

    let values = json!({"fullnameOverride": "edge", "evictionGate": {"enabled": true, "tlsSecret": "gate-tls", "caBundle": CA,
            "clientCaSecret": "api-servers"}});
    let (manifests, container, set) = gate(values);
    assert_eq!(set["NODEGATE_GATE_NAME"], "edge-eviction-gate");
    assert_eq!(set["NODEGATE_GATE_CLIENT_CA_FILE"], "/client-ca/ca.crt");
    assert_eq!(container.at("/volumeMounts/1/mountPath"), "/client-ca");
    let webhook =
        manifests.the("ValidatingWebhookConfiguration", "edge-eviction-gate").at("/webhooks/0").clone();
    assert_eq!(webhook.at("/clientConfig/caBundle"), CA);
    let rights = manifests.the("ClusterRole", "edge-eviction-gate").at("/rules").to_string();
    assert!(!rights.contains("validatingwebhookconfigurations"), "{rights}");
    assert_eq!(set["NODEGATE_GATE_TLS_CERT_FILE"], "/tls/tls.crt");
    assert_eq!(container.at("/volumeMounts/0/mountPath"), "/tls");
    assert!(!manifests.names().iter().any(|name| name.starts_with("Secret ")), "cert-manager's");
}
