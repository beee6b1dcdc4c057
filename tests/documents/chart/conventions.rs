//! What every chart's user expects: names, labels, accounts, namespaces, more objects, `helm test`.

use super::{chart, helm, template, template_with};
use crate::manifests::{Json, Manifests};
use serde_json::{Value, json};

/// Returns values that render every kind of object.
fn everything() -> Value {
    json!({
        "createNamespace": true, "prometheus": {"enabled": true}, "openshift": {"enabled": true},
        "settings": {"watchService": ["a/x"]}, "services": {"rbac": "cluster"}, "haproxy": {"enabled": true, "settings": {"publishStatus": ["203.0.113.10"]}},
        "pluginUsers": {"enabled": true}, "evictionGate": {"enabled": true}, "flowSchema": {"enabled": true},
        "staticPods": {"rights": true},
    })
}

fn with(mut values: Value, more: &Value) -> Value {
    values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    values
}

/// Shows that the chart renders the Namespace only with `createNamespace`, because `helm install` creates it.
#[test]
fn the_chart_renders_the_namespace_only_with_create_namespace() {
    let (with, without) =
        (template(&json!({"createNamespace": true})).unwrap(), template(&json!({})).unwrap());
    let rest: Vec<_> = with.0.into_iter().filter(|object| object.at("/kind") != "Namespace").collect();
    assert_eq!(rest, without.0);
}

#[test]
fn every_object_is_in_the_releases_namespace_but_the_role_for_leases() {
    let rendered = template_with(&everything(), &["--namespace", "lb"]).unwrap();
    for object in &rendered.0 {
        assert!(!object.to_string().contains(r#""namespace":"nodegate""#), "{object:#}");
    }
    assert_eq!(rendered.the("Role", "nodegate").at("/metadata/namespace"), "kube-node-lease");
    assert_eq!(rendered.the("Namespace", "lb").at("/kind"), "Namespace");
    let gate = rendered.the("Deployment", "nodegate-eviction-gate").at("/spec/template/spec");
    assert_eq!(gate.at("/securityContext").get("runAsUser"), None, "OpenShift picks the UID");
}

#[test]
fn names_follow_the_release_or_its_overrides() {
    for (release, values, name) in [
        ("nodegate", json!({}), "nodegate"),
        ("edge", json!({}), "edge-nodegate"),
        ("edge", json!({"nameOverride": "ready"}), "edge-ready"),
        ("my-ready", json!({"nameOverride": "ready"}), "my-ready"),
        ("edge", json!({"fullnameOverride": "lb"}), "lb"),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, values.to_string()).unwrap();
        let args = ["template", release, &chart(), "--values", file.path().to_str().unwrap()];
        let rendered = Manifests::parse(&helm(&args, None).unwrap());
        let labels = rendered.the("DaemonSet", name).at("/spec/template/metadata/labels");
        assert_eq!(labels["app.kubernetes.io/name"], "nodegate", "alerts and kubectl nodegate know it");
        assert_eq!(rendered.the("ClusterRole", name).at("/kind"), "ClusterRole");
    }
}

#[test]
fn common_labels_are_on_every_object_and_pod_but_in_no_selector() {
    let rendered = template(&with(everything(), &json!({"commonLabels": {"team": "edge"}}))).unwrap();
    for object in &rendered.0 {
        assert_eq!(object.at("/metadata/labels/team"), "edge", "{object:#}");
        if let Some(labels) = object.pointer("/spec/template/metadata/labels") {
            assert_eq!(labels["team"], "edge");
            assert_eq!(object.at("/spec/selector/matchLabels").get("team"), None);
        }
    }
}

#[test]
fn accounts_and_rights_can_be_somebody_elses() {
    let values = json!({"serviceAccount": {"create": false, "name": "lb"}, "rbac": {"create": false}});
    let rendered = template(&with(everything(), &values)).unwrap();
    let made: Vec<String> = rendered
        .names()
        .into_iter()
        .filter(|name| name.contains("Role") || name.contains("Account"))
        .collect();
    // Static pods have a user, whose rights are asked for by a value of their own.
    assert_eq!(made, ["ClusterRoleBinding /nodegate-static", "RoleBinding kube-node-lease/nodegate-static"]);
    let account = |kind: &str, name: &str| {
        rendered.the(kind, name).at("/spec/template/spec/serviceAccountName").clone()
    };
    assert_eq!(account("DaemonSet", "nodegate"), "lb");
    assert_eq!(account("DaemonSet", "nodegate-haproxy"), "lb-haproxy");
    assert_eq!(account("Deployment", "nodegate-eviction-gate"), "lb-eviction-gate");
    assert_eq!(
        rendered.the("FlowSchema", "nodegate").at("/spec/rules/0/subjects/0/serviceAccount/name"),
        "lb"
    );

    let annotated = template(&json!({"serviceAccount": {"name": "lb", "annotations": {"a": "b"}}})).unwrap();
    assert_eq!(annotated.the("ServiceAccount", "lb").at("/metadata/annotations/a"), "b");
    assert_eq!(annotated.the("ClusterRoleBinding", "nodegate").at("/subjects/0/name"), "lb");
}

#[test]
fn extra_objects_are_objects_or_templates() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}";
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object"}});
    let rendered = template(&json!({"extraObjects": [object, text]})).unwrap();
    rendered.the("ConfigMap", "object");
    rendered.the("ConfigMap", "nodegate-text");
}

