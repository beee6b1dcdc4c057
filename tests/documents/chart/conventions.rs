//! What every chart's user expects: names, labels, accounts, namespaces, more objects, `helm test`.

use super::{template, template_as, with};
use crate::manifests::Json;
use serde_json::{Value, json};

/// Returns values that render every kind of object.
fn everything() -> Value {
    json!({
        "createNamespace": true, "prometheus": {"enabled": true},
        "settings": {"watchService": ["a/x"]}, "services": {"rbac": "cluster"}, "haproxy": {"enabled": true, "settings": {"publishStatus": ["203.0.113.10"]}},
        "pluginUsers": {"enabled": true}, "evictionGate": {"enabled": true}, "flowSchema": {"enabled": true},
        "staticPods": {"rights": true},
    })
}

/// Shows, too, that a second release of the chart has names of its own.
#[test]
fn names_follow_the_release_or_its_overrides() {
    for (release, values, name) in [
        ("nodegate", json!({}), "nodegate"),
        ("edge", json!({}), "edge-nodegate"),
        ("edge", json!({"nameOverride": "ready"}), "edge-ready"),
        ("my-ready", json!({"nameOverride": "ready"}), "my-ready"),
        ("edge", json!({"fullnameOverride": "lb"}), "lb"),
    ] {
        let rendered = template_as(release, "shop", &with(everything(), &values)).unwrap();
        let labels = rendered.the("DaemonSet", name).at("/spec/template/metadata/labels");
        assert_eq!(labels["app.kubernetes.io/name"], "nodegate", "alerts and kubectl nodegate know it");
        for found in rendered.names() {
            let found = found.split_once('/').unwrap().1;
            assert!(found == "shop" || found.starts_with(name), "{found}");
        }
    }
}

#[test]
fn accounts_and_rights_can_be_managed_elsewhere() {
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
