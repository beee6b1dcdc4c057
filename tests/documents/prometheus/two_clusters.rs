//! Two clusters of a hundred nodes each, with the same node names, from generated samples: the dashboard
//! stays readable, and the alerts name the node's cluster.

use super::api::{Prometheus, Series};
use super::component::Component;
use super::dashboard::{Dashboard, label_values};
use super::promtool::promtool;
use nodegate_testbed::network::ports::Loopback;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Every family and its labels, without values.
const EXPOSITION: &str = include_str!("metrics.txt");

const CLUSTERS: [&str; 2] = ["east", "west"];
const NODES: usize = 100;
/// The scrape interval in seconds.
const INTERVAL: u64 = 30;
const RATE_INTERVAL: &str = "2m";
/// The number of samples: Prometheus forgets an agent that does not answer five minutes after its last
/// sample.
const SAMPLES: u64 = 18;
/// The number of the sample at which the faults begin.
const FAULTS: u64 = 4;

/// The largest number of lines that a reader can tell apart.
const LINES: usize = 25;

#[derive(Clone, Copy)]
struct Node {
    cluster: &'static str,
    number: usize,
}

impl Node {
    fn all() -> impl Iterator<Item = Self> {
        CLUSTERS.into_iter().flat_map(|cluster| (1..=NODES).map(move |number| Self { cluster, number }))
    }

    /// Returns the verdict: in the east an upgrade drains ten nodes, in the west forty are out.
    fn state(self, sample: u64) -> &'static str {
        match (self.cluster, self.number) {
            ("east", 1..=10) if sample >= FAULTS => "draining",
            ("west", 1..=40) if sample >= FAULTS => "not-ready",
            _ => "ready",
        }
    }

    /// Returns true if the agent answers; that of the east's last node stops.
    fn answers(self, sample: u64) -> bool {
        (self.cluster, self.number) != ("east", NODES) || sample < FAULTS
    }

    fn is_out(self, sample: u64) -> bool {
        self.answers(sample) && self.state(sample) != "ready"
    }

    fn value(self, series: &str, sample: u64) -> u64 {
        let faulty = self.cluster == "west" && self.number == 50 && sample >= FAULTS;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        match name {
            "nodegate_verdict" => u64::from(labels.contains(&format!("\"{}\"", self.state(sample)))),
            "nodegate_cache_stale" => u64::from(faulty),
            "nodegate_unconfirmed" => 0,
            "nodegate_check_passed" => u64::from(!(faulty && labels.contains("kubelet"))),
            // One flip, one restart and so on.
            _ if name.ends_with("_total") => u64::from(sample >= FAULTS),
            _ => 1,
        }
    }
}

/// A Prometheus with only these samples, which scrapes nothing.
struct Past {
    prometheus: Prometheus,
    end: u64,
    _dir: TempDir,
}

impl Past {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Blocks cover two hours that are over.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let start = now - 4 * 3600;
        write_samples(&dir.path().join("samples"), start);
        promtool(dir.path(), &["tsdb", "create-blocks-from", "openmetrics", "samples", "data"]);
        std::fs::write(dir.path().join("prometheus.yml"), "{}").unwrap();
        let prometheus = Prometheus::start(dir.path(), SocketAddr::new(Loopback::new().address(9), 9090));
        Self { prometheus, end: start + (SAMPLES - 1) * INTERVAL, _dir: dir }
    }

    fn at_the_end(&self, expr: &str) -> Vec<Series> {
        self.prometheus.query_range(expr, self.end, self.end)
    }
}

