//! Faults of the Node itself.

use super::connections::REPLACED;
use super::scene::{FRESH, Scene, usual};
use super::table::Row;
use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{Cluster, NODE};
use std::time::Duration;

pub(crate) fn node_deleted_and_created_again() -> Row {
    let mut scene = Scene::patient();
    scene.fault(|scene| scene.cluster.sim.delete_node(NODE));
    scene.notices("503 NodeNotFound", REPLACED);
    scene.logged_once("NodeNotFound");
    assert_eq!(scene.agent.get("/health?drain=404").status, 503, "NotReady is not Draining");
    scene.heal(|scene| scene.cluster.sim.add_node(NODE));
    scene.never_stale();
    scene.recovers(FRESH);
    scene.row(&[FRESH, "503 NodeNotFound", FRESH])
}

/// The time after the last heartbeat on the Lease at which the cluster sets the node to Unknown; it is 40 s
/// in a real one.
const GRACE: Duration = Duration::from_secs(6);

pub(crate) fn dead_kubelet() -> Row {
    let cluster = Cluster::with(|builder| usual(builder).grace(GRACE));
    let mut scene = Scene::with(cluster, &["--stale-after=10s"]);
    scene.fault(|scene| scene.cluster.sim.stop_kubelet(NODE));
    scene.notices("503 NodeStatusUnknown", GRACE + Duration::from_secs(3));
    scene.logged_once("NodeStatusUnknown");
    scene.heal(|scene| scene.cluster.sim.start_kubelet(NODE));
    scene.never_stale();
    scene.recovers(FRESH);
    scene.row(&[FRESH, "503 NodeStatusUnknown", FRESH])
}

/// Stops the heartbeats. For the cluster the kubelet is dead; on the node it answers.
pub(crate) fn kubelet_cut_off() -> Row {
    let kubelet = Stub::start(answer("200 OK", "ok"));
    let cluster = Cluster::with(|builder| usual(builder).grace(GRACE));
    let check = format!("--check-settings=kubelet:interval=500ms,url={}", kubelet.url("/healthz"));
    let mut scene = Scene::with(cluster, &["--stale-after=10s", &check]);
    scene.fault(|scene| scene.cluster.sim.stop_kubelet(NODE));
    let unconfirmed = |body: &str| body.contains("\"unconfirmed\":true");
    scene
        .agent
        .wait_for("the agent to ask the kubelet", |reply| reply.status == 200 && unconfirmed(&reply.body));
    scene.logged_once("gets no heartbeat from the kubelet");
    scene.heal(|scene| scene.cluster.sim.start_kubelet(NODE));
    scene.agent.wait_for("the API server's word", |reply| reply.status == 200 && !unconfirmed(&reply.body));
    scene.never_stale();
    scene.recovers(FRESH);
    scene.row(&[FRESH])
}
