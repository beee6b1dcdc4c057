//! The alerts in promtool, with their real durations, and the metrics that they and the dashboards name.

use super::component::{Component, RuleFile};
use super::promtool::promtool;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
/// Writes the rules as a rule file, as JSON, which is valid YAML.
fn write(rules: &RuleFile, path: &Path) {
    fs::write(path, serde_json::to_string_pretty(rules).unwrap()).unwrap();
}

#[test]
fn each_alert_fires_in_promtool_when_due_and_not_before() {
    fires_when_it_should(&Component::render(), "rules.test.yaml");
    fires_when_it_should(&Component::haproxy(), "haproxy.test.yaml");
    fires_when_it_should(&Component::gate(), "gate.test.yaml");
}

fn fires_when_it_should(component: &Component, tests: &str) {
    let directory = tempfile::tempdir().unwrap();
    write(&component.rules, &directory.path().join("nodegate.rules.yaml"));
    let tests = format!("{}/tests/documents/prometheus/{tests}", env!("CARGO_MANIFEST_DIR"));
    fs::copy(&tests, directory.path().join("rules.test.yaml")).unwrap();
    promtool(directory.path(), &["check", "rules", "--lint-fatal", "nodegate.rules.yaml"]);
    promtool(directory.path(), &["test", "rules", "rules.test.yaml"]);
    let tests = fs::read_to_string(tests).unwrap();
    for alert in component.rules.groups.iter().flat_map(|group| &group.rules) {
        assert!(tests.contains(&format!("alertname=\"{}\"", alert.name)), "{} has no test", alert.name);
    }
}

#[test]
fn each_alert_has_a_summary_and_a_runbook_link() {
    let components = [Component::render(), Component::haproxy(), Component::gate()];
    let alerts: usize = components.iter().map(says_where_to_read_on).sum();
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.md")).unwrap();
    let rows = docs.lines().filter(|line| line.starts_with("| <a id=\""));
    assert_eq!(rows.count(), alerts, "docs/alerts.md has a row of an alert that does not exist");
}

/// Returns the number of alerts.
fn says_where_to_read_on(component: &Component) -> usize {
    let alerts: Vec<_> = component.rules.groups.iter().flat_map(|group| &group.rules).collect();
    let names: BTreeSet<_> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names.len(), alerts.len());
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.md")).unwrap();
    for alert in &alerts {
        let row = format!("| <a id=\"{}\"></a>`{}` | ", alert.name.to_lowercase(), alert.name);
        assert!(docs.lines().any(|line| line.starts_with(&row)), "docs/alerts.md has no row {row}");
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning")), "{}: {severity:?}", alert.name);
        let annotations: Vec<_> = alert.annotations.keys().map(String::as_str).collect();
        assert_eq!(annotations, ["description", "runbook_url", "summary"], "{}", alert.name);
        let anchor = format!("/docs/alerts.md#{}", alert.name.to_lowercase());
        assert!(alert.annotations["runbook_url"].ends_with(&anchor), "{}", alert.name);
    }
    names.len()
}

/// Shows that alerts and dashboards name only metrics that the programs expose.
#[test]
fn every_metric_of_the_alerts_and_dashboards_exists() {
    let read = |file: &str| fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let agent = read("tests/documents/prometheus/metrics.txt")
        + &read("crates/server/tests/server/golden/metrics.txt");
    name_only(&Component::render(), |name| agent.contains(&format!("# TYPE {name} ")));
    let gate = std::sync::Arc::new(nodegate_eviction_gate::serve::gate_metrics::GateMetrics::default());
    let gate = nodegate_http::Format::Prometheus.encode(&[&gate.registry()]).unwrap();
    name_only(&Component::gate(), |name| gate.contains(&format!("# TYPE {name} ")));
    // Its registry needs a running program.
    let registered = read("crates/nodegate-haproxy/src/run/metrics.rs")
        + &read("crates/nodegate-haproxy/src/watch/life.rs");
    name_only(&Component::haproxy(), |name| {
        let name = name.trim_start_matches("nodegate_haproxy_").trim_end_matches("_total");
        registered.contains(&format!("\"{name}\""))
    });
}

fn name_only(component: &Component, exists: impl Fn(&str) -> bool) {
    let exprs = component.rules.groups.iter().flat_map(|group| &group.rules).map(|alert| alert.expr.clone());
    let panels = component.dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let queries = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let mut found = 0;
    for expr in exprs.chain(queries) {
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("nodegate_")) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(exists(name) || base.is_some_and(&exists), "there is no {name}: {expr}");
            found += 1;
        }
    }
    assert!(found > 5, "only {found} metrics");
}
