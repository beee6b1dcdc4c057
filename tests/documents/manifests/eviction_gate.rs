//! manifests/eviction-gate.yaml: as many rights as the gate needs, and a webhook that stops nothing by itself.

use super::support::{Json, Manifests, manifest};
use serde_json::{Value, json};

const NAME: &str = "nodegate-eviction-gate";

fn manifests() -> Manifests {
    manifest("eviction-gate")
}

#[test]
fn the_gate_may_do_what_its_tests_allow_and_nothing_else() {
    let manifests = manifests();
    // The same as `gate_rules` in crates/eviction-gate/tests/gate/lab.rs.
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let named = |mut rule: Value| {
        rule["resourceNames"] = json!([NAME]);
        rule
    };
    assert_eq!(
        manifests.the("ClusterRole", NAME).at("/rules"),
        &json!([
            rule("", &["pods", "nodes", "namespaces"], &["get"]),
            rule("", &["events"], &["create"]),
            named(rule(
                "admissionregistration.k8s.io",
                &["validatingwebhookconfigurations"],
                &["get", "patch"]
            )),
        ])
    );
    let role = manifests.the("Role", NAME);
    assert_eq!(role.at("/metadata/namespace"), "nodegate");
    assert_eq!(
        role.at("/rules"),
        &json!([
            named(rule("", &["secrets"], &["get", "update"])),
            rule("", &["pods/eviction"], &["create"])
        ])
    );
    for binding in ["ClusterRoleBinding", "RoleBinding"] {
        let binding = manifests.the(binding, NAME);
        let account = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": "nodegate"}]);
        assert_eq!((binding.at("/subjects"), binding.at("/roleRef/name")), (&account, &json!(NAME)));
    }
}
