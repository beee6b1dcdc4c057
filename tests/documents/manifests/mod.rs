//! The manifests keep their promises: no port that a surge update would conflict with, no unneeded right, no
//! setting that the agent does not know.

mod combinations;
mod component_heads;
mod eviction_gate;
mod haproxy;
mod pod_security;
mod pod_security_rules;
mod reserve_host_ports;
mod static_pod;
mod support;

pub(crate) use component_heads::without_url;
pub(crate) use pod_security::broken_by;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
pub(crate) use support::{Json, Manifests, ROOT, knows_every_field, overlay, render};
use support::{Settings, install};

#[test]
fn install_yaml_is_the_rendered_base() {
    let check = Command::new(format!("{ROOT}/hack/render-manifests")).arg("--check").output().unwrap();
    assert!(
        check.status.success(),
        "{}{}",
        String::from_utf8_lossy(&check.stdout),
        String::from_utf8_lossy(&check.stderr)
    );
}

#[test]
fn every_object_of_the_base_has_only_known_fields() {
    let manifests = install();
    assert_eq!(
        manifests.names(),
        [
            "Namespace /nodegate",
            "ServiceAccount nodegate/nodegate",
            "Role kube-node-lease/nodegate",
            "ClusterRole /nodegate",
            "RoleBinding kube-node-lease/nodegate",
            "ClusterRoleBinding /nodegate",
            "DaemonSet nodegate/nodegate",
        ],
        "the Namespace first: kubectl creates in this order"
    );
    for object in &manifests.0 {
        knows_every_field(object);
    }
}

#[test]
fn a_surge_update_can_put_a_second_pod_on_the_node() {
    let manifests = install();
    let daemon_set = manifests.the("DaemonSet", "nodegate");
    let rolling_update = daemon_set.at("/spec/updateStrategy/rollingUpdate");
    assert_eq!(rolling_update.at("/maxUnavailable"), &json!(0));
    assert_ne!(rolling_update.at("/maxSurge"), &json!(0));
    for container in manifests.pod().every("/containers") {
        assert_eq!(container.get("ports"), None, "on the host's network a port becomes a hostPort");
    }
    assert!(
        daemon_set.at("/spec/minReadySeconds").as_u64() > Some(0),
        "a new pod that crashes must not cost the old one"
    );
}

#[test]
fn the_agents_pod_runs_on_every_node_and_is_evicted_last() {
    let manifests = install();
    let pod = manifests.pod();
    assert_eq!(pod.at("/hostNetwork"), &json!(true));
    assert_eq!(pod.at("/tolerations"), &json!([{"operator": "Exists"}]));
    assert_eq!(pod.at("/nodeSelector"), &json!({"kubernetes.io/os": "linux"}));
    assert_eq!(pod.at("/priorityClassName"), &json!("system-node-critical"));
    for container in pod.every("/containers") {
        let resources = container.at("/resources");
        assert_eq!(resources.at("/requests"), resources.at("/limits"), "QoS class Guaranteed");
        let named: Vec<_> = resources.at("/limits").as_object().unwrap().keys().collect();
        assert_eq!(named, ["cpu", "memory"]);
    }
}

#[test]
fn the_agent_may_read_nodes_and_leases_and_nothing_else() {
    let manifests = install();
    assert_eq!(
        manifests.the("ClusterRole", "nodegate").at("/rules"),
        &json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}])
    );
    let leases = manifests.the("Role", "nodegate");
    assert_eq!(leases.at("/metadata/namespace"), "kube-node-lease");
    assert_eq!(
        leases.at("/rules"),
        &json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]}])
    );
    let account = json!([{"kind": "ServiceAccount", "name": "nodegate", "namespace": "nodegate"}]);
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        let binding = manifests.the(binding, "nodegate");
        assert_eq!(binding.at("/subjects"), &account);
        assert_eq!(
            binding.at("/roleRef"),
            &json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "nodegate"})
        );
    }
    assert_eq!(manifests.pod().at("/serviceAccountName"), "nodegate");
    assert_eq!(manifests.pod().at("/automountServiceAccountToken"), &json!(true));
}

