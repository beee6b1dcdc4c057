//! charts/nodegate with the real Helm: it rejects wrong values with a message, and does what its values say.

mod distributions;
mod gitops;
mod kinds;
mod program;
mod readme;
mod settings;
mod values;

use crate::docs::pages;
use crate::manifests::{Manifests, ROOT};
use nodegate_testbed::programs;
use serde_json::Value;
use std::fs;

fn chart() -> String {
    format!("{ROOT}/charts/nodegate")
}

fn read(name: &str) -> String {
    pages::read(&format!("charts/nodegate/{name}"))
}

/// Runs Helm without the caller's configuration and cluster. Returns its output, or its errors.
fn helm(args: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let mut command = programs::system("helm");
    for kind in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR"] {
        command.env(kind, home.path().join(kind));
    }
    command.env("KUBECONFIG", "/nonexistent");
    command.env_remove("KUBERNETES_SERVICE_HOST").args(args);
    programs::try_run(&mut command)
}

fn template(values: &Value) -> Result<Manifests, String> {
    template_as("nodegate", "nodegate", values)
}

fn template_as(release: &str, namespace: &str, values: &Value) -> Result<Manifests, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, values.to_string()).unwrap();
    let (chart, file) = (chart(), file.path().to_str().unwrap());
    let args = ["template", release, &chart, "--namespace", namespace, "--skip-tests", "--values", file];
    helm(&args).map(|yaml| Manifests::parse(&yaml))
}

fn with(mut values: Value, more: &Value) -> Value {
    values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    values
}

#[test]
fn helm_lint_accepts_the_chart() {
    let linted = helm(&["lint", "--strict", &chart()]).unwrap();
    assert!(linted.contains("1 chart(s) linted, 0 chart(s) failed"), "{linted}");
}

#[test]
fn the_chart_has_the_version_of_this_source() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).unwrap();
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let images = chart["annotations"]["artifacthub.io/images"].as_str().unwrap();
    assert_eq!(images.matches(concat!(":", env!("CARGO_PKG_VERSION"), "\n")).count(), 3, "{images}");
}
