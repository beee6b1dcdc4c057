//! An API server that is cut off from etcd. To its watchers it looks healthy: it accepts watches, sends
//! bookmarks and serves requests from its cache, which does not change any more.

use super::scene::{Api, CORDONED, FRESH, STALE, STALE_AFTER_ARG, Scene, cluster};
use super::table::Row;
use crate::proxy::Proxy;
use nodegate_kube_sim::{ApiServer, Effect, FaultScope};
use nodegate_testbed::{Agent, Cluster, NODE};
use std::time::Duration;

/// The default of `--stale-after`, and a second.
const NOTICED: Duration = Duration::from_secs(16);
/// The bound if only Nodes are cut off from etcd, while Leases work.
const NODES_ALONE: Duration = Duration::from_secs(101);

pub(crate) fn api_server_cut_off_from_etcd() -> Row {
    cut_off_in(Scene::start())
}

pub(crate) fn api_server_cut_off_from_etcd_without_leases() -> Row {
    let cluster = without_leases();
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &[STALE_AFTER_ARG]);
    agent.wait_ready();
    cut_off_in(Scene::probed(cluster, agent))
}

fn cut_off_in(mut scene: Scene) -> Row {
    scene.fault(|scene| cut_off_and_cordon(&scene.cluster, &[]));
    scene.fails_open();
    let server = scene.cluster.sim.address();
    scene.logged_once("the API server does not answer the consistency check; retrying");
    scene.logged_once(&format!(r#"retrying server="{server}""#));
    scene.heal(|scene| scene.cluster.sim.mend_etcd());
    scene.recovers(CORDONED);
    scene.row(&[FRESH, STALE, CORDONED])
}

pub(crate) fn nodes_cut_off_from_etcd_while_leases_go_on() -> Row {
    let mut scene = Scene::patient();
    scene.fault(|scene| cut_off_and_cordon(&scene.cluster, &["nodes"]));
    scene.notices(STALE, NODES_ALONE);
    scene.heal(|scene| scene.cluster.sim.mend_etcd());
    scene.recovers(CORDONED);
    scene.row(&[FRESH, STALE, CORDONED])
}

pub(crate) fn api_server_cut_off_from_etcd_beside_a_healthy_one() -> Row {
    beside_a_healthy_one(cluster())
}

pub(crate) fn api_server_cut_off_from_etcd_beside_a_healthy_one_without_leases() -> Row {
    beside_a_healthy_one(without_leases())
}

/// Puts two API servers behind one address. The agent's connection leads to the one that is cut off; the next
/// one does not.
fn beside_a_healthy_one(cluster: Cluster) -> Row {
    let healthy = cluster.wait(async { cluster.sim.another_server() }).unwrap();
    let balancer = balancer(&cluster, &healthy);
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &[]);
    agent.wait_ready();
    assert_eq!(balancer.accepted(), 1);
    let mut scene = Scene::probed(cluster, agent);
    scene.fault(|scene| cut_off_and_cordon(&scene.cluster, &[]));
    scene.notices(CORDONED, NOTICED);
    scene.never_stale();
    scene.follows();
    assert_eq!(balancer.accepted(), 2, "the watch is on the connection on which the question was answered");
    scene.heal(|scene| scene.cluster.sim.mend_etcd());
    scene.goes_on();
    scene.row(&[FRESH, CORDONED, FRESH])
}

/// Puts two API servers behind one address, one of which answers 429 with a Retry-After above
/// `--stale-after`. The agent sends its consistency check to the other one.
pub(crate) fn consistency_check_refused_beside_a_healthy_api_server() -> Row {
    let cluster = without_leases();
    let healthy = cluster.wait(async { cluster.sim.another_server() }).unwrap();
    let balancer = balancer(&cluster, &healthy);
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &["--stale-after=5s"]);
    agent.wait_ready();
    let mut scene = Scene::probed(cluster, agent);
    let refusing = scene.fault(|scene| {
        let checks = FaultScope::all().resources(&["nodes"]).verbs(&["get"]).servers(&[0]);
        scene.cluster.sim.faults().add(Effect::Status { code: 429, retry_after: 30 }.on(checks))
    });
    let checks = |code: u16| format!(r#"nodegate_api_requests_total{{verb="get",code="{code}"}}"#);
    // The second 200 comes when the first one is too old.
    for (code, times) in [(429, 1.0), (200, 2.0)] {
        scene.notices_itself("consistency checks", |agent| {
            agent.metric(&checks(code)).filter(|count| *count >= times)
        });
    }
    assert_eq!(scene.agent.metric(&checks(429)), Some(1.0), "it is left alone");
    assert_eq!(balancer.accepted(), 2, "the watch is on the connection on which the question was answered");
    scene.heal(|scene| scene.cluster.sim.faults().remove(refusing));
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

fn balancer(cluster: &Cluster, other: &ApiServer) -> Proxy {
    let ports = [cluster.sim.address().port(), other.address().port()];
    let balancer = Proxy::balanced(ports.map(|port| ("127.0.0.1".to_owned(), port)).into()).unwrap();
    let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let balanced = config.replace(&format!(":{}", ports[0]), &format!(":{}", balancer.port()));
    assert_ne!(balanced, config);
    std::fs::write(cluster.kubeconfig(), balanced).unwrap();
    balancer
}

fn without_leases() -> Cluster {
    let cluster = cluster();
    cluster.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["leases"])));
    cluster
}

/// Cuts the API server off from etcd and cordons the node through another one, so this API server never gets
/// the event.
fn cut_off_and_cordon(cluster: &Cluster, plurals: &[&str]) {
    cluster.sim.cut_off_from_etcd(plurals);
    cluster.cordon();
}
