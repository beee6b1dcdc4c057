//! What a drain budget costs the API servers, by their audit logs and metrics, when every node is cordoned at once.

use crate::gate::send_all;
use crate::rights::requests;
use crate::site::drain;
use nodegate_testbed::Agent;
use nodegate_testbed::real_cluster::{DEADLINE, MERGE, Member, RealCluster, ServerRoute};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use serde_json::{Value, json};
use std::thread::sleep;
use std::time::Duration;

const WINDOW: Duration = Duration::from_mins(1);

/// A Node without a machine, and its agent.
type Watched = (Member, Agent);

fn is_out((_, agent): &&Watched) -> bool {
    drain(agent.address())["verdict"] != "ready"
}

fn cordon(cluster: &RealCluster, nodes: &[&Watched], unschedulable: &Value) {
    let patch = json!({"spec": {"unschedulable": unschedulable}});
    let patches = nodes.iter().map(|(member, _)| (member.path(), MERGE, patch.clone()));
    assert_eq!(send_all(cluster, "PATCH", patches), vec![200; nodes.len()]);
}

/// Returns the bytes of all lists of Nodes that API server A has answered.
fn listed_bytes(cluster: &RealCluster) -> f64 {
    let metrics = cluster.api.curl().args(["--silent", "https://10.10.0.1:6443/metrics"]).output().unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    let of_lists = |line: &&str| {
        let is_of = |label: &str| line.contains(label);
        line.starts_with("apiserver_response_sizes_sum{")
            && is_of(r#"verb="LIST""#)
            && is_of(r#"resource="nodes""#)
    };
    metrics.lines().filter(of_lists).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Nothing is listed while no node is cordoned. `BUDGET_NODES` is the number of nodes and agents.
#[test]
#[ignore = "make real-cluster-test"]
fn a_cordon_of_every_node_costs_little_and_takes_half_of_them_out() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let nodes = std::env::var("BUDGET_NODES").map_or(50, |nodes| nodes.parse().expect("a number"));
    let kubeconfig = cluster.agent_kubeconfig(ServerRoute::A, "nodegate");
    let start = |number: usize| {
        let member = cluster.member(&format!("budget-{number}"));
        let agent = Agent::start(member.name(), &kubeconfig, &["--max-drained=50%"]);
        (member, agent)
    };
    let pool: Vec<Watched> = (0..nodes).map(start).collect();
    pool.iter().for_each(|(_, agent)| drop(agent.until_ready()));
    // The real node is one more.
    let budget = (nodes + 1) / 2;
    // What an agent asks when it starts.
    sleep(WINDOW);
    let count = |from: jiff::Timestamp, lists: bool| {
        let all = requests(&cluster, from);
        all.iter().filter(|(what, _)| (what == "list nodes") == lists).count()
    };
    let began = jiff::Timestamp::now();
    sleep(WINDOW);
    let (quiet, quiet_lists) = (count(began, false), count(began, true));

    let (began, bytes) = (jiff::Timestamp::now(), listed_bytes(&cluster));
    cordon(&cluster, &pool.iter().collect::<Vec<_>>(), &json!(true));
    let all_out = || (pool.iter().filter(is_out).count() == budget).then_some(());
    until_within(DEADLINE, all_out, || "half of the pool to leave".to_owned());
    let took = jiff::Timestamp::now().duration_since(began);
    while jiff::Timestamp::now().duration_since(began).unsigned_abs() < WINDOW {
        assert!(pool.iter().filter(is_out).count() <= budget);
        sleep(Duration::from_secs(1));
    }
    let (lists, bytes) = (count(began, true), listed_bytes(&cluster) - bytes);
    let back: Vec<_> = pool.iter().filter(is_out).take(5).collect();
    cordon(&cluster, &back, &Value::Null);
    until_within(
        DEADLINE,
        || all_out().filter(|()| !back.iter().any(is_out)),
        || "the next ones to leave".to_owned(),
    );
    seen(
        "drain budget, every node cordoned",
        &format!(
            "{nodes} agents: {quiet} requests in the minute before, {quiet_lists} of them lists of Nodes; {budget} out after {took:#}; \
             {lists} lists of {:.0} kB in the first minute",
            bytes / 1e3
        ),
    );
    assert_eq!(quiet_lists, 0);
}
