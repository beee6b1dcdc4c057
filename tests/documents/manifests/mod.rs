//! The manifests: what the chart renders, no unneeded right, no unknown field.

mod rights;
mod support;

use crate::docs::pages::read;
use nodegate_testbed::programs::must_run;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
pub(crate) use support::{Json, Manifests, ROOT, knows_every_field, manifest};
use support::{default_of, install, seconds_of};

/// The files that are whole, each an alternative to the others.
const WHOLE: [&str; 4] = ["install", "install-host-checks", "install-host-signals", "install-openshift"];

/// Returns the text of each rendered file in a directory, by its name without the extension.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let files = entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap()));
    files.filter(|(name, _)| name != "kustomization").collect()
}

#[test]
fn the_manifests_are_what_the_chart_renders() {
    let directory = tempfile::tempdir().unwrap();
    must_run(Command::new(format!("{ROOT}/hack/render-manifests")).arg(directory.path()));
    let (rendered, here) = (files(directory.path()), files(&Path::new(ROOT).join("manifests")));
    assert_eq!(rendered.keys().collect::<Vec<_>>(), here.keys().collect::<Vec<_>>());
    for (name, text) in &rendered {
        assert!(
            text == &here[name],
            "manifests/{name}.yaml is not up to date: run `make generate WHAT=manifests`"
        );
    }
}

/// Shows that an addition repeats no object, so all of them can be applied with any whole file.
#[test]
fn every_file_of_manifests_adds_objects_of_its_own_and_only_known_fields() {
    let all = files(&Path::new(ROOT).join("manifests"));
    for whole in WHOLE {
        let mut names = BTreeSet::new();
        for (file, text) in all.iter().filter(|(name, _)| *name == whole || !WHOLE.contains(&name.as_str())) {
            let manifests = Manifests::parse(text);
            manifests.0.iter().for_each(knows_every_field);
            for name in manifests.names() {
                assert!(names.insert(name.clone()), "{file} with {whole}: {name} is there twice");
            }
        }
        assert!(names.len() > 35, "{names:?}");
    }
}

#[test]
fn the_kustomization_is_the_whole_installation() {
    let built = must_run(Command::new("kubectl").args(["kustomize", &format!("{ROOT}/manifests")]));
    let sorted = |manifests: Manifests| manifests.0.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(sorted(Manifests::parse(&built)), sorted(install()));
}

#[test]
fn the_kubelets_probes_ask_for_the_agents_own_health_and_allow_its_startup() {
    let manifests = install();
    let container = &manifests.pod().every("/containers")[0];
    let port: u64 = default_of("LISTEN_PORT").parse().unwrap();
    for (probe, path) in
        [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": port}), "{probe}");
    }
    let start_up = &container["startupProbe"];
    let timeout = start_up.number("/periodSeconds") * start_up.number("/failureThreshold");
    assert!(
        timeout > seconds_of("NODEGATE_STALE_AFTER"),
        "nothing listens before the wait for the API server is over"
    );
    let end = manifests.pod().number("/terminationGracePeriodSeconds");
    assert!(end > seconds_of("NODEGATE_SHUTDOWN_GRACE"), "SIGKILL would cut requests in flight");
}

/// Shows that the `FlowSchema` covers the agent's own rights, and the agent alone.
#[test]
fn the_flow_schema_covers_exactly_the_agents_requests() {
    let rule = manifest("flow-schema").the("FlowSchema", "nodegate").at("/spec/rules/0").clone();
    let account =
        json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": "nodegate", "name": "nodegate"}}]);
    assert_eq!(rule.at("/subjects"), &account);
    let granted = [install().0, manifest("services").0].concat();
    let requests = |rule: &Value| format!("{} {} {}", rule["apiGroups"], rule["resources"], rule["verbs"]);
    // Roles alone have rules.
    let may: BTreeSet<_> = granted.iter().flat_map(|object| object.every("/rules")).map(requests).collect();
    let flows: BTreeSet<_> = rule.every("/resourceRules").iter().map(requests).collect();
    assert_eq!(flows, may);
}

/// A policy of examples/security keeps other Pods from the agent's ports on the host.
#[test]
fn the_host_port_policy_is_complete_and_names_the_agents_ports_and_namespace() {
    let policy = read("examples/security/reserve-host-ports.yaml");
    let objects = Manifests::parse(&policy);
    objects.0.iter().for_each(knows_every_field);
    let policy = objects.the("ValidatingAdmissionPolicy", "nodegate-host-ports");
    let binding = objects.the("ValidatingAdmissionPolicyBinding", "nodegate-host-ports");
    assert_eq!(binding.at("/spec/policyName"), policy.at("/metadata/name"));
    assert_eq!(binding.at("/spec/validationActions/0"), "Deny");
    let ports = ["LISTEN_PORT", "NODEGATE_AGENT_CHECK_PORT"].map(default_of).join(", ");
    assert_eq!(policy.at("/spec/variables/0/expression"), &format!("[{ports}]"));
    let namespace = install().the("DaemonSet", "nodegate").at("/metadata/namespace").clone();
    let expression = format!("request.namespace != '{}'", namespace.as_str().unwrap());
    assert_eq!(policy.at("/spec/matchConditions/0/expression"), &expression);
    for (validation, list) in policy.every("/spec/validations").iter().zip(["containers", "initContainers"]) {
        let expression = validation.at("/expression").as_str().unwrap();
        assert!(expression.contains(&format!("object.spec.{list}.all(")), "{expression}");
        assert!(expression.contains("port.hostPort in variables.reserved"), "{expression}");
    }
    assert_eq!(policy.every("/spec/validations").len(), 2);
}
