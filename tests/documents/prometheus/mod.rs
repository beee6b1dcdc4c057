//! The files that use metrics (charts/nodegate/files), with Debian's promtool: every alert fires when it is due, and
//! alerts and dashboards have valid queries of metrics that exist.

use crate::docs::metrics;
use crate::docs::pages::read;
use crate::manifests::manifest;
use nodegate_testbed::programs::must_run;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn promtool(directory: &Path, args: &[&str]) {
    must_run(Command::new("promtool").args(args).current_dir(directory));
}

/// The rule file and the dashboard of a program.
struct Component {
    rules: Value,
    dashboard: Value,
}

impl Component {
    fn all() -> [Self; 3] {
        ["prometheus", "prometheus-haproxy", "prometheus-eviction-gate"].map(|file| {
            let objects = manifest(file).0;
            let the = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
            let name = format!("{}-dashboard.json", file.replace("prometheus", "nodegate"));
            let dashboard = serde_json::from_str(the("ConfigMap")["data"][name].as_str().unwrap()).unwrap();
            Self { rules: the("PrometheusRule")["spec"].clone(), dashboard }
        })
    }

    fn alerts(&self) -> Vec<&Value> {
        let groups = self.rules["groups"].as_array().unwrap();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value:#}"))
}

#[test]
fn each_alert_fires_in_promtool_when_due_and_not_before() {
    let tests = ["rules.test.yaml", "haproxy.test.yaml", "gate.test.yaml"];
    for (component, tests) in Component::all().iter().zip(tests) {
        let directory = tempfile::tempdir().unwrap();
        // JSON is valid YAML.
        fs::write(directory.path().join("nodegate.rules.yaml"), component.rules.to_string()).unwrap();
        let tests = read(&format!("tests/documents/prometheus/{tests}"));
        fs::write(directory.path().join("rules.test.yaml"), &tests).unwrap();
        promtool(directory.path(), &["check", "rules", "--lint-fatal", "nodegate.rules.yaml"]);
        promtool(directory.path(), &["test", "rules", "rules.test.yaml"]);
        for alert in component.alerts() {
            let name = text(alert, "alert");
            assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} has no test");
        }
    }
}

#[test]
fn each_alert_has_a_summary_and_a_runbook_link() {
    let docs = read("docs/alerts.md");
    let components = Component::all();
    let alerts: Vec<&Value> = components.iter().flat_map(Component::alerts).collect();
    let rows = docs.lines().filter(|line| line.starts_with("| <a id=\""));
    assert_eq!(rows.count(), alerts.len(), "docs/alerts.md has a row of an alert that does not exist");
    for alert in alerts {
        let name = text(alert, "alert");
        let row = format!("| <a id=\"{}\"></a>`{name}` | ", name.to_lowercase());
        assert!(docs.lines().any(|line| line.starts_with(&row)), "docs/alerts.md has no row {row}");
        let severity = text(&alert["labels"], "severity");
        assert!(matches!(severity, "critical" | "warning"), "{name}: {severity}");
        let annotations: Vec<_> = alert["annotations"].as_object().unwrap().keys().collect();
        assert_eq!(annotations, ["description", "runbook_url", "summary"], "{name}");
        let anchor = format!("/docs/alerts.md#{}", name.to_lowercase());
        assert!(text(&alert["annotations"], "runbook_url").ends_with(&anchor), "{name}");
    }
}

/// Shows, too, that promtool accepts the queries.
#[test]
fn every_metric_of_the_alerts_and_dashboards_exists() {
    let [of_agent, of_haproxy, of_gate] = Component::all();
    let (agent, gate, haproxy) = (metrics::agent(), metrics::gate(), metrics::haproxy());
    name_only(&of_agent, |name| agent.contains_key(name));
    name_only(&of_gate, |name| gate.contains_key(name));
    name_only(&of_haproxy, |name| haproxy.contains(metrics::without_suffix(name)));
}

fn name_only(component: &Component, exists: impl Fn(&str) -> bool) {
    let exprs = component.alerts().into_iter().map(|alert| text(alert, "expr").to_owned());
    let queries = queries(&component.dashboard);
    let directory = tempfile::tempdir().unwrap();
    let rule =
        |(n, expr): (usize, &String)| serde_json::json!({"record": format!("query:{n}"), "expr": expr});
    let rules: Vec<_> = queries.iter().enumerate().map(rule).collect();
    let file = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
    fs::write(directory.path().join("dashboard.yaml"), file).unwrap();
    promtool(directory.path(), &["check", "rules", "dashboard.yaml"]);
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

/// Returns the queries of a dashboard, with its variables filled in as Grafana does with "All" chosen.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let queries = targets.map(|target| text(&target, "expr").to_owned());
    let filled = queries.map(|query| query.replace("$__rate_interval", "2m").replace("$__range", "5m"));
    let named = ["$job", "$cluster", "$node", "$balancer"];
    filled.map(|query| named.iter().fold(query, |query, name| query.replace(name, ".*"))).collect()
}
