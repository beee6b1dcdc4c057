//! examples/values has a file for each distribution: the chart takes it, and the agent takes its settings.

use super::program::{self, started};
use super::{template, with};
use crate::docs::pages::read;
use crate::manifests::{Json, ROOT, knows_every_field};
use serde_json::json;
use std::fs;

/// Shows, too, that pods run on every node, unprivileged, in a namespace that admits the host's network.
#[test]
fn the_page_the_chart_and_the_agent_know_each_file_of_values() {
    let page = read("docs/distributions.md");
    for entry in fs::read_dir(format!("{ROOT}/examples/values")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("(../examples/values/{name})")), "no link to {name}");
        let values = serde_saphyr::from_str(&read(&format!("examples/values/{name}"))).unwrap();
        let manifests = template(&with(values, &json!({"createNamespace": true})));
        let manifests = manifests.unwrap_or_else(|error| panic!("{name}: {error}"));
        manifests.0.iter().for_each(knows_every_field);
        let labels = manifests.the("Namespace", "nodegate").at("/metadata/labels");
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged", "{name}");
        let (pod, everywhere) = (manifests.pod(), json!([{"operator": "Exists"}]));
        assert!(pod["hostNetwork"] == true && pod["tolerations"] == everywhere, "{name}: {pod:#}");
        assert_eq!(pod.at("/containers/0/securityContext/allowPrivilegeEscalation"), false, "{name}");
        assert!(pod.every("/volumes").iter().all(|volume| volume.get("hostPath").is_none()), "{name}");
        let scc = manifests.names().iter().any(|name| name == "Role nodegate/nodegate-scc");
        assert_eq!(scc, name == "openshift.yaml", "{name}");
        let wrong = program::all()[0].mistakes(started(pod.at("/containers/0")));
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}
