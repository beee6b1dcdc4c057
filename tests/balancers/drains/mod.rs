//! The cost of drains under traffic: without a wait, and with `nodegate wait` until every prober is told, or
//! until no session is left. The clients count the lost requests; their HAProxy does not retry.

// `cargo test` plays some drains; `make drains` plays a hundred with one HAProxy and a hundred with two, and
// prints the table.

mod balancer;
mod drainers;
mod gate;
mod pods;
mod site;

use drainers::Drainer;
use nodegate_testbed::http;
use site::{Drained, NODES, Site};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The number of drains in each row, unless `DRAINS` overrides it: a hundred with one balancer, and with two.
const DRAINS: usize = 34;
/// Every request ends within this time: the slowest answer takes half of it.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(3);
/// `fall` + 1 probes, and a second.
const TOLD_WITHIN: Duration = Duration::from_secs(3);
/// For so long the gate asks a client to retry after a second, which client-go does silently.
const SOON: Duration = Duration::from_secs(10);
/// The longest time from told to an eviction that client-go retries by itself.
const EVICTED_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn a_drain_that_waits_for_told_loses_no_request() {
    let site = Site::start();
    site.drain(0, Some("told"));
    site.drain(1, Some("released"));
    by_script(&site, 2);
    as_kured_does(&site, 0);
    as_the_autoscaler_does(&site, 1);
    // Behind the gate no drainer has to wait by itself.
    let gate = site.gate();
    for (number, drainer) in Drainer::ALL.iter().enumerate() {
        let drained = site.drain_as(number, drainer);
        let told = drained.told.expect("told, before the pods are gone");
        assert!(drained.evicted >= told, "{}: evicted {:?}, told {told:?}", drainer.title, drained.evicted);
    }
    assert_eq!(gate.unacknowledged(), 0, "{}", gate.metrics());
    let requests = site.stop();
    assert_eq!(requests.lost, [0, 0], "{}", requests.failures);
}

fn by_script(site: &Site, node: usize) {
    site.script("drain-node.sh", &[NODES[node], "--timeout=60s"]);
    assert_eq!(site.pods_on(node), 0);
    site.bring_back(node);
}

/// Drains as kured does: it labels the node, sleeps, cordons and evicts. Its sleep is long enough if all
/// probers are told by then; here the test waits for that.
fn as_kured_does(site: &Site, node: usize) {
    site.kubectl(&["label", "node", NODES[node], "kured-reboot=draining"]);
    site.wait(node, "told");
    site.kubectl(&["drain", NODES[node], "--ignore-daemonsets"]);
    site.kubectl(&["uncordon", NODES[node]]);
    site.kubectl(&["label", "node", NODES[node], "kured-reboot=done", "--overwrite"]);
    site.bring_back(node);
}

/// Drains as the cluster autoscaler does: it taints the node, evicts pods, and waits until the annotation is
/// gone. Here the pods stay: the script only waits for the sessions to end.
fn as_the_autoscaler_does(site: &Site, node: usize) {
    let annotation = "delay-deletion.cluster-autoscaler.kubernetes.io/nodegate";
    site.kubectl(&["annotate", "node", NODES[node], &format!("{annotation}=true")]);
    site.script("release-autoscaled.sh", &[]);
    assert!(site.has_annotation(node, annotation), "no drainer removes it");
    site.kubectl(&["taint", "node", NODES[node], "ToBeDeletedByClusterAutoscaler=1:NoSchedule"]);
    site.script("release-autoscaled.sh", &[]);
    assert!(!site.has_annotation(node, annotation));
    site.kubectl(&["taint", "node", NODES[node], "ToBeDeletedByClusterAutoscaler-"]);
    site.wait(node, "ready");
}

