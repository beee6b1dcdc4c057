//! The alerts by themselves: with their true durations in promtool, and shortened for the story.

use crate::component::{Component, RuleFile};
use crate::promtool::promtool;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// How much faster time goes in the story: a minute is a second.
const FASTER: u64 = 60;

/// Writes them as a rule file; JSON is YAML, too.
pub(crate) fn write(rules: &RuleFile, path: &Path) {
    fs::write(path, serde_json::to_string_pretty(rules).unwrap()).unwrap();
}

/// The same rules with all durations divided: `for` and the ranges. Thresholds stay.
pub(crate) fn shortened(rules: &RuleFile) -> RuleFile {
    let mut rules = rules.clone();
    for alert in rules.groups.iter_mut().flat_map(|group| &mut group.rules) {
        alert.hold = alert.hold.as_deref().map(shorter);
        let mut parts = alert.expr.split('[');
        let mut expr = parts.next().unwrap().to_owned();
        for part in parts {
            let (range, rest) = part.split_once(']').unwrap();
            expr += &format!("[{}]{rest}", shorter(range));
        }
        alert.expr = expr;
    }
    rules
}

fn shorter(duration: &str) -> String {
    let minutes = duration.strip_suffix('m').and_then(|minutes| minutes.parse::<u64>().ok());
    let minutes = minutes.unwrap_or_else(|| panic!("{duration} is not in minutes"));
    format!("{}ms", minutes * 60_000 / FASTER)
}

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let component = Component::render();
    write(&component.rules, &directory.path().join("nodegate.rules.yaml"));
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/prometheus/rules.test.yaml");
    fs::copy(tests, directory.path().join("rules.test.yaml")).unwrap();
    promtool(directory.path(), &["check", "rules", "--lint-fatal", "nodegate.rules.yaml"]);
    promtool(directory.path(), &["test", "rules", "rules.test.yaml"]);
    let tests = fs::read_to_string(tests).unwrap();
    for alert in component.rules.groups.iter().flat_map(|group| &group.rules) {
        assert!(tests.contains(&format!("alertname=\"{}\"", alert.alert)), "{} has no test", alert.alert);
    }
}

#[test]
fn each_alert_says_what_it_is_and_where_to_read_on() {
    let component = Component::render();
    let alerts: Vec<_> = component.rules.groups.iter().flat_map(|group| &group.rules).collect();
    let names: BTreeSet<_> = alerts.iter().map(|alert| alert.alert.as_str()).collect();
    assert_eq!(names.len(), alerts.len());
    for alert in alerts {
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning")), "{}: {severity:?}", alert.alert);
        let annotations: Vec<_> = alert.annotations.keys().map(String::as_str).collect();
        assert_eq!(annotations, ["description", "runbook_url", "summary"], "{}", alert.alert);
        let anchor = format!("/docs/operations.md#{}", alert.alert.to_lowercase());
        assert!(alert.annotations["runbook_url"].ends_with(&anchor), "{}", alert.alert);
    }
}

#[test]
fn durations_and_nothing_else_are_shortened() {
    let rules = Component::render().rules;
    let short = shortened(&rules);
    let all = |rules: &RuleFile| serde_json::to_string(rules).unwrap();
    let lengthened = all(&short).replace("30000ms", "30m").replace("5000ms", "5m").replace("2000ms", "2m");
    assert_ne!(all(&short), all(&rules));
    assert_eq!(lengthened, all(&rules));
}
