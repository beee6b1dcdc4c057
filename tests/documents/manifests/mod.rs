//! The manifests keep their promises: no port that a surge update would conflict with, no unneeded right, no
//! setting that the agent does not know.

mod eviction_gate;
mod haproxy;
mod pod_security;
mod pod_security_rules;
mod reserve_host_ports;
mod static_pod;
mod support;

use nodegate_testbed::Cluster;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
pub(crate) use support::{Json, Manifests, ROOT, manifest};
use support::{Settings, install, knows_every_field};

/// The files that are whole, each an alternative to the others.
const WHOLE: [&str; 3] = ["install", "install-host-checks", "install-openshift"];
/// The file for the kubelet's directory.
const STATIC_POD: &str = "static-pod";

/// Returns the text of each rendered file in a directory, by its name without the extension.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let files = entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap()));
    files.filter(|(name, _)| name != "kustomization").collect()
}

/// Returns the names of the files that are added to a whole one.
fn additions() -> Vec<String> {
    let names = files(&Path::new(ROOT).join("manifests")).into_keys();
    names.filter(|name| !WHOLE.contains(&name.as_str()) && name != STATIC_POD).collect()
}

#[test]
fn the_manifests_are_what_the_chart_renders() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        Command::new(format!("{ROOT}/hack/render-manifests")).arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rendered, here) = (files(directory.path()), files(&Path::new(ROOT).join("manifests")));
    assert_eq!(rendered.keys().collect::<Vec<_>>(), here.keys().collect::<Vec<_>>());
    for (name, text) in &rendered {
        assert!(text == &here[name], "manifests/{name}.yaml is not up to date: run `make manifests`");
    }
}

/// Shows that an addition repeats no object, so all of them can be applied with any whole file.
#[test]
fn every_file_of_manifests_adds_objects_of_its_own_and_only_known_fields() {
    for whole in WHOLE {
        let mut names = BTreeSet::new();
        for file in additions().iter().map(String::as_str).chain([whole, STATIC_POD]) {
            let manifests = manifest(file);
            manifests.0.iter().for_each(knows_every_field);
            for name in manifests.names() {
                assert!(names.insert(name.clone()), "{file} with {whole}: {name} is there twice");
            }
        }
        assert!(names.len() > 40, "{names:?}");
    }
}

/// Shows that kubectl accepts the objects. It needs an API server, from which it reads the kinds and fields.
#[test]
fn kubectl_accepts_all_manifests_and_the_kustomization() {
    let cluster = Cluster::start();
    let file = |name: &str| format!("--filename={ROOT}/manifests/{name}.yaml");
    let apply = ["apply", "--dry-run=client", "--output=name"].map(str::to_owned);
    let all = additions().iter().map(|name| file(name)).chain(WHOLE.map(file)).collect::<Vec<_>>();
    let args = [&apply[..], &all].concat();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let taken = cluster.admin().must(&args);
    let objects = |name: &str| manifest(name).0.len();
    let expected: usize = additions().iter().map(|name| objects(name)).chain(WHOLE.map(objects)).sum();
    assert_eq!(taken.lines().count(), expected, "{taken}");

    let built = cluster.admin().must(&["kustomize", &format!("{ROOT}/manifests")]);
    let sorted = |manifests: Manifests| manifests.0.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(sorted(Manifests::parse(&built)), sorted(install()));
}

#[test]
fn install_yaml_has_the_agents_objects_alone() {
    let manifests = install();
    assert_eq!(
        manifests.names(),
        [
            "Namespace /nodegate",
            "ServiceAccount nodegate/nodegate",
            "ClusterRole /nodegate",
            "ClusterRoleBinding /nodegate",
            "Role kube-node-lease/nodegate",
            "RoleBinding kube-node-lease/nodegate",
            "DaemonSet nodegate/nodegate",
        ],
        "the Namespace first: kubectl creates in this order"
    );
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
fn on_openshift_the_host_network_is_allowed_and_the_scc_picks_the_uid() {
    let manifests = manifest("install-openshift");
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
fn the_right_to_count_a_services_endpoints_is_an_addition() {
    let manifests = manifest("services");
    assert_eq!(
        manifests.names(),
        ["ClusterRole /nodegate-services", "ClusterRoleBinding /nodegate-services"]
    );
    let slices = json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]});
    assert_eq!(manifests.the("ClusterRole", "nodegate-services").at("/rules"), &json!([slices]));
    let binding = manifests.the("ClusterRoleBinding", "nodegate-services");
    assert_eq!(
        (binding.at("/roleRef/name"), binding.at("/subjects/0/name")),
        (&json!("nodegate-services"), &json!("nodegate"))
    );
}

#[test]
fn host_checks_add_only_the_host_mount_and_the_sockets_group() {
    let mut expected = install();
    let pod = expected.pod_mut();
    pod["securityContext"]["supplementalGroups"] = json!([0]);
    let add = |list: &mut Value, item: Value| list.as_array_mut().unwrap().push(item);
    add(&mut pod["volumes"], json!({"name": "host", "hostPath": {"path": "/", "type": "Directory"}}));
    let container = &mut pod["containers"][0];
    let mount = json!({
        "name": "host",
        "mountPath": "/host",
        "readOnly": true,
        "mountPropagation": "HostToContainer",
    });
    add(&mut container["volumeMounts"], mount);
    add(&mut container["env"], json!({"name": "NODEGATE_HOST_ROOT", "value": "/host"}));
    assert_eq!(manifest("install-host-checks").0, expected.0);
    assert!(
        Settings::read().default_of("NODEGATE_HOST_ROOT").is_some(),
        "the agent has no NODEGATE_HOST_ROOT"
    );
}

/// Shows that the `FlowSchema` covers the agent's own rights, and the agent alone.
#[test]
fn the_flow_schema_covers_exactly_the_agents_requests() {
    let rule = manifest("flow-schema").the("FlowSchema", "nodegate").at("/spec/rules/0").clone();
    let account =
        json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": "nodegate", "name": "nodegate"}}]);
    assert_eq!(rule.at("/subjects"), &account);
    let granted = [install().0, manifest("services").0].concat();
    let may: BTreeSet<String> = granted
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
fn the_plugins_users_get_roles_without_bindings() {
    let manifests = manifest("plugin-users");
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
    assert_eq!(manifests.0.len(), 2);
}
