//! What befalls the agent's rights and the API server's certificates.

use crate::common::agent::Agent;
use crate::common::cluster::NODE;
use crate::scene::{FRESH, STALE, SYNCED, Scene, cluster};
use crate::table::Row;
use nodegate_kube_sim::{Effect, Scope};

pub(crate) fn token_rotated() -> Row {
    let mut scene = Scene::start();
    scene.fault(|scene| {
        assert!(scene.cluster.sim.rotate_token(scene.cluster.token(), "new-token"));
        scene.cluster.sim.reset_connections();
    });
    scene.fails_open();
    scene.restarts("unauthorized");
    scene.heal(|scene| {
        let config = scene.cluster.sim.kubeconfig_for("new-token");
        std::fs::write(scene.cluster.kubeconfig(), config).unwrap();
    });
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

/// Heartbeats on the Lease go on all the time: they prove nothing about a Node that nobody watches.
pub(crate) fn rbac_for_nodes_taken_away_and_given_back() -> Row {
    let mut scene = Scene::start();
    let forbidden = scene.fault(|scene| {
        let sim = &scene.cluster.sim;
        let forbidden = sim.faults().add(Effect::Forbidden.on(Scope::all().resources(&["nodes"])));
        sim.close_watches(Some("nodes"));
        forbidden
    });
    scene.fails_open();
    scene.restarts("forbidden");
    scene.heal(|scene| scene.cluster.sim.faults().remove(forbidden));
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

pub(crate) fn rbac_forbids_leases() -> Row {
    let cluster = cluster();
    cluster.sim.faults().add(Effect::Forbidden.on(Scope::all().resources(&["leases"])));
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &["--stale-after=10s", SYNCED]);
    agent.wait_ready();
    let mut scene = Scene::probed(cluster, agent);
    scene.fault(|_| {});
    scene.logged_once("not allowed to watch the node's Lease");
    let asked = r#"nodegate_api_requests_total{verb="get",code="200"}"#;
    let questions = "questions in place of heartbeats";
    scene.notices_itself(questions, |agent| agent.metric(asked).filter(|count| *count >= 2.0));
    scene.logged_once("not allowed to watch the node's Lease");
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

pub(crate) fn certificate_rotated() -> Row {
    let mut scene = Scene::patient();
    scene.fault(|scene| scene.cluster.sim.rotate_certificate(false, true).unwrap());
    scene.restarts("disconnected");
    scene.lost_watch_is_logged_once();
    scene.watches_again();
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

pub(crate) fn ca_rotated() -> Row {
    let mut scene = Scene::start();
    scene.fault(|scene| scene.cluster.sim.rotate_certificate(true, true).unwrap());
    scene.fails_open();
    scene.heal(|scene| scene.cluster.write_kubeconfig());
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}
