//! The Pod Security Standard `restricted`, rule by rule on the rendered pods. docs/security.md describes the
//! result.

use super::pod_security_rules::{RULES, Rule};
use super::support::{Json, Manifests, install, manifest};
use serde_json::{Value, json};

/// Returns the rules that the pod of these manifests breaks.
pub(crate) fn broken(manifests: &Manifests) -> Vec<&'static str> {
    broken_by(manifests.pod())
}

/// Returns the rules that a pod breaks.
pub(crate) fn broken_by(pod: &Value) -> Vec<&'static str> {
    let containers: Vec<&Value> = ["/initContainers", "/containers", "/ephemeralContainers"]
        .iter()
        .flat_map(|list| pod.every(list))
        .collect();
    assert!(!containers.is_empty());
    let breaks = |rule: &&Rule| containers.iter().any(|container| !(rule.holds)(pod, container));
    let broken = RULES.iter().filter(breaks);
    broken.inspect(|rule| eprintln!("not kept: {}: {}", rule.name, rule.text)).map(|rule| rule.name).collect()
}

#[test]
fn the_agent_is_restricted_except_for_the_host_network() {
    assert_eq!(broken(&install()), ["Host Namespaces"]);
    assert_eq!(broken(&manifest("install-openshift")), ["Host Namespaces"]);
    let labels = install();
    let labels = labels.the("Namespace", "nodegate").at("/metadata/labels");
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged", "what admits the host's network");
}

#[test]
fn the_agents_pod_shares_only_the_hosts_network_namespace() {
    let manifests = install();
    let pod = manifests.pod();
    assert_eq!((&pod["hostNetwork"], pod.get("hostPID"), pod.get("hostIPC")), (&json!(true), None, None));
}

#[test]
fn the_agents_pod_has_a_read_only_root_and_a_numeric_user() {
    let manifests = install();
    let pod = manifests.pod();
    assert_eq!(pod.every("/containers").len(), 1);
    assert_eq!(pod.at("/containers/0/securityContext/readOnlyRootFilesystem"), &json!(true));
    assert_eq!(pod.at("/securityContext/runAsUser"), &json!(65521));
    let volumes = json!([{"name": "state", "emptyDir": {"sizeLimit": "1Mi"}}]);
    assert_eq!(pod.at("/volumes"), &volumes, "nothing of the host's");
}

#[test]
fn host_checks_also_break_the_rules_for_host_paths() {
    assert_eq!(
        broken(&manifest("install-host-checks")),
        ["Host Namespaces", "HostPath Volumes", "Volume Types"]
    );
}

/// Shows that the rules can fail: breaks each of them once.
#[test]
fn every_pod_security_rule_detects_its_violation() {
    let breach = |pointer: &str, key: &str, value: Value| {
        let mut manifests = install();
        let at = manifests.pod_mut().pointer_mut(pointer).unwrap();
        at[key] = value;
        broken(&manifests).into_iter().filter(|name| *name != "Host Namespaces").collect::<Vec<_>>()
    };
    let (pod, context) = ("/securityContext", "/containers/0/securityContext");
    assert_eq!(breach(pod, "windowsOptions", json!({"hostProcess": true})), ["HostProcess"]);
    assert_eq!(breach(context, "privileged", json!(true)), ["Privileged Containers"]);
    assert_eq!(
        breach(context, "capabilities", json!({"add": ["NET_RAW"]})),
        ["Capabilities: none added", "Capabilities: all dropped"]
    );
    assert_eq!(breach("", "volumes", json!([{"name": "x", "nfs": {}}])), ["Volume Types"]);
    assert_eq!(breach("/containers/0", "ports", json!([{"hostPort": 1}])), ["Host Ports"]);
    assert_eq!(breach("/containers/0/livenessProbe/httpGet", "host", json!("x")), ["Host Probes"]);
    let hook = json!({"preStop": {"tcpSocket": {"host": "x", "port": 1}}});
    assert_eq!(breach("/containers/0", "lifecycle", hook), ["Host Probes"]);
    assert_eq!(breach(pod, "appArmorProfile", json!({"type": "Unconfined"})), ["AppArmor"]);
    assert_eq!(breach(context, "seLinuxOptions", json!({"type": "spc_t"})), ["SELinux"]);
    assert_eq!(breach(context, "procMount", json!("Unmasked")), ["/proc Mount Type"]);
    assert_eq!(breach(pod, "sysctls", json!([{"name": "x"}])), ["Sysctls"]);
    assert_eq!(breach(context, "allowPrivilegeEscalation", json!(true)), ["Privilege Escalation"]);
    assert_eq!(breach(context, "runAsNonRoot", json!(false)), ["Running as Non-root"]);
    assert_eq!(breach(context, "runAsUser", json!(0)), ["Running as Non-root"]);
    assert_eq!(breach(pod, "seccompProfile", json!({"type": "Unconfined"})), ["Seccomp"]);
}
