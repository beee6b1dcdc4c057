//! examples/values has a file for each distribution: the chart takes it, and the agent takes its settings.

use super::program::{self, started};
use super::{template, with};
use crate::docs::pages::read;
use crate::manifests::{Json, Manifests, ROOT, knows_every_field};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

const OPENSHIFT: &str = "openshift.yaml";

/// Returns the name and the values of each file.
fn files() -> Vec<(String, Value)> {
    let entries = fs::read_dir(format!("{ROOT}/examples/values")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let values = |name: String| {
        let text = read(&format!("examples/values/{name}"));
        (name, serde_saphyr::from_str(&text).unwrap())
    };
    names.into_iter().map(values).collect()
}

fn rendered(name: &str, values: &Value, more: &Value) -> Manifests {
    template(&with(values.clone(), more)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_page_of_distributions_links_each_file_of_values() {
    let page = read("docs/distributions.md");
    for (name, _) in files() {
        assert!(page.contains(&format!("(../examples/values/{name})")), "no link to {name}");
    }
}

/// Shows the pods that each file makes: on every node, unprivileged, and in a namespace that admits the host's network.
#[test]
fn the_chart_makes_the_same_pods_of_each_file() {
    for (name, values) in files() {
        let manifests = rendered(&name, &values, &json!({"createNamespace": true}));
        manifests.0.iter().for_each(knows_every_field);
        let labels = manifests.the("Namespace", "nodegate").at("/metadata/labels");
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged", "{name}");
        let pod = manifests.pod();
        assert_eq!(
            (pod.at("/hostNetwork"), pod.at("/tolerations")),
            (&json!(true), &json!([{"operator": "Exists"}]))
        );
        let security = pod.at("/containers/0/securityContext");
        assert_eq!(security.at("/allowPrivilegeEscalation"), false, "{name}");
        assert!(pod.every("/volumes").iter().all(|volume| volume.get("hostPath").is_none()), "{name}");
        let scc = manifests.names().iter().any(|name| name == "Role nodegate/nodegate-scc");
        assert_eq!(scc, name == OPENSHIFT, "{name}");
    }
}

#[test]
fn the_agent_takes_the_settings_of_each_file() {
    for (name, values) in files() {
        let manifests = rendered(&name, &values, &json!({}));
        let env = started(manifests.pod().at("/containers/0"));
        let env = env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        assert_eq!(program::all()[0].mistakes(env), BTreeMap::new(), "{name}");
    }
}
