//! The alerts alone: with their real durations in promtool, and shortened for the other tests.

use super::component::{Component, RuleFile};
use super::promtool::promtool;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The divisor of ranges: a minute becomes a second and a half.
const RANGE: u64 = 40;
/// The divisor of waits: a minute becomes a third of a second.
const WAIT: u64 = 180;

/// Writes the rules as a rule file, as JSON, which is valid YAML.
pub(crate) fn write(rules: &RuleFile, path: &Path) {
    fs::write(path, serde_json::to_string_pretty(rules).unwrap()).unwrap();
}

/// Returns the same rules with all durations divided: `for` and the ranges. Thresholds stay.
pub(crate) fn shortened(rules: &RuleFile) -> RuleFile {
    let mut rules = rules.clone();
    for alert in rules.groups.iter_mut().flat_map(|group| &mut group.rules) {
        alert.hold = alert.hold.as_deref().map(|hold| shorter(hold, WAIT));
        let mut parts = alert.expr.split('[');
        let mut expr = parts.next().unwrap().to_owned();
        for part in parts {
            let (range, rest) = part.split_once(']').unwrap();
            write!(expr, "[{}]{rest}", shorter(range, RANGE)).unwrap();
        }
        alert.expr = expr;
    }
    rules
}

fn shorter(duration: &str, divisor: u64) -> String {
    let of = |unit: char, minutes: u64| Some(duration.strip_suffix(unit)?.parse::<u64>().ok()? * minutes);
    let minutes = of('m', 1).or_else(|| of('d', 24 * 60));
    let minutes = minutes.unwrap_or_else(|| panic!("{duration} is neither in minutes nor in days"));
    format!("{}ms", minutes * 60_000 / divisor)
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

#[test]
fn only_durations_of_the_alerts_are_shortened() {
    let rules = Component::render().rules;
    let short = shortened(&rules);
    let all = |rules: &RuleFile| serde_json::to_string(rules).unwrap();
    let lengthened = all(&short)
        .replace("2160000ms", "1d")
        .replace("45000ms", "30m")
        .replace("1666ms", "5m")
        .replace("666ms", "2m")
        .replace("333ms", "1m");
    assert_ne!(all(&short), all(&rules));
    assert_eq!(lengthened, all(&rules));
}
