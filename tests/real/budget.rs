//! The drain budget on a real API server: what many agents ask when all of their nodes are cordoned.

use crate::rights::requests;
use nodegate_testbed::real_cluster::{
    Member, RealCluster, STRATEGIC, ServerRoute, seen, until_so, wait_watches,
};
use nodegate_testbed::{Agent, http};
use serde_json::json;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The nodes that are cordoned at once. `REAL_AGENTS` sets another number.
const NODES: usize = 50;

/// Starts an agent for each Node.
fn start(cluster: &RealCluster, members: &[Member]) -> Vec<Agent> {
    let start =
        |member: &Member| cluster.agent(member.name(), ServerRoute::A, "nodegate", &["--max-drained=50%"]);
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
    let agents = start(&cluster, &members);
    let (from, bytes) = (jiff::Timestamp::now(), listed_bytes(&cluster));
    let began = Instant::now();
    let cordon = json!({"spec": {"unschedulable": true}});
    thread::scope(|scope| {
        for node in &members {
            scope.spawn(|| node.patch(STRATEGIC, &cordon));
        }
    });
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
