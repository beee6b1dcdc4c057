//! An API server that is cut off from etcd. To its watchers it looks healthy: it accepts watches, sends
//! bookmarks and serves requests from its cache, which does not change any more.

use super::scene::{CORDONED, FRESH, SOON_STALE, STALE, Scene, cluster};
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::{Agent, NODE};

/// Shows in one go that the agent works without the right to watch Leases, and says so once.
#[test]
fn an_api_server_cut_off_from_etcd_is_not_believed_and_its_address_is_logged() {
    let cluster = cluster();
    cluster.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["leases"])));
    let agent = Agent::start(NODE, &cluster.kubeconfig(), SOON_STALE);
    agent.wait_ready();
    let mut scene = Scene::probed(cluster, agent);
    scene.logged_once("not allowed to watch the node's Lease");
    scene.fault(|scene| {
        scene.cluster.sim.cut_off_from_etcd(&[]);
        // Through another API server, so this one never gets the event.
        scene.cluster.sim.cordon(NODE);
    });
    scene.fails_open();
    let server = scene.cluster.sim.address();
    scene.logged_once("the API server does not answer the consistency check; retrying");
    scene.logged_once(&format!(r#"retrying server="{server}""#));
    scene.heal(|scene| scene.cluster.sim.mend_etcd());
    scene.recovers(CORDONED);
    scene.logged_once("not allowed to watch the node's Lease");
    scene.ends("API server cut off from etcd, no right to watch Leases", &[FRESH, STALE, CORDONED]);
}