#[test]
#[ignore = "make drains: twenty minutes"]
fn table() {
    let drains = std::env::var("DRAINS").ok().and_then(|text| text.parse().ok()).unwrap_or(DRAINS);
    let mut site = Site::start();
    let mut table = String::from(
        "\n| balancers | waits for | drains | requests | lost, `Local` | lost, host network | the address moved | cordon to told, median and longest | cordon to eviction, median and longest |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mut rows = Vec::new();
    for balancers in ["one HAProxy", "two HAProxy, keepalived"] {
        if balancers.starts_with("two") {
            // The address leaves the first HAProxy, and what is open there with it: no row is to pay for that.
            std::thread::sleep(REQUESTS_END_WITHIN);
            site.pair();
        }
        for goal in [None, Some("told"), Some("released")] {
            let mut row = Row::default();
            let (from, moves) = (Instant::now(), site.moves_of_the_address());
            for drain in 0..drains {
                row.add(&site.drain(drain, goal));
            }
            row.moves = site.moves_of_the_address() - moves;
            rows.push((balancers, goal, row, from, Instant::now()));
            println!("{balancers}, {}: {drains} drains", goal.unwrap_or("nothing"));
        }
    }
    let behind_the_gate = behind_the_gate(&site, drains.min(DRAINS));
    // A request counts in the row in which it began, and the last ones may take as long as clients wait.
    std::thread::sleep(http::PATIENCE);
    let mut lost_after_told = 0;
    for (balancers, goal, mut row, from, to) in rows {
        row.requests = site.requests_started(from, to);
        if goal.is_some() {
            lost_after_told += row.requests.told_of();
        }
        let _ = writeln!(table, "{}", row.line(balancers, goal));
    }
    println!("{table}");
    println!(
        "\n| drainer behind the gate | drains | requests | lost, `Local` | lost, host network | the address moved | mark to told, median and longest | told to eviction, median and longest | later than told + 2 s | its own retry |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    let mut mostly_late = Vec::new();
    for (drainer, all, moves, from, to) in behind_the_gate {
        let requests = site.requests_started(from, to);
        let told: Vec<Duration> = all.iter().filter_map(|drained| drained.told).collect();
        let after: Vec<Duration> =
            all.iter().filter_map(|drained| Some(drained.evicted.saturating_sub(drained.told?))).collect();
        lost_after_told += requests.told_of();
        let late_here = all.iter().filter(|drained| drained.is_late()).count();
        // A busy machine delays single ones.
        if late_here > all.len() / 2 {
            mostly_late.push(drainer.title);
        }
        println!(
            "| {} | {} | {} | {} | {} | {moves} | {} | {} | {late_here} | {} |",
            drainer.title,
            all.len(),
            requests.sent,
            requests.lost[0],
            requests.lost[1],
            spread(&told),
            spread(&after),
            drainer.retries,
        );
    }
    assert_eq!(lost_after_told, 0, "lost requests");
    assert!(mostly_late.is_empty(), "evictions are later than client-go retries: {mostly_late:?}");
}

/// A row of drains behind the gate: the drainer, each drain, moves of the address, begin and end.
type GateRow = (&'static Drainer, Vec<Drained>, usize, Instant, Instant);

/// Drains by each drainer behind the eviction gate, with two balancers: `kubectl drain` as often as all rows before
/// together, the others a fifth of that.
fn behind_the_gate(site: &Site, drains: usize) -> Vec<GateRow> {
    let gate = site.gate();
    let row = |drainer: &'static Drainer| {
        let times = if drainer.title == "kubectl drain" { drains * 3 } else { drains.div_ceil(5) * 3 };
        let (from, moves) = (Instant::now(), site.moves_of_the_address());
        let all: Vec<Drained> = (0..times).map(|drain| site.drain_as(drain, drainer)).collect();
        println!(
            "{}: {times} drains, {} without acknowledgement so far",
            drainer.title,
            gate.unacknowledged()
        );
        (drainer, all, site.moves_of_the_address() - moves, from, Instant::now())
    };
    let rows = Drainer::ALL.iter().map(row).collect();
    assert_eq!(gate.unacknowledged(), 0, "{}", gate.metrics());
    rows
}

/// The results of the requests.
#[derive(Clone, Debug, Default)]
struct Requests {
    sent: usize,
    /// By service: the one with `externalTrafficPolicy: Local`, and the one on the host's network.
    lost: [usize; 2],
    /// A line for each lost one.
    failures: String,
}

impl Requests {
    /// Prints each lost request, and gives their number.
    fn told_of(&self) -> usize {
        let lost = self.lost.iter().sum();
        if lost > 0 {
            println!("{lost} lost:\n{}", self.failures);
        }
        lost
    }
}

#[derive(Default)]
struct Row {
    told: Vec<Duration>,
    evicted: Vec<Duration>,
    requests: Requests,
    /// The moves of the shared address. A move loses the open connections, with or without a drain.
    moves: usize,
}

impl Row {
    fn add(&mut self, drained: &Drained) {
        self.told.extend(drained.told);
        self.evicted.push(drained.evicted);
    }

    fn line(&self, balancers: &str, goal: Option<&str>) -> String {
        let [local, host] = self.requests.lost;
        let waits = goal.map_or("nothing".to_owned(), |goal| format!("`{goal}`"));
        let late = self.told.iter().filter(|told| goal == Some("told") && **told > TOLD_WITHIN).count();
        let late = if late > 0 {
            format!(" ({late} later than {} s)", TOLD_WITHIN.as_secs())
        } else {
            String::new()
        };
        format!(
            "| {balancers} | {waits} | {} | {} | {local} | {host} | {} | {}{late} | {} |",
            self.evicted.len(),
            self.requests.sent,
            self.moves,
            spread(&self.told),
            spread(&self.evicted),
        )
    }
}

fn spread(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort();
    match (times.get(times.len() / 2), times.last()) {
        (Some(median), Some(longest)) => {
            format!("{:.1} s, {:.1} s", median.as_secs_f64(), longest.as_secs_f64())
        }
        _ => "-".to_owned(),
    }
}
