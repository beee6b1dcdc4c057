//! The drain budget on a real API server: what many agents ask when all of their nodes are cordoned, and while none is.

use crate::gate::send_all;
use crate::rights::requests;
use nodegate_testbed::real_cluster::{
    Member, RealCluster, STRATEGIC, ServerRoute, seen, until_so, wait_watches,
};
use nodegate_testbed::{Agent, http};
use serde_json::json;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The nodes that are cordoned at once. `REAL_AGENTS` sets another number.
const NODES: usize = 50;
const WITH: &str = "--max-drained=50%";
const WITHOUT: &str = "--max-drained=100%";
/// The time for which requests are counted while no node is cordoned.
const WINDOW: Duration = Duration::from_mins(4);

fn start(cluster: &RealCluster, members: &[Member], budget: &str) -> Vec<Agent> {
    let start = |member: &Member| cluster.agent(member.name(), ServerRoute::A, "nodegate", &[budget]);
    let agents: Vec<_> = members.iter().map(start).collect();
    for agent in &agents {
        wait_watches(agent, 2.0);
        agent.wait_ready();
    }
    agents
}

fn members(cluster: &RealCluster, count: usize) -> Vec<Member> {
    (0..count).map(|number| cluster.member(&format!("pool-{number:03}"))).collect()
}

fn is_out(agent: &Agent) -> bool {
    http::get(agent.address(), "/health").is_ok_and(|reply| reply.status == 503)
}

/// Returns the bytes of all answers about Nodes that API server A has written to lists.
fn listed_bytes(cluster: &RealCluster) -> f64 {
    let output = cluster.api.curl().args(["--silent", "https://10.10.0.1:6443/metrics"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lists = text.lines().filter(|line| {
        line.starts_with("apiserver_response_sizes_sum{")
            && line.contains(r#"resource="nodes""#)
            && line.contains(r#"verb="LIST""#)
    });
    lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
#[ignore = "make real-cluster-test"]
fn a_cordon_of_all_nodes_leaves_half_of_them_in_the_pool() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let count = std::env::var("REAL_AGENTS").map_or(NODES, |count| count.parse().expect("a number"));
    let members = members(&cluster, count);
    let agents = start(&cluster, &members, WITH);
    let (from, bytes) = (jiff::Timestamp::now(), listed_bytes(&cluster));
    let began = Instant::now();
    let cordon = |node: &Member| (node.path(), STRATEGIC, json!({"spec": {"unschedulable": true}}));
    assert_eq!(send_all(&cluster, "PATCH", members.iter().map(cordon)), vec![200; count]);
    let took = began.elapsed();
    let half = || agents.iter().filter(|agent| is_out(agent)).count() >= count / 2;
    until_so(half, || "half of the nodes are not out".to_owned());
    sleep(Duration::from_mins(1).saturating_sub(began.elapsed()));
    let asked = requests(&cluster, from);
    let lists = asked.iter().filter(|(what, _)| what == "list nodes").count();
    let bytes = listed_bytes(&cluster) - bytes;
    let out = agents.iter().filter(|agent| is_out(agent)).count();
    let is_late = |agent: &&Agent| agent.logged("can't count the cordoned nodes") > 0;
    let late = agents.iter().filter(is_late).count();
    let out_of = format!("{count} within {took:.1?}: {out} out, {late} of them without an answer in time");
    let asked = format!("in that minute {} requests of the agents", asked.len());
    let lists = format!("{lists} of them lists of {:.0} kB in all", bytes / 1e3);
    seen("a cordon of all nodes", format!("{out_of}; {asked}, {lists}"));
    assert!((count / 2..=count / 2 + late).contains(&out), "{out} out, {late} without an answer");
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_budget_asks_nothing_while_no_node_is_cordoned() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let members = members(&cluster, 5);
    let agents = [WITH, WITHOUT].map(|budget| start(&cluster, &members, budget));
    let sum = |of: fn(&Agent) -> f64| agents.each_ref().map(|agents| agents.iter().map(of).sum::<f64>());
    let sent = || sum(|agent| agent.metric_sum("nodegate_api_requests_total"));
    let before = sent();
    sleep(WINDOW);
    let after = sent();
    let [with, without] = [0, 1].map(|index| after[index] - before[index]);
    let what = format!("five agents with the budget sent {with} requests in {WINDOW:?}");
    seen("no node is cordoned", format!("{what}, five without it {without}"));
    let lists = r#"nodegate_api_requests_total{verb="list",code="200"}"#;
    let [with, without] = agents.map(|of| of.iter().filter_map(|agent| agent.metric(lists)).sum::<f64>());
    assert!(with <= without, "lists since the start: {with}, {without}");
}
