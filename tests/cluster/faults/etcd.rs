//! An API server that is cut off from etcd. To its watchers it looks healthy: it accepts watches, sends
//! bookmarks and serves requests from its cache, which does not change any more.

use super::scene::{CORDONED, FRESH, STALE, STALE_AFTER_ARG, Scene, cluster};
use crate::proxy::Proxy;
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::{Agent, Cluster, NODE};
use std::time::Duration;

/// The default of `--stale-after`, and a second.
const NOTICED: Duration = Duration::from_secs(16);

/// Shows in one go that the agent works without the right to watch Leases, and says so once.
#[test]
fn an_api_server_cut_off_from_etcd_is_not_believed_and_its_address_is_logged() {
    let cluster = cluster();
    cluster.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["leases"])));
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &[STALE_AFTER_ARG]);
    agent.wait_ready();
    let mut scene = Scene::probed(cluster, agent);
    scene.logged_once("not allowed to watch the node's Lease");
    scene.fault(|scene| cut_off_and_cordon(&scene.cluster));
    scene.fails_open();
    let server = scene.cluster.sim.address();
    scene.logged_once("the API server does not answer the consistency check; retrying");
    scene.logged_once(&format!(r#"retrying server="{server}""#));
    scene.heal(|scene| scene.cluster.sim.mend_etcd());
    scene.recovers(CORDONED);
    scene.logged_once("not allowed to watch the node's Lease");
    scene.ends("API server cut off from etcd, no right to watch Leases", &[FRESH, STALE, CORDONED]);
}

/// Puts two API servers behind one address. The agent's connection leads to the one that is cut off; the next
/// one does not.
#[test]
fn the_agent_moves_to_a_healthy_api_server_behind_the_same_address() {
    let cluster = cluster();
    let healthy = cluster.wait(async { cluster.sim.another_server() }).unwrap();
    let ports = [cluster.sim.address().port(), healthy.address().port()];
    let balancer = Proxy::start(ports.map(|port| ("127.0.0.1".to_owned(), port)).into());
    let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let balanced = config.replace(&format!(":{}", ports[0]), &format!(":{}", balancer.port()));
    assert_ne!(balanced, config);
    std::fs::write(cluster.kubeconfig(), balanced).unwrap();

    let agent = Agent::start(NODE, &cluster.kubeconfig(), &[]);
    let mut scene = Scene::of(cluster, agent);
    assert_eq!(balancer.accepted(), 1, "the watches of Node and Lease share a connection");
    scene.fault(|scene| cut_off_and_cordon(&scene.cluster));
    scene.notices(CORDONED, NOTICED);
    scene.never_stale();
    scene.follows();
    assert_eq!(balancer.accepted(), 2, "the watches are on the connection on which the check was answered");
    scene.heal(|scene| scene.cluster.sim.mend_etcd());
    scene.goes_on();
    scene.ends("the same, a healthy one behind the same address", &[FRESH, CORDONED, FRESH]);
}

/// Cuts the API server off from etcd and cordons the node through another one, so this API server never gets
/// the event.
fn cut_off_and_cordon(cluster: &Cluster) {
    cluster.sim.cut_off_from_etcd(&[]);
    cluster.sim.cordon(NODE);
}
