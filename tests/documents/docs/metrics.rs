//! docs/metrics.md and the page of nodegate-haproxy have each metric of the programs with its labels, and no
//! other; the other pages name existing metrics alone.

use super::pages::{self, read};
use nodegate_eviction_gate::GateMetrics;
use nodegate_http::Format;
use nodegate_testbed::programs::must_run;
use nodegate_testbed::{Scenario, until};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Names with the programs' prefix that are no metrics: `HAProxy`'s backends, and crates in log filters.
const NO_METRICS: [&str; 4] =
    ["nodegate_nodes", "nodegate_passing", "nodegate_node_watch", "nodegate_server"];

/// Metrics by name, with the labels of their series. A metric without a series has no labels here.
pub(crate) type Metrics = BTreeMap<String, BTreeSet<String>>;

fn exposed(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            rest.split(' ').next().unwrap().clone_into(&mut current);
            metrics.entry(current.clone()).or_default();
        } else if let Some((_, series)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let keys = series.split("=\"").map(|part| part.rsplit([',', '{', '"']).next().unwrap());
            let keys = keys.take(series.matches("=\"").count()).filter(|key| *key != "le");
            metrics.get_mut(&current).unwrap().extend(keys.map(str::to_owned));
        }
    }
    metrics.retain(|name, _| name.starts_with("nodegate_"));
    metrics
}

/// Reads the tables of a page whose rows begin with metrics.
fn documented(text: &str, prefix: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap();
        for span in cell.split('`').skip(1).step_by(2) {
            let (name, labels) = span.trim_end_matches('}').split_once('{').unwrap_or((span, ""));
            let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned);
            let before = metrics.insert(format!("{prefix}{name}"), labels.collect());
            assert!(before.is_none(), "{name} has two rows");
        }
    }
    metrics
}

/// Returns the metrics of a running agent, and those of the golden file, which has series of every family of the server.
/// Shows, too, that promtool finds nothing in them.
pub(crate) fn agent() -> Metrics {
    let cluster = Scenario::with(|builder| builder.kubelets(true));
    let agent = cluster.ready_agent(&["--background-checks=kubelet", "--host-signals=/nowhere"]);
    until("the Lease's watch", || {
        agent.metric("nodegate_watch_events_total{resource=\"leases\",type=\"init\"}")
    });
    let text = agent.get("/metrics").body;
    must_run(Command::new("sh").args(["-c", "printf %s \"$0\" | promtool check metrics", &text]));
    let mut all = exposed(&text);
    for (name, labels) in exposed(&read("crates/server/tests/server/golden/metrics.txt")) {
        all.entry(name).or_default().extend(labels);
    }
    // Only the build of an image knows it.
    all.entry("nodegate_build_info".to_owned()).or_default().insert("revision".to_owned());
    all
}

pub(crate) fn gate() -> Metrics {
    exposed(&Format::Prometheus.encode(&GateMetrics::new().1).unwrap())
}

/// Returns the names of nodegate-haproxy's metrics without their suffixes, as its code registers them. A registry
/// shows no family without a series.
pub(crate) fn haproxy() -> BTreeSet<String> {
    let code = read("crates/nodegate-haproxy/src/run/shared.rs");
    let calls = [".register(", "gauge(encoder, "].into_iter().flat_map(|call| code.split(call).skip(1));
    let names = calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    names.map(|name| format!("nodegate_haproxy_{name}")).collect()
}

pub(crate) fn without_suffix(name: &str) -> &str {
    name.strip_suffix("_total").or_else(|| name.strip_suffix("_info")).unwrap_or(name)
}

/// Asserts that these are the same metrics, with the labels of the exposed series.
fn same(page: &str, documented: &Metrics, exposed: &Metrics) {
    assert!(exposed.len() > 5, "{exposed:?}");
    let names = |metrics: &Metrics| metrics.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(documented), names(exposed), "{page}");
    for (name, labels) in exposed.iter().filter(|(_, labels)| !labels.is_empty()) {
        assert_eq!(&documented[name], labels, "{page}: the labels of {name}");
    }
}

#[test]
fn the_tables_have_every_metric_with_its_labels() {
    let page = read("docs/metrics.md");
    same("docs/metrics.md", &documented(&page, ""), &agent().into_iter().chain(gate()).collect());
    let page = read("docs/nodegate-haproxy.md");
    let section = page.split("\n## HTTP paths and metrics\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let documented = documented(section, "nodegate_haproxy_");
    let names: BTreeSet<_> = documented.keys().map(|name| without_suffix(name).to_owned()).collect();
    assert_eq!(names, haproxy(), "docs/nodegate-haproxy.md");
}

#[test]
fn every_metric_that_a_page_names_exists() {
    let (all, haproxy): (Metrics, _) = (agent().into_iter().chain(gate()).collect(), haproxy());
    let mut found = 0;
    for page in pages::all() {
        let spans = page.code_spans();
        let words = spans.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        let names = words.filter(|word| word.starts_with("nodegate_") && !word.ends_with('_'));
        for name in names.filter(|name| !NO_METRICS.contains(name)) {
            let exists = all.contains_key(name) || haproxy.contains(without_suffix(name));
            assert!(exists, "{}: there is no metric {name}", page.path);
            found += 1;
        }
    }
    assert!(found > 50, "only {found} were found");
}
