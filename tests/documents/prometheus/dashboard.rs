//! The Grafana dashboards: their models, and their queries.

use super::api::{Prometheus, encoded};
use super::component::Component;
use serde_json::Value;
use std::collections::BTreeSet;

/// The value for Grafana's `$__rate_interval`, which is four scrapes.
const RATE_INTERVAL: &str = "2s";
/// The value for `$__range`, the time that the dashboard shows.
const SHOWN: &str = "5m";

pub(crate) struct Dashboard {
    pub(crate) queries: Vec<Query>,
    /// The queries that fill the variables, as name, label and series.
    pub(crate) variables: Vec<(String, String, String)>,
}

/// One query of a panel.
pub(crate) struct Query {
    pub(crate) panel: String,
    /// The panel's type, such as `table`.
    pub(crate) kind: String,
    pub(crate) expr: String,
    pub(crate) legend: String,
}

/// The result of a query over the test's time.
pub(crate) struct Seen {
    pub(crate) series: usize,
    pub(crate) largest: f64,
}

impl Dashboard {
    pub(crate) fn read(model: &Value) -> Self {
        Self::read_with(model, RATE_INTERVAL)
    }

    /// Reads a dashboard for another scrape interval.
    pub(crate) fn read_with(model: &Value, rate_interval: &str) -> Self {
        let filled = |query: &str| filled(query, rate_interval);
        let panels = model["panels"].as_array().unwrap();
        let queries = panels.iter().flat_map(|panel| {
            let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
            targets.iter().map(|target| Query {
                panel: text(panel, "title"),
                kind: text(panel, "type"),
                expr: filled(&text(target, "expr")),
                legend: text(target, "legendFormat"),
            })
        });
        let variables = model["templating"]["list"].as_array().unwrap().iter();
        let variables = variables.filter(|variable| variable["type"] == "query").map(|variable| {
            let query = text(&variable["query"], "query");
            let inner = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')'));
            let (series, label) =
                inner.and_then(|inner| inner.rsplit_once(", ")).expect("label_values(series, label)");
            (text(variable, "name"), label.to_owned(), filled(series))
        });
        Self { queries: queries.collect(), variables: variables.collect() }
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value:#}")).to_owned()
}

/// Fills in the variables, as Grafana does with "All" chosen.
fn filled(query: &str, rate_interval: &str) -> String {
    let query = query.replace("$__rate_interval", rate_interval).replace("$__range", SHOWN);
    let query = query.replace("$job", "(nodegate)");
    let query = ["$cluster", "$node", "$balancer"].iter().fold(query, |query, all| query.replace(all, ".*"));
    // The test is too short for steps of a minute, and a day of short steps is too long.
    let query = query.replace("[1d:1m]", "[15m:1s]");
    assert!(!query.contains('$'), "an unknown variable: {query}");
    query
}

impl Query {
    /// Runs the query over the test's time, in which everything has happened. Asserts that it has a result
    /// other than 0, that its series have the labels of the legend, and that no value is NaN.
    pub(crate) fn run(&self, prometheus: &Prometheus, start: u64, end: u64) -> Seen {
        let Self { panel, expr, legend, .. } = self;
        let series = prometheus.query_range(expr, start, end);
        assert!(!series.is_empty(), "{panel}: no result of {expr}");
        let values = || series.iter().flat_map(|series| &series.values);
        assert!(values().all(|value| value.is_finite()), "{panel}: {expr} gives {series:#?}");
        let largest = values().copied().fold(f64::MIN, f64::max);
        assert!(largest > 0.0 && values().all(|value| *value >= 0.0), "{panel}: {expr} gives {series:#?}");
        let named = legend.split("{{").skip(1).map(|part| part.split("}}").next().unwrap());
        // With only one cluster, its name may be absent.
        for label in named.filter(|label| *label != "cluster") {
            for series in &series {
                assert!(!series.label(label).is_empty(), "{panel}: no {label} in {series:?}");
            }
        }
        Seen { series: series.len(), largest }
    }
}

/// Returns the values that fill a variable.
pub(crate) fn label_values(prometheus: &Prometheus, label: &str, series: &str) -> BTreeSet<String> {
    let path = format!("/api/v1/label/{label}/values?match[]={}", encoded(series));
    serde_json::from_value(prometheus.get(&path)).unwrap()
}

#[test]
fn grafana_can_import_the_dashboards() {
    grafana_imports(&Component::render().dashboard, "nodegate");
    grafana_imports(&Component::haproxy().dashboard, "nodegate-haproxy");
    grafana_imports(&Component::gate().dashboard, "nodegate-eviction-gate");
}

fn grafana_imports(model: &Value, uid: &str) {
    assert_eq!(model["uid"], uid);
    assert!(model["schemaVersion"].as_u64() >= Some(36), "what Grafana 9 writes, or later");
    assert!(model.get("id").is_none(), "an id is of one Grafana");
    let panels = model["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "panel ids");
    for panel in panels {
        let title = text(panel, "title");
        if panel["type"] != "row" {
            assert!(!text(panel, "description").is_empty(), "{title} says nothing of itself");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            for target in panel["targets"].as_array().unwrap() {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            }
        }
    }
}

#[test]
fn no_panel_of_the_dashboards_overlaps_another() {
    covers_nothing(&Component::render().dashboard);
    covers_nothing(&Component::haproxy().dashboard);
    covers_nothing(&Component::gate().dashboard);
}

fn covers_nothing(model: &Value) {
    let mut taken = BTreeSet::new();
    for panel in model["panels"].as_array().unwrap() {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("w") > 0 && at("h") > 0 && at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{} covers something", panel["title"]);
            }
        }
    }
    let lowest = taken.iter().map(|(_, y)| *y).max().unwrap();
    let full = (0..=lowest).flat_map(|y| (0..24).map(move |x| (x, y)));
    let empty: BTreeSet<_> = full.filter(|place| !taken.contains(place)).map(|(_, y)| y).collect();
    // A row's title has the full width; the other panels fill their line.
    assert_eq!(empty, BTreeSet::new(), "lines with holes");
}
