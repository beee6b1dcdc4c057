//! What the node controller does to nodes that fall silent: it tells "this node" from "everybody". Four nodes: the real one,
//! and three made-up ones whose Leases a thread renews.

use nodegate_testbed::real_cluster::{Member, PATIENCE, REAL_NODE, RealCluster};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use serde_json::Value;
use std::time::Instant;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The effects of the taint for unreachable nodes that this one has.
fn effects(cluster: &RealCluster, node: &str) -> Vec<String> {
    let Ok(node) = cluster.api.get(&format!("/api/v1/nodes/{node}")) else { return Vec::new() };
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let of_key = taints.iter().filter(|taint| taint["key"] == UNREACHABLE);
    let mut effects: Vec<String> =
        of_key.filter_map(|taint| taint["effect"].as_str()).map(str::to_owned).collect();
    effects.sort();
    effects
}

fn wait_effects(cluster: &RealCluster, node: &str, wanted: &[&str]) {
    let as_wanted = || (effects(cluster, node) == wanted).then_some(());
    until_within(PATIENCE, as_wanted, || {
        format!("{node} has {:?} and not {wanted:?}", effects(cluster, node))
    });
}

fn members(cluster: &RealCluster) -> [Member; 3] {
    let members = ["made-up-1", "made-up-2", "made-up-3"].map(|name| cluster.member(name));
    for member in &members {
        cluster.wait_node("True", member.name());
    }
    members
}

/// Ready=Unknown comes with both taints for one node of four; when all four are silent, `NoExecute` is taken back everywhere.
#[test]
#[ignore = "make real-cluster-test"]
fn one_of_four_then_all() {
    let cluster = RealCluster::take();
    let members = members(&cluster);
    let cut = cluster.cut("kubelet");
    let began = Instant::now();
    wait_effects(&cluster, REAL_NODE, &["NoExecute", "NoSchedule"]);
    let one = began.elapsed();
    let added = added(&cluster, REAL_NODE);
    assert!(added.is_some(), "NoExecute has no timeAdded");

    for member in &members {
        member.silence(true);
    }
    let began = Instant::now();
    for node in members.iter().map(Member::name).chain([REAL_NODE]) {
        cluster.wait_node("Unknown", node);
        wait_effects(&cluster, node, &["NoSchedule"]);
    }
    let all = began.elapsed();
    seen(
        "one node of four silent, then all",
        &format!(
            "NoExecute after {:.0} s; when all are silent it is gone everywhere after {:.0} s more",
            one.as_secs_f64(),
            all.as_secs_f64()
        ),
    );
    for member in &members {
        member.silence(false);
    }
    cut.mend();
    cluster.wait_node("True", REAL_NODE);
    wait_effects(&cluster, REAL_NODE, &[]);
}

/// When `NoExecute` was added to this node.
fn added(cluster: &RealCluster, node: &str) -> Option<String> {
    let node = cluster.api.get(&format!("/api/v1/nodes/{node}")).ok()?;
    let taints = node["spec"]["taints"].as_array()?;
    let taint = taints.iter().find(|taint| taint["key"] == UNREACHABLE && taint["effect"] == "NoExecute")?;
    taint.get("timeAdded").and_then(Value::as_str).map(str::to_owned)
}
