//! What happens to a node's kubelet, and what the node controller and the agent make of it.

use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, RealCluster, ServerRoute};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::{Watching as _, seen};
use nodegate_testbed::{Agent, ProbeReply};
use std::time::{Duration, Instant};

/// Waits longer than `Watching` does: the node controller takes a kubelet for lost after 40 to 50 s.
fn until(agent: &Agent, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> ProbeReply {
    let attempt = || Some(agent.health()).filter(|reply| wanted(reply));
    until_within(PATIENCE, attempt, || agent.all_it_says(what))
}

fn agent(cluster: &RealCluster, args: &[&str]) -> Agent {
    cluster.grant_agents();
    let agent = cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", args);
    agent.until_ready();
    agent
}

fn is_down(reply: &ProbeReply, reason: &str) -> bool {
    reply.status == 503 && !reply.is_stale() && reply.reason().as_deref() == Some(reason)
}

/// True if the answer says that the node's own kubelet decides.
pub(crate) fn is_unconfirmed(reply: &ProbeReply) -> bool {
    reply.json()["checks"][0]["unconfirmed"] == true
}

/// Only a node controller sets Ready=Unknown, after its own grace period, from a Lease that a real kubelet no longer renews.
/// The kubelet answers its health endpoint all the time, and the only node is silent, so the node stays in the pool.
#[test]
#[ignore = "make real-cluster-test"]
fn cut_off_from_the_api_server() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &[]);
    let cut = cluster.cut("kubelet");
    let cut_at = cut.since;
    let kept = until(&agent, "an unconfirmed answer", |reply| {
        assert_eq!(reply.status, 200, "the kubelet on this node answers: {}", reply.body);
        is_unconfirmed(reply)
    });
    let unknown = cut_at.elapsed();
    let condition = cluster.ready_condition(REAL_NODE);
    assert_eq!(condition, Some(("Unknown".to_owned(), "NodeStatusUnknown".to_owned())), "{}", kept.body);
    assert!(!kept.is_stale(), "{}", kept.body);
    agent.until_so("nodegate_unconfirmed 1", |agent| agent.metric("nodegate_unconfirmed") == Some(1.0));
    // An operator's word counts as ever.
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    agent.until_reason("Unschedulable");
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    agent.until_ready();

    let mended = cut.mend();
    let back = agent.until("a confirmed answer", |reply| reply.status == 200 && !is_unconfirmed(reply));
    seen(
        "kubelet cut off",
        &format!(
            "Ready=Unknown after {:.0} s, 200 unconfirmed; cordoned meanwhile 503; mended, confirmed after {}",
            unknown.as_secs_f64(),
            back.after(mended)
        ),
    );
}

/// The same where the API's word is enough.
#[test]
#[ignore = "make real-cluster-test"]
fn cut_off_and_unknown_means_not_ready() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &["--on-unknown=not-ready"]);
    let cut = cluster.cut("kubelet");
    until(&agent, "503 NodeStatusUnknown", |reply| is_down(reply, "NodeStatusUnknown"));
    let out = cut.since.elapsed();
    let mended = cut.mend();
    let back = agent.until_ready();
    seen(
        "kubelet cut off, --on-unknown=not-ready",
        &format!(
            "503 NodeStatusUnknown after {:.0} s; mended, 200 after {}",
            out.as_secs_f64(),
            back.after(mended)
        ),
    );
}

/// The longest time from Ready=Unknown to 503 on a node whose kubelet is dead.
const DEAD: Duration = Duration::from_secs(15);

/// A kubelet that has died is for the node controller as one that is cut off. The agent first looks for it when the condition says
/// so: only a real controller sets that, and only a real kubelet leaves its port closed.
#[test]
#[ignore = "make real-cluster-test"]
fn dead() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &[]);
    cluster.node_script(&["stop", "kubelet"]);
    let stopped = Instant::now();
    cluster.wait_node("Unknown", REAL_NODE);
    let unknown = Instant::now();
    let out = agent.until("503 NodeStatusUnknown", |reply| is_down(reply, "NodeStatusUnknown"));
    out.assert_within(unknown, DEAD, &agent);
    cluster.node_script(&["start", "kubelet"]);
    cluster.wait_node("True", REAL_NODE);
    let ready = Instant::now();
    let back = agent.until_ready();
    seen(
        "kubelet dead",
        &format!(
            "Ready=Unknown after {:.0} s, 503 NodeStatusUnknown {} later; started again and Ready, 200 after {}",
            (unknown - stopped).as_secs_f64(),
            out.after(unknown),
            back.after(ready)
        ),
    );
}

/// A kubelet that is stopped holds its ports: connections are taken, and never answered.
#[test]
#[ignore = "make real-cluster-test"]
fn frozen() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &["--background-checks=kubelet"]);
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
    let agent = agent(&cluster, &["--background-checks=container_runtime"]);
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
