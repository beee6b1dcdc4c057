//! charts/nodegate with the real Helm: it rejects wrong values with a message, and does what its values say.

mod conventions;
mod distributions;
mod gitops;
mod kinds;
mod program;
mod readme;
mod recipes;
mod settings;
mod values;

use crate::manifests::{Manifests, ROOT};
use nodegate_testbed::programs;
use serde_json::Value;
use std::fs;

/// Returns the chart's directory.
fn chart() -> String {
    format!("{ROOT}/charts/nodegate")
}

fn read(name: &str) -> String {
    fs::read_to_string(format!("{}/{name}", chart())).unwrap()
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

/// Renders the chart with these values and additional arguments.
fn template_with(values: &Value, args: &[&str]) -> Result<Manifests, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    let (chart, file) = (chart(), file.to_str().unwrap());
    let own = ["template", "nodegate", &chart, "--values", file];
    helm(&[&own[..], args].concat()).map(|yaml| Manifests::parse(&yaml))
}

fn template(values: &Value) -> Result<Manifests, String> {
    template_with(values, &["--namespace", "nodegate", "--skip-tests"])
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
}
