//! The static pod is the DaemonSet's pod with a kubeconfig of its own, and has the same rights.

use super::pod_security::broken_by;
use super::support::{Json, Manifests, ROOT, Settings, install, knows_every_field};
use serde_json::{Value, json};
use std::fs;

fn read(file: &str) -> Manifests {
    let manifests =
        Manifests::parse(&fs::read_to_string(format!("{ROOT}/manifests/static-pod/{file}")).unwrap());
    manifests.0.iter().for_each(knows_every_field);
    manifests
}

#[test]
fn it_runs_as_the_pods_of_the_daemon_set_do() {
    let (own, installed) = (read("nodegate.yaml"), install());
    let (own, other) = (own.the("Pod", "nodegate").at("/spec"), installed.pod());
    for field in [
        "hostNetwork",
        "dnsPolicy",
        "enableServiceLinks",
        "tolerations",
        "priorityClassName",
        "terminationGracePeriodSeconds",
        "securityContext",
    ] {
        assert_eq!(own[field], other[field], "{field}");
    }
    let (own, other) = (own.at("/containers/0"), other.at("/containers/0"));
    for field in ["image", "imagePullPolicy", "resources", "securityContext", "startupProbe", "livenessProbe"]
    {
        assert_eq!(own[field], other[field], "{field}");
    }
    let settings = Settings::read();
    for variable in own.every("/env") {
        let name = variable.at("/name").as_str().unwrap();
        // Only credentials have a name that is no setting.
        assert!(name == "KUBECONFIG" || settings.default_of(name).is_some(), "the agent has no {name}");
    }
}

#[test]
fn nothing_of_the_hosts_is_mounted_but_its_kubeconfig() {
    let manifests = read("nodegate.yaml");
    let pod = manifests.the("Pod", "nodegate").at("/spec");
    assert_eq!(broken_by(pod), ["Host Namespaces", "HostPath Volumes", "Volume Types"]);
    let file =
        json!({"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/nodegate.conf", "type": "File"}});
    let of_host: Vec<&Value> =
        pod.every("/volumes").iter().filter(|volume| volume.get("hostPath").is_some()).collect();
    assert_eq!(of_host, [&file]);
    let mount = &pod.every("/containers/0/volumeMounts")[0];
    assert_eq!((mount.at("/name"), mount.at("/readOnly")), (&json!("kubeconfig"), &json!(true)));
}

#[test]
fn its_user_has_the_rights_of_the_service_account() {
    let (own, installed) = (read("rbac.yaml"), install());
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let (own, other) = (own.the(kind, "nodegate-static"), installed.the(kind, "nodegate"));
        assert_eq!(own.at("/roleRef"), other.at("/roleRef"));
        assert_eq!(own.at("/metadata").get("namespace"), other.at("/metadata").get("namespace"));
        assert_eq!(own.every("/subjects").len(), 1);
        assert_eq!(own.at("/subjects/0/name"), "nodegate-static", "as the head of nodegate.yaml makes it");
    }
}
