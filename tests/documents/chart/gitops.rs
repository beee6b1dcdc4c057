//! examples/gitops: what kustomize makes of the overlay, and what the chart makes of the values for Argo CD and Flux.

use super::template;
use crate::docs::pages::read;
use crate::manifests::{Json, Manifests, ROOT, knows_every_field};
use nodegate_testbed::programs::must_run;
use std::process::Command;

#[test]
fn kustomize_changes_image_and_settings() {
    let overlay = format!("{ROOT}/examples/gitops/kustomize");
    let manifests = Manifests::parse(&must_run(Command::new("kubectl").args(["kustomize", &overlay])));
    manifests.0.iter().for_each(knows_every_field);
    let container = &manifests.pod().every("/containers")[0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container.at("/image"), &format!("registry.example.com/nodegate:{version}"));
    let is_set = |variable: &serde_json::Value| variable["name"] == "NODEGATE_BALANCERS";
    assert!(container.every("/env").iter().any(is_set), "{container}");
}

/// Shows that both name this version and the objects that the chart renders of their values.
#[test]
fn the_values_for_argo_cd_and_flux_render() {
    let parse = |name: &str| Manifests::parse(&read(&format!("examples/gitops/{name}.yaml")));
    let (argo, flux) = (parse("argo-cd"), parse("flux"));
    let (app, release) = (argo.the("Application", "nodegate"), flux.the("HelmRelease", "nodegate"));
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(app.at("/spec/source/targetRevision"), tag);
    assert_eq!(flux.the("GitRepository", "nodegate").at("/spec/ref/tag"), tag);
    let privileged = |manifests: &Manifests| {
        let labels = manifests.the("Namespace", "nodegate").at("/metadata/labels");
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    };
    privileged(&flux);
    let by_argo = template(app.at("/spec/source/helm/valuesObject")).unwrap();
    privileged(&by_argo);
    for ignored in app.every("/spec/ignoreDifferences") {
        by_argo.the(ignored["kind"].as_str().unwrap(), ignored["name"].as_str().unwrap());
    }
    template(release.at("/spec/values")).unwrap().the("Deployment", "nodegate-eviction-gate");
}
