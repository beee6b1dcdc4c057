//! manifests/eviction-gate.yaml: as many rights as the gate needs, and a webhook that stops nothing by itself.

use super::pod_security::broken_by;
use super::support::{Json, Manifests, install, manifest};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAME: &str = "nodegate-eviction-gate";

fn manifests() -> Manifests {
    manifest("eviction-gate")
}

fn pod(manifests: &Manifests) -> &Value {
    manifests.the("Deployment", NAME).at("/spec/template/spec")
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

#[test]
fn the_webhook_is_asked_for_evictions_alone_and_its_faults_stop_none() {
    let manifests = manifests();
    let webhooks = manifests.the("ValidatingWebhookConfiguration", NAME).every("/webhooks");
    assert_eq!(webhooks.len(), 1);
    let webhook = &webhooks[0];
    assert_eq!(
        webhook.at("/rules"),
        &json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"],
            "scope": "Namespaced"}])
    );
    assert_eq!((webhook.at("/failurePolicy"), webhook.at("/timeoutSeconds")), (&json!("Ignore"), &json!(3)));
    assert_eq!(
        (webhook.at("/sideEffects"), webhook.at("/admissionReviewVersions")),
        (&json!("None"), &json!(["v1"]))
    );
    // What is applied again must not take away what the gate has written.
    assert_eq!(webhook.at("/clientConfig").get("caBundle"), None);
    assert_eq!(manifests.the("Secret", NAME).get("data"), None);
    let service = webhook.at("/clientConfig/service");
    assert_eq!((service.at("/name"), service.at("/namespace")), (&json!(NAME), &json!("nodegate")));
    assert_eq!(service.at("/path"), nodegate_eviction_gate::serve::webhook::PATH);
}

#[test]
fn the_pods_are_restricted_spread_and_never_all_drained_at_once() {
    let manifests = manifests();
    let deployment = manifests.the("Deployment", NAME);
    assert_eq!(broken_by(pod(&manifests)), [""; 0]);
    assert_eq!(deployment.at("/spec/replicas"), 2);
    assert_eq!(pod(&manifests).at("/priorityClassName"), "system-cluster-critical");
    let labels = deployment.at("/spec/template/metadata/labels").as_object().unwrap();
    let selects = |selector: &Value| {
        selector.as_object().unwrap().iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    assert!(selects(deployment.at("/spec/selector/matchLabels")));
    assert!(selects(pod(&manifests).at("/topologySpreadConstraints/0/labelSelector/matchLabels")));
    assert!(selects(manifests.the("Service", NAME).at("/spec/selector")));
    let budget = manifests.the("PodDisruptionBudget", NAME);
    assert!(selects(budget.at("/spec/selector/matchLabels")));
    assert_eq!(budget.at("/spec/maxUnavailable"), 1);
    // The gate lets go of its own pods by this label.
    assert_eq!(labels["app.kubernetes.io/name"], nodegate_eviction_gate::run::APP);
    let agent = install().the("DaemonSet", "nodegate").at("/spec/selector/matchLabels").clone();
    assert!(!selects(&agent));
}

fn default_of(flag: &str) -> String {
    let command = nodegate_eviction_gate::run::command();
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
    arg.get_default_values()[0].to_str().unwrap().to_owned()
}

#[test]
fn what_the_pod_sets_is_what_the_program_reads() {
    let command = nodegate_eviction_gate::run::command();
    let known: BTreeSet<_> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    let manifests = manifests();
    let container = pod(&manifests).at("/containers/0");
    for variable in container.every("/env") {
        assert!(known.contains(variable.at("/name").as_str().unwrap()), "{variable}");
    }
    let image = concat!("ghcr.io/nodegate/nodegate-eviction-gate:", env!("CARGO_PKG_VERSION"));
    assert_eq!(container.at("/image"), image, "the version of this source");
    assert_eq!(container.get("ports"), None, "with the host's network each would be a hostPort");
    let port = |flag: &str| default_of(flag).rsplit(':').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(manifests.the("Service", NAME).at("/spec/ports/0/targetPort"), port("listen"));
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(
            container[probe]["httpGet"],
            json!({"path": path, "port": port("health-listen")}),
            "{probe}"
        );
    }
    assert_eq!((default_of("name").as_str(), default_of("namespace").as_str()), (NAME, "nodegate"));
    let delay = nodegate_eviction_gate::run::SHUTDOWN_DELAY.as_secs();
    assert!(pod(&manifests).number("/terminationGracePeriodSeconds") > delay + 2, "reviews in flight");
}
