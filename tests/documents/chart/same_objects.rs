//! Helm and kustomize give the same objects, compared one by one.

use super::{template, template_with};
use crate::manifests::{Json, Manifests, broken_by, knows_every_field, render};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lists of items with names, whose order means nothing.
const NAMED: [&str; 3] = ["env", "volumes", "volumeMounts"];

fn in_order(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let items = value.as_array_mut().filter(|_| NAMED.contains(&key.as_str()));
                if let Some(items) = items {
                    items.sort_by_key(|item| item["name"].to_string());
                }
                in_order(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(in_order),
        _ => {}
    }
}

/// Returns the objects by kind, namespace and name.
fn by_name(manifests: &Manifests) -> BTreeMap<String, Value> {
    let mut objects: BTreeMap<_, _> =
        manifests.names().into_iter().zip(manifests.0.iter().cloned()).collect();
    assert_eq!(objects.len(), manifests.0.len(), "no object twice");
    objects.values_mut().for_each(in_order);
    objects
}

pub(super) fn are_the_same(what: &str, chart: &Manifests, kustomize: &Manifests) {
    let (chart, kustomize) = (by_name(chart), by_name(kustomize));
    assert_eq!(chart.keys().collect::<Vec<_>>(), kustomize.keys().collect::<Vec<_>>(), "{what}");
    for (name, object) in &chart {
        assert_eq!(object, &kustomize[name], "{what}: {name}, from the chart and from kustomize");
    }
}

/// Returns an overlay's patch that adds variables.
fn with_env(variables: &[(&str, &str)]) -> String {
    let add = |(name, value): &(&str, &str)| json!({"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": name, "value": value}});
    let patch = Value::Array(variables.iter().map(add).collect());
    format!("patches:\n  - target: {{kind: DaemonSet, name: nodegate}}\n    patch: '{patch}'\n")
}

/// Returns pairs of values and the equivalent kustomization.
fn pairs() -> Vec<(Value, String)> {
    let component =
        |name: &str| format!("resources: [manifests/base]\ncomponents: [manifests/components/{name}]\n");
    let release = "  - target: {group: monitoring.coreos.com}\n    patch: |-\n      \
        - {op: add, path: /metadata/labels/release, value: kube-prometheus-stack}\n";
    let port = |of: &str, port: u16| {
        let at = |n: u8| format!("/spec/podMetricsEndpoints/0/relabelings/{n}/replacement");
        format!(
            "  - target: {{kind: PodMonitor, name: {of}}}\n    patch: |-\n      \
             - {{op: replace, path: {}, value: \"$1:{port}\"}}\n      \
             - {{op: replace, path: {}, value: \"[$1]:{port}\"}}\n",
            at(1),
            at(2)
        )
    };
    let digest = format!("sha256:{}", "7".repeat(64));
    let both = "resources: [manifests/base, manifests/haproxy]\n\
        components: [manifests/components/prometheus, manifests/haproxy/prometheus]\n";
    vec![
        (json!({}), "resources: [manifests/base]\n".to_owned()),
        (json!({"hostChecks": {"enabled": true}}), component("host-checks")),
        (json!({"openshift": {"enabled": true}}), component("openshift")),
        (json!({"flowSchema": {"enabled": true}}), component("flow-schema")),
        (json!({"pluginUsers": {"enabled": true}}), component("plugin-users")),
        (json!({"prometheus": {"enabled": true}}), component("prometheus")),
        (
            json!({"prometheus": {"enabled": true, "labels": {"release": "kube-prometheus-stack"}}}),
            component("prometheus") + "patches:\n" + release,
        ),
        (
            json!({"settings": {"watchService": ["ingress/router"]}, "services": {"rbac": "cluster"}}),
            component("services") + &with_env(&[("NODEGATE_WATCH_SERVICE", "ingress/router")]),
        ),
        (
            json!({
                "settings": {"metricsAddr": "[::]:25004", "allowFrom": ["10.0.0.0/24", "fd00::7"]},
                "prometheus": {"enabled": true},
            }),
            component("prometheus")
                + &with_env(&[
                    ("NODEGATE_METRICS_ADDR", "[::]:25004"),
                    ("NODEGATE_ALLOW_FROM", "10.0.0.0/24,fd00::7"),
                ])
                + &port("nodegate", 25004),
        ),
        (
            json!({"image": {"repository": "registry.example.com/lb/nodegate", "digest": digest}}),
            format!(
                "resources: [manifests/base]\nimages: [{{name: ghcr.io/nodegate/nodegate, \
                 newName: registry.example.com/lb/nodegate, digest: '{digest}'}}]\n"
            ),
        ),
        (json!({"haproxy": {"enabled": true}, "prometheus": {"enabled": true}}), both.to_owned()),
        (
            json!({"haproxy": {"enabled": true, "settings": {"publishStatus": ["203.0.113.10", "web=lb.example.com"]}}}),
            "resources: [manifests/base, manifests/haproxy]\ncomponents: [manifests/haproxy/publish-status]\n\
             patches:\n  - target: {kind: DaemonSet, name: nodegate-haproxy}\n    patch: |-\n"
                .to_owned()
                + &["initContainers/0", "containers/1"]
                    .map(|container| {
                        format!(
                            "      - {{op: add, path: /spec/template/spec/{container}/env/3, value: \
                             {{name: NODEGATE_HAPROXY_PUBLISH_STATUS, value: '203.0.113.10,web=lb.example.com'}}}}\n"
                        )
                    })
                    .concat(),
        ),
        (json!({"evictionGate": {"enabled": true}}), component("eviction-gate")),
        (
            json!({"evictionGate": {"enabled": true}, "prometheus": {"enabled": true}, "openshift": {"enabled": true}}),
            "resources: [manifests/base]\ncomponents: [manifests/components/prometheus, \
             manifests/components/eviction-gate, manifests/components/eviction-gate/prometheus, \
             manifests/components/openshift]\n"
                .to_owned(),
        ),
    ]
}

