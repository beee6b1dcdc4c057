//! manifests/haproxy.yaml: a restricted Pod with HAProxy and nodegate-haproxy, with no more than they need.

use super::pod_security::broken_by;
use super::support::{Json, Manifests, install, manifest};
use serde_json::json;
use std::collections::BTreeSet;

fn manifests() -> Manifests {
    manifest("haproxy")
}

#[test]
fn haproxy_yaml_has_a_daemon_set_that_may_read() {
    let manifests = manifests();
    assert_eq!(
        manifests.names(),
        [
            "ServiceAccount nodegate/nodegate-haproxy",
            "ClusterRole /nodegate-haproxy",
            "ClusterRoleBinding /nodegate-haproxy",
            "DaemonSet nodegate/nodegate-haproxy",
        ]
    );
    assert_eq!(
        manifests.the("ClusterRole", "nodegate-haproxy").at("/rules"),
        &json!([{"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "list", "watch"]}])
    );
}

#[test]
fn the_rights_to_write_are_an_addition_of_their_own() {
    let with = manifest("publish-status");
    let writes = |manifests: &Manifests| {
        let roles =
            manifests.0.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
        let rules = roles.flat_map(|role| role.every("/rules").to_vec());
        let reads = |verb: &serde_json::Value| ["get", "list", "watch"].contains(&verb.as_str().unwrap());
        let writes = rules.filter(|rule| !rule.every("/verbs").iter().all(reads));
        writes.map(|rule| format!("{} {}", rule["verbs"], rule["resources"])).collect::<Vec<_>>()
    };
    assert_eq!(writes(&manifests()), Vec::<String>::new());
    let allowed = [
        r#"["patch"] ["services/status"]"#,
        r#"["create"] ["events"]"#,
        r#"["create"] ["leases"]"#,
        r#"["get","patch"] ["leases"]"#,
    ];
    let (found, allowed): (BTreeSet<_>, BTreeSet<_>) =
        (writes(&with).into_iter().collect(), allowed.map(str::to_owned).into_iter().collect());
    assert_eq!(found, allowed);
    assert_eq!(
        with.the("Role", "nodegate-haproxy-lease").at("/rules/1/resourceNames"),
        &json!(["nodegate-haproxy"])
    );
}

#[test]
fn the_agents_selector_and_haproxys_match_their_own_pods_alone() {
    let manifests = Manifests([install().0, manifests().0].concat());
    let labels = |name: &str| {
        let daemon_set = manifests.the("DaemonSet", name);
        let (selector, labels) =
            (daemon_set.at("/spec/selector/matchLabels"), daemon_set.at("/spec/template/metadata/labels"));
        (selector.as_object().unwrap().clone(), labels.as_object().unwrap().clone())
    };
    let (agent, haproxy) = (labels("nodegate"), labels("nodegate-haproxy"));
    let selects = |selector: &serde_json::Map<String, serde_json::Value>,
                   labels: &serde_json::Map<String, serde_json::Value>| {
        selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    assert!(selects(&agent.0, &agent.1) && selects(&haproxy.0, &haproxy.1));
    assert!(!selects(&agent.0, &haproxy.1) && !selects(&haproxy.0, &agent.1));
}

#[test]
fn haproxys_pod_is_restricted_except_for_the_host_network_and_not_root() {
    let manifests = manifests();
    let pod = manifests.the("DaemonSet", "nodegate-haproxy").at("/spec/template/spec");
    assert_eq!(broken_by(pod), ["Host Namespaces"]);
    assert_eq!(pod.at("/securityContext/runAsUser"), &json!(99), "as in HAProxy's own image");
    for container in pod.every("/containers") {
        let context = container.at("/securityContext");
        assert_eq!(context.get("runAsUser"), None, "{container}");
        assert_eq!(context.at("/readOnlyRootFilesystem"), &json!(true), "{container}");
        assert!(container.at("/resources/requests").get("cpu").is_some(), "{container}");
        assert!(container.at("/resources/limits").get("memory").is_some(), "{container}");
    }
}

#[test]
fn haproxys_pod_sets_only_variables_that_the_program_reads() {
    let command = nodegate_haproxy::run::command();
    let known: BTreeSet<_> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    let manifests = manifests();
    let pod = manifests.the("DaemonSet", "nodegate-haproxy").at("/spec/template/spec");
    let image = concat!("ghcr.io/nodegate/nodegate-haproxy:", env!("CARGO_PKG_VERSION"));
    let container = pod.at("/containers/1");
    assert_eq!(container.at("/image"), image, "the version of this source");
    for variable in container.every("/env") {
        assert!(known.contains(variable.at("/name").as_str().unwrap()), "{variable}");
    }
}
