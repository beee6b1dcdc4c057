//! The static pod has a kubeconfig of its own, and the rights of the agent.

use super::support::{Json, install, manifest};

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
