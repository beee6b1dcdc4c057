//! The cost of drains under traffic, without a wait and with `nodegate wait`: the requests that clients lose behind a
//! HAProxy that does not retry.

// `cargo test` plays some drains; `make drains` a hundred with one HAProxy and with two, and prints the table.

mod balancer;
mod drainers;
mod setup;

use crate::nodes::NODES;
use drainers::Drainer;
use nodegate_testbed::http;
use nodegate_testbed::prober::median_and_longest;
use setup::{Drained, Drains};
use std::time::{Duration, Instant};

/// The number of drains in each row, unless `DRAINS` overrides it: a hundred with one balancer, and with two.
const DRAINS: usize = 34;
/// Every request ends within this time: the slowest answer takes half of it.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(3);

#[test]
fn a_drain_that_waits_for_the_acknowledgement_loses_no_request() {
    let scenario = Drains::start();
    scenario.drain(0, Some("acknowledged"));
    scenario.drain(1, Some("released"));
    scenario.script("drain-node.sh", &[NODES[2], "--timeout=60s"]);
    assert!(scenario.pods_on(2).is_empty());
    scenario.bring_back(2);
    as_kured_does(&scenario, 0);
    as_the_autoscaler_does(&scenario, 1);
    // Behind the gate no drainer has to wait by itself.
    let gate = scenario.gate();
    for (number, drainer) in Drainer::ALL.iter().enumerate() {
        let drained = scenario.drain_as(number, drainer);
        let acknowledged = drained.acknowledged.expect("acknowledged, before the pods are gone");
        let (title, evicted) = (drainer.title, drained.evicted);
        assert!(evicted >= acknowledged, "{title}: evicted {evicted:?}, acknowledged {acknowledged:?}");
    }
    assert_eq!(gate.unacknowledged(), 0, "{}", gate.metrics());
    let requests = scenario.stop();
    assert_eq!(requests.lost, [0, 0], "{}", requests.failures);
}

/// kured labels the node, sleeps, cordons and evicts. Here the sleep ends when all probers have acknowledged.
fn as_kured_does(scenario: &Drains, node: usize) {
    scenario.kubectl(&["label", "node", NODES[node], "kured-reboot=draining"]);
    scenario.wait(node, "acknowledged");
    scenario.kubectl(&["drain", NODES[node], "--ignore-daemonsets"]);
    scenario.kubectl(&["uncordon", NODES[node]]);
    scenario.kubectl(&["label", "node", NODES[node], "kured-reboot=done", "--overwrite"]);
    scenario.bring_back(node);
}

/// The autoscaler taints the node, evicts pods, and waits until the annotation is gone. Here the pods stay.
fn as_the_autoscaler_does(scenario: &Drains, node: usize) {
    let annotation = "delay-deletion.cluster-autoscaler.kubernetes.io/nodegate";
    scenario.kubectl(&["annotate", "node", NODES[node], &format!("{annotation}=true")]);
    scenario.script("release-autoscaled.sh", &[]);
    assert!(scenario.has_annotation(node, annotation), "no drainer removes it");
    scenario.kubectl(&["taint", "node", NODES[node], "ToBeDeletedByClusterAutoscaler=1:NoSchedule"]);
    scenario.script("release-autoscaled.sh", &[]);
    assert!(!scenario.has_annotation(node, annotation));
    scenario.kubectl(&["taint", "node", NODES[node], "ToBeDeletedByClusterAutoscaler-"]);
    scenario.wait(node, "ready");
}

#[test]
#[ignore = "make drains: twenty minutes"]
fn table() {
    let drains = std::env::var("DRAINS").ok().and_then(|text| text.parse().ok()).unwrap_or(DRAINS);
    let mut scenario = Drains::start();
    let mut rows = Vec::new();
    for balancers in ["one HAProxy", "two HAProxy, keepalived"] {
        if balancers.starts_with("two") {
            // The address leaves the first HAProxy, and what is open there with it: no row is to pay for that.
            std::thread::sleep(REQUESTS_END_WITHIN);
            scenario.pair();
        }
        for goal in [None, Some("acknowledged"), Some("released")] {
            let title =
                format!("{balancers} | {}", goal.map_or("nothing".to_owned(), |goal| format!("`{goal}`")));
            rows.push(Row::play(title, drains, |drain| scenario.drain(drain, goal)));
        }
    }
    let gate = scenario.gate();
    // `kubectl drain` as often as all rows before together, the others a fifth of that.
    let play = |drainer: &Drainer| {
        let part = if drainer.title == "kubectl drain" { 1 } else { 5 };
        let times = drains.min(DRAINS).div_ceil(part) * 3;
        Row::play(drainer.title.to_owned(), times, |drain| scenario.drain_as(drain, drainer))
    };
    let behind_the_gate: Vec<Row> = Drainer::ALL.iter().map(play).collect();
    assert_eq!(gate.unacknowledged(), 0, "{}", gate.metrics());
    // A request counts in the row in which it began, and the last ones may take as long as clients wait.
    std::thread::sleep(http::TIMEOUT);
    let tables: [(&str, &str, &[Row], Last); 2] = [
        ("balancers | waits for", "cordon to eviction", &rows, |drained| Some(drained.evicted)),
        ("drainer behind the gate", "acknowledged to eviction", &behind_the_gate, |drained| {
            Some(drained.evicted.saturating_sub(drained.acknowledged?))
        }),
    ];
    let mut lost_after_acknowledgement = 0;
    for (first, last, rows, time) in tables {
        println!("\n| {first} {COLUMNS} {last}, median and longest |\n|---|---|---|---|---|---|---|---|");
        for row in rows {
            let requests = scenario.requests_started(row.began, row.ended);
            if row.drained.iter().any(|drained| drained.acknowledged.is_some()) {
                print!("{}", requests.failures);
                lost_after_acknowledgement += requests.lost.iter().sum::<usize>();
            }
            let times = row.drained.iter().filter_map(time);
            println!("{} {} |", row.line(&requests), median_and_longest(times));
        }
    }
    assert_eq!(lost_after_acknowledgement, 0, "lost requests");
}

/// The time of a drain in the last column.
type Last = fn(&Drained) -> Option<Duration>;

const COLUMNS: &str =
    "| drains | requests | lost, `Local` | lost, host network | cordon to acknowledged, median and longest |";

struct Row {
    title: String,
    drained: Vec<Drained>,
    began: Instant,
    ended: Instant,
}

impl Row {
    fn play(title: String, times: usize, drain: impl Fn(usize) -> Drained) -> Self {
        let began = Instant::now();
        let drained = (0..times).map(drain).collect();
        println!("{title}: {times} drains");
        Self { title, drained, began, ended: Instant::now() }
    }

    fn line(&self, Requests { sent, lost: [local, host], .. }: &Requests) -> String {
        let (title, drains) = (&self.title, self.drained.len());
        let acknowledged = self.drained.iter().filter_map(|drained| drained.acknowledged);
        format!("| {title} | {drains} | {sent} | {local} | {host} | {} |", median_and_longest(acknowledged))
    }
}

#[derive(Clone, Debug, Default)]
struct Requests {
    sent: usize,
    /// By service: the one with `externalTrafficPolicy: Local`, and the one on the host's network.
    lost: [usize; 2],
    /// A line for each lost one.
    failures: String,
}
