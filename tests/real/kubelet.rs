//! What happens to a node's kubelet, and what the node controller and the agent make of it.

use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, RealCluster, Server};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::{Watching as _, seen};
use nodegate_testbed::{Agent, Reply};
use std::time::Instant;

/// Waits longer than `Watching` does: the node controller takes a kubelet for lost after 40 to 50 s.
fn until(agent: &Agent, what: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
    let attempt = || Some(agent.health()).filter(|reply| wanted(reply));
    until_within(PATIENCE, attempt, || agent.all_it_says(what))
}

fn agent(cluster: &RealCluster, args: &[&str]) -> Agent {
    cluster.grant_agents();
    let agent = cluster.agent(REAL_NODE, Server::A, "nodegate", args);
    agent.until_ready();
    agent
}

fn is_down(reply: &Reply, reason: &str) -> bool {
    reply.status == 503 && !reply.is_stale() && reply.reason().as_deref() == Some(reason)
}

/// Only a node controller sets Ready=Unknown, after its own grace period, from a Lease that a real kubelet no longer renews.
/// The kubelet answers its health endpoint all the time.
#[test]
#[ignore = "make real-cluster-test"]
fn cut_off_from_the_api_server() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &[]);
    let cut = cluster.cut("kubelet");
    cluster.wait_node("Unknown", REAL_NODE);
    let unknown = cut.since.elapsed();
    assert_eq!(agent.get("/health?check=kubelet").status, 200, "the kubelet answers on its own node");
    until(&agent, "503 NodeStatusUnknown", |reply| is_down(reply, "NodeStatusUnknown"));
    let mended = cut.mend();
    let back = agent.until_ready();
    seen(
        "kubelet cut off",
        &format!(
            "Ready=Unknown after {:.0} s, 503 NodeStatusUnknown; mended, 200 after {}",
            unknown.as_secs_f64(),
            back.after(mended)
        ),
    );
}

/// A kubelet that is stopped holds its ports: connections are taken, and never answered.
#[test]
#[ignore = "make real-cluster-test"]
fn frozen() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &["--checks=kubelet"]);
    agent.wait_passes("kubelet");
    cluster.node_script(&["freeze", "kubelet"]);
    let frozen = Instant::now();
    agent.until_so("the check to fail", |agent| agent.get("/health?check=kubelet").status == 503);
    let check = frozen.elapsed();
    until(&agent, "503 NodeStatusUnknown", |reply| is_down(reply, "NodeStatusUnknown"));
    let out = frozen.elapsed();
    cluster.node_script(&["thaw", "kubelet"]);
    let thawed = Instant::now();
    let back = agent.until_ready();
    seen(
        "kubelet frozen",
        &format!(
            "check kubelet fails after {:.1} s, 503 NodeStatusUnknown after {:.0} s; thawed, 200 after {}",
            check.as_secs_f64(),
            out.as_secs_f64(),
            back.after(thawed)
        ),
    );
}

/// A kubelet that has lost its container runtime says so itself: Ready=False, in words that only a real one chooses.
#[test]
#[ignore = "make real-cluster-test"]
fn without_a_container_runtime() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &["--checks=container_runtime"]);
    agent.wait_passes("container_runtime");
    cluster.node_script(&["stop", "containerd"]);
    let stopped = Instant::now();
    until(&agent, "503 KubeletNotReady", |reply| is_down(reply, "KubeletNotReady"));
    let out = stopped.elapsed();
    assert_eq!(agent.get("/health?check=container_runtime").status, 503);
    cluster.node_script(&["start", "containerd"]);
    let started = Instant::now();
    let back = agent.until_ready();
    seen(
        "container runtime gone",
        &format!(
            "503 KubeletNotReady after {:.0} s; started again, 200 after {}",
            out.as_secs_f64(),
            back.after(started)
        ),
    );
}

/// A Node object is deleted, and comes back when its kubelet registers anew.
#[test]
#[ignore = "make real-cluster-test"]
fn deleted_and_registered_anew() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &[]);
    cluster.kubectl.must(&["delete", "node", REAL_NODE]);
    let deleted = Instant::now();
    let out = agent.until_reason("NodeNotFound");
    cluster.node_script(&["stop", "kubelet"]);
    cluster.node_script(&["start", "kubelet"]);
    cluster.wait_node("True", REAL_NODE);
    let ready = Instant::now();
    let back = agent.until_ready();
    seen(
        "Node deleted and registered anew",
        &format!(
            "503 NodeNotFound {} after kubectl was done; Ready again, 200 after {}",
            out.after(deleted),
            back.after(ready)
        ),
    );
}
