//! Faults of the agent's rights and the API server's certificates.

use super::scene::{FRESH, STALE, Scene, cluster, restarts};
use super::table::Row;
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::{Agent, until};
use std::time::Instant;

pub(crate) fn token_rotated() -> Row {
    let mut scene = Scene::start();
    scene.fault(|scene| {
        assert!(scene.cluster.sim.rotate_token(scene.cluster.token(), "new-token"));
        scene.cluster.sim.reset_connections();
    });
    scene.fails_open();
    scene.restarts("unauthorized");
    scene.logged_once(r#"watch failed for another reason; retrying resource="nodes" reason="unauthorized""#);
    scene.heal(|scene| {
        let config = scene.cluster.sim.kubeconfig_for("new-token");
        std::fs::write(scene.cluster.kubeconfig(), config).unwrap();
    });
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

/// Takes the RBAC rules for Nodes away. The Lease's heartbeats continue, but prove nothing about a Node
/// without a watch.
pub(crate) fn rbac_for_nodes_taken_away_and_given_back() -> Row {
    let mut scene = Scene::start();
    let forbidden = scene.fault(|scene| {
        let sim = &scene.cluster.sim;
        let forbidden = sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["nodes"])));
        sim.close_watches(Some("nodes"));
        forbidden
    });
    scene.fails_open();
    scene.restarts("forbidden");
    // The agent leaves the watch alone that still works.
    let lists = |agent: &Agent| agent.metric(r#"nodegate_api_requests_total{verb="list",code="200"}"#);
    let (before, refused) = (lists(&scene.agent), restarts(&scene.agent, "forbidden"));
    until("more refusals", || (restarts(&scene.agent, "forbidden") >= refused + 2.0).then_some(()));
    assert_eq!(lists(&scene.agent), before, "the Lease is listed again with each attempt");
    scene.heal(|scene| scene.cluster.sim.faults().remove(forbidden));
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

pub(crate) fn rbac_forbids_leases() -> Row {
    let (cluster, began) = (cluster(), Instant::now());
    let leases = || FaultScope::all().resources(&["leases"]);
    // A first error must not keep the agent from logging a later, different one.
    let first = cluster.sim.faults().add(Effect::Status { code: 500, retry_after: 0 }.on(leases()));
    let agent = cluster.ready_agent(&["--stale-after=10s"]);
    let failed = r#"nodegate_watch_restarts_total{resource="leases",reason="server-error"}"#;
    until("a failed list of Leases", || agent.metric(failed));
    cluster.sim.faults().add(Effect::Forbidden.on(leases()));
    cluster.sim.faults().remove(first);
    let mut scene = Scene::probed(cluster, agent);
    scene.fault(|_| {});
    scene.logged_once("not allowed to watch the node's Lease");
    let asked = r#"nodegate_api_requests_total{verb="get",code="200"}"#;
    let questions = "questions in place of heartbeats";
    scene.notices_itself(questions, |agent| agent.metric(asked).filter(|count| *count >= 2.0));
    // At most one every 8 s, and one is in flight.
    let (count, seconds) = (scene.agent.metric(asked).unwrap_or_default(), began.elapsed().as_secs_f64());
    assert!(count <= seconds / 8.0 + 1.0, "{count} questions in {seconds} s");
    scene.logged_once("not allowed to watch the node's Lease");
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

pub(crate) fn api_server_certificate_rotated() -> Row {
    let mut scene = Scene::patient();
    scene.fault(|scene| scene.cluster.sim.rotate_certificate(false, true).unwrap());
    scene.restarts("disconnected");
    scene.lost_watch_is_logged_once();
    scene.watches_again();
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

pub(crate) fn api_server_ca_rotated() -> Row {
    let mut scene = Scene::start();
    scene.fault(|scene| scene.cluster.sim.rotate_certificate(true, true).unwrap());
    scene.fails_open();
    scene.heal(|scene| scene.cluster.write_kubeconfig());
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}
