//! The static pod has a kubeconfig of its own, and the rights of the agent.

use super::pod_security::broken_by;
use super::support::{Json, install, manifest};
use serde_json::{Value, json};

#[test]
fn nothing_of_the_hosts_is_mounted_but_its_kubeconfig() {
    let manifests = manifest("static-pod");
    let pod = manifests.the("Pod", "nodegate").at("/spec");
    assert_eq!(broken_by(pod), ["Host Namespaces", "HostPath Volumes", "Volume Types"]);
    let file =
        json!({"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/nodegate.conf", "type": "File"}});
    let of_host: Vec<&Value> =
        pod.every("/volumes").iter().filter(|volume| volume.get("hostPath").is_some()).collect();
    assert_eq!(of_host, [&file]);
    let container = pod.at("/containers/0");
    let mounts = container.every("/volumeMounts").iter();
    let read_only: Vec<&Value> =
        mounts.filter(|mount| mount["readOnly"] == true).map(|mount| &mount["name"]).collect();
    assert_eq!(read_only, ["kubeconfig"]);
    let variables = container.every("/env");
    assert!(
        variables.contains(&json!({"name": "KUBECONFIG", "value": "/etc/nodegate/kubeconfig"})),
        "{variables:?}"
    );
    // A static pod has no service account.
    assert_eq!((pod.get("serviceAccountName"), pod.get("automountServiceAccountToken")), (None, None));
}

#[test]
fn its_user_has_the_rights_of_the_service_account() {
    let (own, installed) = (manifest("static-pod-rights"), install());
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let (own, other) = (own.the(kind, "nodegate-static"), installed.the(kind, "nodegate"));
        assert_eq!(own.at("/roleRef"), other.at("/roleRef"));
        assert_eq!(own.at("/metadata").get("namespace"), other.at("/metadata").get("namespace"));
        assert_eq!(own.every("/subjects").len(), 1);
        assert_eq!(own.at("/subjects/0/name"), "nodegate-static", "as the head of static-pod.yaml makes it");
    }
}