#[test]
fn the_agents_pod_sets_only_variables_that_the_agent_reads() {
    let manifests = install();
    let settings = Settings::read();
    let container = &manifests.pod().every("/containers")[0];
    let set: BTreeSet<_> =
        container.every("/env").iter().map(|variable| variable.at("/name").as_str().unwrap()).collect();
    assert!(set.contains("NODE_NAME"));
    for name in set {
        assert!(settings.default_of(name).is_some(), "the agent has no {name}");
    }
    assert_eq!(
        container.at("/env/0"),
        &json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    );
    assert_eq!(container.get("args"), None, "settings go by environment: an overlay adds to a list by name");
    assert_eq!(
        container.at("/image"),
        concat!("ghcr.io/nodegate/nodegate:", env!("CARGO_PKG_VERSION")),
        "the version of this source"
    );
}

#[test]
fn the_kubelets_probes_ask_for_the_agents_own_health_and_allow_its_startup() {
    let manifests = install();
    let settings = Settings::read();
    let container = &manifests.pod().every("/containers")[0];
    let port: u64 = settings.default_of("LISTEN_PORT").unwrap().parse().unwrap();
    for (probe, path) in
        [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": port}), "{probe}");
    }
    let start_up = &container["startupProbe"];
    let patience = start_up.number("/periodSeconds") * start_up.number("/failureThreshold");
    assert!(
        patience > settings.seconds("NODEGATE_STARTUP_GRACE").max(settings.seconds("NODEGATE_STALE_AFTER")),
        "nothing listens before the wait for the API server is over"
    );
    let end = manifests.pod().number("/terminationGracePeriodSeconds");
    assert!(end > settings.seconds("NODEGATE_SHUTDOWN_GRACE"), "SIGKILL would cut requests in flight");
}

#[test]
fn the_openshift_component_allows_the_host_network_and_lets_it_pick_the_uid() {
    let manifests = overlay("components: [manifests/components/openshift]");
    for object in &manifests.0 {
        knows_every_field(object);
    }
    let scc = "hostnetwork-v2";
    let role = manifests.the("Role", "nodegate-scc");
    assert_eq!(role.at("/metadata/namespace"), "nodegate");
    assert_eq!(
        role.at("/rules"),
        &json!([{
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": [scc],
            "verbs": ["use"],
        }])
    );
    assert_eq!(manifests.the("RoleBinding", "nodegate-scc").at("/roleRef/name"), "nodegate-scc");
    let template = manifests.the("DaemonSet", "nodegate").at("/spec/template");
    assert_eq!(template.at("/metadata/annotations")["openshift.io/required-scc"], scc);
    assert_eq!(
        template.at("/spec/securityContext"),
        &json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}),
        "a fixed UID is outside the namespace's range"
    );
    let namespace = manifests.the("Namespace", "nodegate");
    assert_eq!(namespace.at("/metadata/annotations")["openshift.io/node-selector"], "");
}

#[test]
fn the_services_component_adds_the_rbac_rule_for_slices() {
    let patch = json!([{
        "op": "add",
        "path": "/spec/template/spec/containers/0/env/-",
        "value": {"name": "NODEGATE_WATCH_SERVICE", "value": "ingress/router"},
    }]);
    let patch = format!("patches: [{{target: {{kind: DaemonSet, name: nodegate}}, patch: '{patch}'}}]");
    let manifests = overlay(&format!("components: [manifests/components/services]\n{patch}"));
    for object in &manifests.0 {
        knows_every_field(object);
    }
    assert_eq!(
        manifests.the("ClusterRole", "nodegate-services").at("/rules"),
        &json!([{
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        }])
    );
    let binding = manifests.the("ClusterRoleBinding", "nodegate-services");
    assert_eq!(binding.at("/roleRef/name"), "nodegate-services");
    assert_eq!(binding.at("/subjects/0/name"), "nodegate");
    let set = manifests.pod().every("/containers")[0].every("/env").last().cloned();
    assert_eq!(set, Some(json!({"name": "NODEGATE_WATCH_SERVICE", "value": "ingress/router"})));
    assert!(Settings::read().default_of("NODEGATE_WATCH_SERVICE").is_some(), "the agent has no such setting");
}