/// Writes the samples in the text format with times, one family after the other.
fn write_samples(path: &Path, start: u64) {
    let component = Component::render();
    let used = component.dashboard.to_string() + &json!(component.rules).to_string();
    let mut text = String::new();
    let mut write = |series: &str, of: &dyn Fn(Node, u64) -> Option<u64>| {
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let comma = if labels == "}" { "" } else { "," };
        for node in Node::all() {
            for sample in 0..SAMPLES {
                let (Node { cluster, number }, time) = (node, start + sample * INTERVAL);
                let Some(value) = of(node, sample) else { continue };
                let own = format!("cluster=\"{cluster}\",job=\"nodegate\",node=\"n{number}\"");
                writeln!(text, "{name}{{{own}{comma}{labels} {value} {time}").unwrap();
            }
        }
    };
    write("up", &|node, sample| Some(u64::from(node.answers(sample))));
    let families = EXPOSITION.lines().filter(|line| !line.starts_with('#'));
    for series in families.filter(|series| used.contains(series.split('{').next().unwrap())) {
        write(series, &|node, sample| node.answers(sample).then(|| node.value(series, sample)));
    }
    // A fresh agent has no series of these.
    write("nodegate_out{reason=\"Some\"}", &|node, sample| node.is_out(sample).then_some(1));
    for prober in ["10.0.0.1", "10.0.0.2"] {
        let labels = format!("prober=\"{prober}\",question=\"/health\"}}");
        let told = |node: Node, sample| u64::from(!node.is_out(sample) || prober == "10.0.0.1");
        write(&format!("nodegate_prober_told{{{labels}"), &|node, sample| Some(told(node, sample)));
        write(&format!("nodegate_prober_age_seconds{{{labels}"), &|_, _| Some(1));
    }
    text.push_str("# EOF\n");
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_dashboard_of_two_clusters_is_readable_and_keeps_them_apart() {
    let past = Past::make();
    let dashboard = Dashboard::read_with(&Component::render().dashboard, RATE_INTERVAL);
    for (name, label, series) in &dashboard.variables {
        let path = label_values(&past.prometheus, label, series);
        let expected = match name.as_str() {
            "cluster" => CLUSTERS.len(),
            "job" => 1,
            _ => NODES,
        };
        assert_eq!(path.len(), expected, "{name}");
    }
    for query in &dashboard.queries {
        let series = past.prometheus.query_range(&query.expr, past.end - 4 * INTERVAL, past.end);
        let most = match query.kind.as_str() {
            "stat" => 1,
            "table" => CLUSTERS.len() * NODES,
            _ => LINES,
        };
        assert!(series.len() <= most, "{}: {} series", query.panel, series.len());
        println!("{:<28} {:>3} series", query.panel, series.len());
    }
    for (panel, expected) in [("Nodes ready", 149.0), ("Nodes out", 51.0), ("Agents down", 1.0)] {
        let stat = dashboard.queries.iter().find(|query| query.panel == panel && query.kind == "stat");
        let series = past.at_the_end(&stat.unwrap().expr);
        assert_eq!(series.iter().map(Series::value).collect::<Vec<_>>(), [expected], "{panel}");
    }
    let table =
        dashboard.queries.iter().find(|query| query.panel == "Nodes out, with reason and time").unwrap();
    let out = past.at_the_end(&table.expr);
    assert_eq!(out.len(), 51, "{out:#?}");
    for series in &out {
        let label = |name| series.label(name);
        assert!(CLUSTERS.contains(&label("cluster")) && label("node").starts_with('n'), "{series:?}");
        if label("reason") == "no answer" {
            assert_eq!((label("cluster"), label("node")), ("east", "n100"));
        } else {
            // Between the last sample in which it was ready and the next one.
            let last_ready = Duration::from_secs(past.end - (SAMPLES - FAULTS) * INTERVAL);
            let later = Duration::from_secs_f64(series.value() / 1000.0).checked_sub(last_ready);
            assert!(later.is_some_and(|later| later.as_secs() < INTERVAL), "{series:?}");
        }
    }
    alerts(&past);
}

/// Asserts which nodes each alert names, once it has waited.
fn alerts(past: &Past) {
    let mut due = BTreeSet::new();
    for alert in &Component::render().rules.groups[0].rules {
        for series in past.at_the_end(&alert.expr) {
            let label = |name| series.label(name).to_owned();
            due.insert((alert.name.clone(), label("cluster"), label("node")));
        }
    }
    let expected = [
        ("NodegateCacheStale", "west", "n50"),
        ("NodegateCheckFailing", "west", "n50"),
        ("NodegateDown", "east", "n100"),
        ("NodegateManyNodesOut", "west", ""),
    ];
    let owned =
        |(alert, cluster, node): (&str, &str, &str)| (alert.to_owned(), cluster.to_owned(), node.to_owned());
    let mut expected: BTreeSet<_> = expected.map(owned).into();
    for node in Node::all().filter(|node| node.is_out(SAMPLES)) {
        expected.insert(owned(("NodegateDrainNotTold", node.cluster, &format!("n{}", node.number))));
    }
    assert_eq!(due, expected);
}
