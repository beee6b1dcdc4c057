//! The drain budget on a real API server: the requests of many agents when all of their nodes are cordoned.

use crate::rights::requests;
use nodegate_testbed::programs::must_run;
use nodegate_testbed::real_cluster::{RealCluster, STRATEGIC, ServerRoute, seen, until_so, wait_watches};
use nodegate_testbed::{Agent, http};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The nodes that are cordoned at once. `REAL_AGENTS` sets another number.
const NODES: usize = 50;
const CORDON: &str = r#"{"spec": {"unschedulable": true}}"#;

fn is_out(agent: &Agent) -> bool {
    http::get(agent.address(), "/health").is_ok_and(|reply| reply.status == 503)
}

/// Returns the bytes of all answers about Nodes that API server A has written to lists.
fn listed_bytes(cluster: &RealCluster) -> f64 {
    let output = cluster.api.curl().args(["--silent", "https://10.10.0.1:6443/metrics"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let of_lists = ["apiserver_response_sizes_sum{", r#"resource="nodes""#, r#"verb="LIST""#];
    let lists = text.lines().filter(|line| of_lists.iter().all(|part| line.contains(part)));
    lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Only a real API server shows what its lists cost.
#[test]
#[ignore = "make real-cluster-test"]
fn a_cordon_of_all_nodes_leaves_half_of_them_in_the_pool() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let count = std::env::var("REAL_AGENTS").map_or(NODES, |count| count.parse().expect("a number"));
    let members: Vec<_> = (0..count).map(|number| cluster.member(&format!("pool-{number:03}"))).collect();
    let agents = members.iter().map(|member| {
        let agent = cluster.agent(member.name(), ServerRoute::A, "nodegate", &["--max-drained=50%"]);
        wait_watches(&agent, 2.0);
        agent.wait_ready();
        agent
    });
    let agents: Vec<_> = agents.collect();
    let (from, bytes, began) = (jiff::Timestamp::now(), listed_bytes(&cluster), Instant::now());
    let mut curl = cluster.api.curl();
    curl.args(["--silent", "--fail", "--parallel", "--request", "PATCH", "--data", CORDON, "--header"]);
    let nodes = format!("https://10.10.0.1:6443/api/v1/nodes/pool-[000-{:03}]", count - 1);
    must_run(curl.arg(format!("Content-Type: {STRATEGIC}")).arg(nodes));
    let took = began.elapsed();
    let out = || agents.iter().filter(|agent| is_out(agent)).count();
    until_so(|| out() >= count / 2, || "half of the nodes are not out".to_owned());
    sleep(Duration::from_mins(1).saturating_sub(began.elapsed()));
    let asked = requests(&cluster, from);
    let lists = asked.iter().filter(|(what, _)| what == "list nodes").count();
    let (bytes, out) = (listed_bytes(&cluster) - bytes, out());
    let late = agents.iter().filter(|agent| agent.logged("can't count the cordoned nodes") > 0).count();
    let what = format!("{count} within {took:.1?}: {out} out, {late} of them without an answer in time");
    seen("a cordon of all nodes", format!("{what}; {lists} lists of {:.0} kB in that minute", bytes / 1e3));
    assert!((count / 2..=count / 2 + late).contains(&out), "{out} out, {late} without an answer");
}