#[test]
fn the_host_checks_component_adds_only_the_host_mount_and_the_sockets_group() {
    let with = overlay("components: [manifests/components/host-checks]");
    for object in &with.0 {
        knows_every_field(object);
    }
    let settings = Settings::read();
    assert!(settings.default_of("NODEGATE_HOST_ROOT").is_some(), "the agent has no NODEGATE_HOST_ROOT");
    let mut expected = overlay("");
    let pod = expected.pod_mut();
    pod["securityContext"]["supplementalGroups"] = json!([0]);
    let volume = json!({"name": "host", "hostPath": {"path": "/", "type": "Directory"}});
    pod["volumes"].as_array_mut().unwrap().insert(0, volume);
    let container = &mut pod["containers"][0];
    let mount = json!({
        "name": "host",
        "mountPath": "/host",
        "readOnly": true,
        "mountPropagation": "HostToContainer",
    });
    container["volumeMounts"].as_array_mut().unwrap().insert(0, mount);
    let mut env = container.every("/env").to_vec();
    env.push(json!({"name": "NODEGATE_HOST_ROOT", "value": "/host"}));
    env.sort_by_key(|variable| variable.at("/name").to_string());
    container["env"] = env.into();
    let mut with = with;
    let rendered = with.pod_mut().pointer_mut("/containers/0/env").and_then(Value::as_array_mut).unwrap();
    rendered.sort_by_key(|variable| variable.at("/name").to_string());
    assert_eq!(with.0, expected.0);
}

#[test]
fn an_overlay_can_replace_the_image() {
    let manifests = overlay(
        "images: [{name: ghcr.io/nodegate/nodegate, newName: registry.example.com/lb/nodegate, newTag: '9'}]",
    );
    assert_eq!(manifests.pod().at("/containers/0/image"), "registry.example.com/lb/nodegate:9");
}

/// Shows that the `FlowSchema` covers the agent's own rights, and the agent alone.
#[test]
fn the_flow_schema_covers_exactly_the_agents_requests() {
    let manifests = overlay("components: [manifests/components/flow-schema, manifests/components/services]");
    let rule = manifests.the("FlowSchema", "nodegate").at("/spec/rules/0").clone();
    let account =
        json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": "nodegate", "name": "nodegate"}}]);
    assert_eq!(rule.at("/subjects"), &account);
    let may: BTreeSet<String> = manifests
        .0
        .iter()
        .filter(|object| object.at("/kind").as_str().is_some_and(|kind| kind.ends_with("Role")))
        .flat_map(|role| role.every("/rules"))
        .map(|rule| format!("{} {} {}", rule["apiGroups"], rule["resources"], rule["verbs"]))
        .collect();
    let flows = rule.every("/resourceRules").iter();
    let flows: BTreeSet<_> =
        flows.map(|rule| format!("{} {} {}", rule["apiGroups"], rule["resources"], rule["verbs"])).collect();
    assert_eq!(flows, may);
}

#[test]
fn the_plugin_users_component_adds_roles_without_bindings() {
    let manifests = overlay("components: [manifests/components/plugin-users]");
    let read = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]});
    assert_eq!(manifests.the("ClusterRole", "nodegate-plugin").at("/rules"), &json!([read]));
    let role = manifests.the("Role", "nodegate-plugin");
    assert_eq!(
        role.at("/metadata/namespace"),
        "nodegate",
        "a pod proxy for all pods would be as good as the cluster"
    );
    assert_eq!(
        role.at("/rules"),
        &json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]},
        ])
    );
    assert_eq!(manifests.0.len(), install().0.len() + 2);
}