/// Shows the `ServiceMonitor`: its Service names the port that no pod declares.
#[test]
fn a_service_monitor_takes_the_place_of_the_pod_monitor() {
    let values = json!({"prometheus": {"enabled": true, "monitor": "service", "labels": {"release": "x"}}, "evictionGate": {"enabled": true}});
    let rendered = template(&values).unwrap();
    assert!(!rendered.names().iter().any(|name| name.starts_with("PodMonitor ")));
    for (name, port) in [("nodegate", 25001), ("nodegate-eviction-gate", 25006)] {
        let monitor = rendered.the("ServiceMonitor", name);
        let service = rendered.the("Service", &format!("{name}-metrics"));
        assert_eq!(
            (service.at("/spec/clusterIP"), service.at("/spec/ports/0/port")),
            (&json!("None"), &json!(port))
        );
        assert_eq!(monitor.at("/spec/endpoints/0/port"), service.at("/spec/ports/0/name"));
        assert_eq!(monitor.at("/metadata/labels/release"), "x");
        let labels = service.at("/metadata/labels");
        let selector = monitor.at("/spec/selector/matchLabels").as_object().unwrap();
        assert!(selector.iter().all(|(key, value)| &labels[key] == value));
    }
    let relabeling = rendered.the("ServiceMonitor", "nodegate").at("/spec/endpoints/0/relabelings/0");
    assert_eq!(relabeling.at("/targetLabel"), "node");
}

/// Shows the pod of `helm test`: `nodegate status` finds the agent of its own node by the same settings.
#[test]
fn helm_test_asks_the_agent_of_a_node() {
    let file = ["--show-only", "templates/tests/agent.yaml", "--namespace", "nodegate"];
    let rendered =
        template_with(&json!({"settings": {"listenPort": 25011, "onStale": "ready"}}), &file).unwrap();
    let pod = rendered.the("Pod", "nodegate-test");
    assert_eq!(pod.at("/metadata/annotations")["helm.sh/hook"], "test");
    assert_eq!(pod.at("/spec/hostNetwork"), true);
    let container = pod.at("/spec/containers/0");
    assert_eq!(container.at("/args"), &json!(["status"]));
    assert_eq!(container.at("/env"), &json!([{"name": "LISTEN_PORT", "value": "25011"}]));
    assert!(!template(&json!({})).unwrap().names().iter().any(|name| name.starts_with("Pod ")));
}

