//! The plugin and the eviction gate beside agents of another release: what a drain does under traffic.
//!
//! `make skew` builds the older release and prints the rows; docs/versions.md has the table.

use super::drainers::Drainer;
use super::site::{NODES, Site};
use crate::skew::{Release, row};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

/// For how long the gate holds evictions of a node whose agent it can't ask: `--told-unknown-hold`.
const UNKNOWN_HOLD: Duration = Duration::from_secs(30);

impl Site {
    fn plugin(&self, plugin: &Path, args: &[&str]) -> Output {
        let mut command = self.lan.command(plugin);
        command.args(args).env("KUBECONFIG", self.cluster.admin().kubeconfig());
        command.env("HOME", self.cluster.dir.path()).env("NO_COLOR", "1");
        command.output().unwrap()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a plugin did beside agents of another release.
struct Plugin {
    fleet: Option<i32>,
    drain: Option<i32>,
    said: String,
    took: Duration,
    /// The pods left on the node.
    left: usize,
    lost: usize,
}

/// Shows the fleet and drains a node with one release's plugin beside the other's agents.
fn plugin(plugin: &Release, agents: &Release) -> Plugin {
    let site = Site::of(agents.agent());
    let fleet = site.plugin(&plugin.plugin(), &[]);
    let began = Instant::now();
    let drain = site.plugin(&plugin.plugin(), &["drain", NODES[0]]);
    let took = began.elapsed();
    let left = site.pods_on(0);
    if drain.status.success() {
        let back = site.plugin(&plugin.plugin(), &["uncordon", NODES[0]]);
        assert!(back.status.success(), "{}", text(&back));
    }
    let lost = site.stop().lost.iter().sum();
    let said = text(&fleet) + &text(&drain);
    Plugin { fleet: fleet.status.code(), drain: drain.status.code(), said, took, left, lost }
}

/// This source's plugin can't identify the agents of 0.1, and touches nothing.
fn new_plugin_old_agents(this: &Release, other: &Release) {
    let done = plugin(this, other);
    assert_eq!((done.fleet, done.drain, done.left, done.lost), (Some(3), Some(3), 2, 0), "{}", done.said);
    assert!(done.said.contains("is too old to be identified"), "{}", done.said);
    let result = "refuses: the fleet says `agent too old`, a drain ends with exit code 3 and changes nothing";
    row("`kubectl nodegate`", this, "agents", other, result);
}

fn old_plugin_new_agents(this: &Release, other: &Release) {
    let done = plugin(other, this);
    assert_eq!((done.fleet, done.drain, done.left, done.lost), (Some(0), Some(0), 0, 0), "{}", done.said);
    let took = done.took.as_secs_f64();
    let result = format!("works: the fleet; a drain waits for told ({took:.1} s), no request lost");
    row("`kubectl nodegate`", other, "agents", this, &result);
}

/// Agents of 0.1 do not know `/drain.json`: this source's gate holds each eviction for `--told-unknown-hold`.
fn new_gate_old_agents(this: &Release, other: &Release) {
    let site = Site::of(other.agent());
    let gate = site.gate();
    let drained = site.drain_as(0, Drainer::Kubectl);
    let (unacknowledged, metrics) = (gate.unacknowledged(), gate.metrics());
    assert!(UNKNOWN_HOLD <= drained.evicted && drained.evicted < UNKNOWN_HOLD * 2, "{:?}", drained.evicted);
    assert!(unacknowledged > 0 && metrics.contains("answer=\"denied\",why=\"unreachable\""), "{metrics}");
    drop(gate);
    let lost: usize = site.stop().lost.iter().sum();
    assert_eq!(lost, 0);
    let took = drained.evicted.as_secs_f64();
    let result = format!(
        "works by its fallback: a drain waits for `--told-unknown-hold` ({took:.1} s) and goes on with a warning, no request lost"
    );
    row("eviction gate", this, "agents", other, &result);
}

#[test]
#[ignore = "needs the programs of another release: make skew"]
fn rows() {
    let (this, other) = (Release::this(), Release::other());
    new_plugin_old_agents(&this, &other);
    old_plugin_new_agents(&this, &other);
    new_gate_old_agents(&this, &other);
}
