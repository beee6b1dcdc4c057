//! The Grafana dashboards: their models, and their queries.

use super::api::{Prometheus, encoded};
use serde_json::Value;
use std::collections::BTreeSet;
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
}

impl Dashboard {
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

/// Returns the values that fill a variable.
pub(crate) fn label_values(prometheus: &Prometheus, label: &str, series: &str) -> BTreeSet<String> {
    let path = format!("/api/v1/label/{label}/values?match[]={}", encoded(series));
    serde_json::from_value(prometheus.get(&path)).unwrap()
}