/// Shows the Roles for watched Services. They are narrower than those of the component, which can't know the
/// namespaces.
#[test]
fn the_chart_grants_watched_services_in_their_namespaces_alone() {
    let values =
        |rbac: &str| json!({"settings": {"watchService": ["a/x", "b/y", "a/z"]}, "services": {"rbac": rbac}});
    let rights = |values: &Value| -> Vec<String> {
        let names = template(values).unwrap().names().into_iter();
        names.filter(|name| name.ends_with("-services")).collect()
    };
    let expected =
        ["a", "b"].map(|n| ["Role", "RoleBinding"].map(|kind| format!("{kind} {n}/nodegate-services")));
    let (mut found, mut expected) = (rights(&values("namespaces")), expected.concat());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(rights(&values("none")), Vec::<String>::new());
    assert_eq!(rights(&json!({})), Vec::<String>::new());
}

#[test]
fn a_second_release_of_the_chart_has_names_of_its_own() {
    let values = json!({
        "fullnameOverride": "edge", "createNamespace": true, "prometheus": {"enabled": true}, "openshift": {"enabled": true},
        "settings": {"watchService": ["a/x"]}, "haproxy": {"enabled": true}, "pluginUsers": {"enabled": true},
        "evictionGate": {"enabled": true},
        "flowSchema": {"enabled": true},
    });
    let manifests = super::template_with(&values, &["--namespace", "lb"]).unwrap();
    for name in manifests.names() {
        let name = name.split_once('/').unwrap().1;
        assert!(name == "lb" || name.starts_with("edge"), "{name}");
    }
    let pod = manifests.the("DaemonSet", "edge").at("/spec/template/spec");
    assert_eq!(pod.at("/serviceAccountName"), "edge");
}

#[test]
fn other_values_of_the_pod_are_rendered() {
    let manifests = template(&json!({
        "image": {"tag": "9", "pullPolicy": "Always"}, "imagePullSecrets": [{"name": "registry"}],
        "extraArgs": ["--log=debug"], "extraEnv": [{"name": "NODEGATE_ON_STALE", "value": "keep-drain"}],
        "hostChecks": {"enabled": true, "supplementalGroups": [], "seLinuxOptions": {"type": "spc_t"}},
        "podLabels": {"team": "edge"}, "podAnnotations": {"a": "b"}, "nodeSelector": {"pool": "edge"}, "tolerations": [],
        "affinity": {"nodeAffinity": {}}, "priorityClassName": "", "runAsUser": 70000,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        "startupSeconds": 60, "terminationGracePeriodSeconds": 20,
    }))
    .unwrap();
    let daemon_set = manifests.the("DaemonSet", "nodegate");
    assert_eq!(daemon_set.at("/spec/updateStrategy/rollingUpdate/maxSurge"), 1);
    assert_eq!(daemon_set.at("/spec/template/metadata/labels/team"), "edge");
    assert_eq!(daemon_set.at("/spec/template/metadata/annotations/a"), "b");
    let pod = manifests.pod();
    assert_eq!(pod.at("/imagePullSecrets"), &json!([{"name": "registry"}]));
    assert_eq!((pod.at("/nodeSelector/pool"), pod.get("tolerations")), (&json!("edge"), None));
    assert_eq!((pod.get("priorityClassName"), pod.at("/affinity")), (None, &json!({"nodeAffinity": {}})));
    let context = pod.at("/securityContext");
    assert_eq!((context.at("/runAsUser"), context.get("supplementalGroups")), (&json!(70000), None));
    assert_eq!(context.at("/seLinuxOptions/type"), "spc_t");
    let container = &pod.every("/containers")[0];
    assert_eq!(
        (container.at("/image"), container.at("/imagePullPolicy")),
        (&json!("ghcr.io/nodegate/nodegate:9"), &json!("Always"))
    );
    assert_eq!(container.at("/args"), &json!(["--log=debug"]));
    assert_eq!(container.every("/env").last().unwrap().at("/value"), "keep-drain");
    assert_eq!(container.every("/volumeMounts").last().unwrap().at("/mountPath"), "/ca");
    assert_eq!(pod.every("/volumes").last().unwrap().at("/configMap/name"), "ca");
    assert_eq!(container.at("/startupProbe/failureThreshold"), 60);
    assert_eq!(pod.at("/terminationGracePeriodSeconds"), 20);
}