#[test]
fn the_chart_and_kustomize_give_the_same_objects() {
    for (mut values, kustomization) in pairs() {
        let what = values.to_string();
        values["createNamespace"] = json!(true);
        let chart = template(&values).unwrap();
        chart.0.iter().for_each(knows_every_field);
        are_the_same(&what, &chart, &Manifests::parse(&render(&kustomization)));
    }
}

/// Shows that the chart renders the Namespace only with `createNamespace`, because `helm install` creates it.
#[test]
fn the_chart_renders_the_namespace_only_with_create_namespace() {
    let (with, without) =
        (template(&json!({"createNamespace": true})).unwrap(), template(&json!({})).unwrap());
    let rest: Vec<_> = with.0.into_iter().filter(|object| object.at("/kind") != "Namespace").collect();
    assert_eq!(rest, without.0);
}

/// Shows that both use one other namespace for all objects.
#[test]
fn the_chart_and_kustomize_give_the_same_objects_in_another_namespace() {
    let values = json!({
        "createNamespace": true, "openshift": {"enabled": true}, "prometheus": {"enabled": true},
        "pluginUsers": {"enabled": true}, "haproxy": {"enabled": true}, "evictionGate": {"enabled": true},
        "settings": {"watchService": ["ingress/router"]}, "services": {"rbac": "cluster"},
    });
    let chart = template_with(&values, &["--namespace", "lb"]).unwrap();
    let components = [
        "components/eviction-gate",
        "components/eviction-gate/prometheus",
        "components/openshift",
        "components/prometheus",
        "components/plugin-users",
        "components/services",
    ];
    let components = components.map(|name| format!("manifests/{name}")).join(", ");
    let kustomize = Manifests::parse(&render(&format!(
        "namespace: lb\nresources: [manifests/base, manifests/haproxy]\n\
         components: [{components}, manifests/haproxy/prometheus]\ntransformers: [manifests/leases-stay]\n{}",
        with_env(&[("NODEGATE_WATCH_SERVICE", "ingress/router")])
    )));
    are_the_same("in the namespace lb", &chart, &kustomize);
    for object in &kustomize.0 {
        let text = object.to_string();
        assert!(!text.contains(r#""namespace":"nodegate""#), "{object:#}");
    }
    assert_eq!(kustomize.the("Role", "nodegate").at("/metadata/namespace"), "kube-node-lease");
    assert_eq!(kustomize.the("Namespace", "lb").at("/kind"), "Namespace");
}

/// Shows the rules of Pod Security that each pod of the chart breaks. The rules are in
/// `pod_security_rules.rs`.
#[test]
fn the_charts_pods_break_only_the_rules_for_host_network_and_host_paths() {
    let broken = |values: Value| -> Vec<Vec<&'static str>> {
        let manifests = template(&values).unwrap();
        let is_workload =
            |object: &&Value| matches!(object["kind"].as_str(), Some("DaemonSet" | "Deployment"));
        let pods = manifests.0.iter().filter(is_workload);
        pods.map(|pod| broken_by(pod.at("/spec/template/spec"))).collect()
    };
    assert_eq!(broken(json!({})), [["Host Namespaces"]]);
    assert_eq!(broken(json!({"openshift": {"enabled": true}})), [["Host Namespaces"]]);
    assert_eq!(broken(json!({"haproxy": {"enabled": true}})), [["Host Namespaces"], ["Host Namespaces"]]);
    let gate = |host_network: bool| json!({"evictionGate": {"enabled": true, "hostNetwork": host_network}});
    assert_eq!(broken(gate(false)), [vec!["Host Namespaces"], vec![]]);
    assert_eq!(broken(gate(true)), [["Host Namespaces"], ["Host Namespaces"]]);
    let host_checks = json!({"hostChecks": {"enabled": true}});
    assert_eq!(broken(host_checks), [["Host Namespaces", "HostPath Volumes", "Volume Types"]]);
}
