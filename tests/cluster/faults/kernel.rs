//! Faults of the kernel's network: agent, firewall and API server are in network namespaces of their own.

use super::connections::REPLACED;
use super::scene::{Api, CORDONED, FRESH, STALE, STALE_AFTER_ARG, SYNCED, Scene, usual};
use super::table::Row;
use nodegate_testbed::Cluster;
use nodegate_testbed::network::node_network::{NodeNetwork, RESOLVER_V4};

/// Starts the agent on the node and the API server behind the router, in the resolver's namespace.
fn scene(net: &NodeNetwork, args: &[&str]) -> Scene {
    let address = format!("{RESOLVER_V4}:0").parse().unwrap();
    let cluster = net.on_resolver(|| Cluster::with(|builder| usual(builder.listen(address))));
    let agent = cluster.agent(&[args, &[SYNCED]].concat());
    Scene::of(cluster, agent)
}

/// Makes the router drop the packets between the API server and this port of the node, or any port.
fn drop_packets(net: &NodeNetwork, scene: &Scene, node_port: Option<&str>) {
    let api = scene.cluster.sim.address().port();
    let of = |side: &str| node_port.map(|port| format!("--{side}port {port}")).unwrap_or_default();
    net.router(&format!("iptables -A FORWARD -p tcp --dport {api} {} -j DROP", of("s")));
    net.router(&format!("iptables -A FORWARD -p tcp --sport {api} {} -j DROP", of("d")));
}

/// Returns the node's ports of the connections to the API server.
fn open_connections(net: &NodeNetwork, scene: &Scene) -> Vec<String> {
    let api = scene.cluster.sim.address().port();
    let listed = net.node_says(&format!("ss -Htn state established dport = :{api}"));
    let port = |line: &str| Some(line.split_whitespace().nth(2)?.rsplit(':').next()?.to_owned());
    listed.lines().filter_map(port).collect()
}

/// Makes a firewall forget the flow: it drops the packets silently, and lets new connections pass.
pub(crate) fn half_open_by_a_firewall() -> Row {
    let net = NodeNetwork::start();
    let mut scene = scene(&net, &[]);
    let open = open_connections(&net, &scene);
    assert!(!open.is_empty());
    scene.fault(|scene| {
        for port in &open {
            drop_packets(&net, scene, Some(port));
        }
        scene.cluster.cordon();
    });
    scene.notices(CORDONED, REPLACED);
    scene.restarts("disconnected");
    scene.lost_watch_is_logged_once();
    scene.heal(|_| net.router("iptables -F FORWARD"));
    scene.never_stale();
    scene.recovers(CORDONED);
    scene.row(&[FRESH, CORDONED])
}

/// Drops the packets of old and new connections.
pub(crate) fn connections_blackholed_by_a_firewall() -> Row {
    let net = NodeNetwork::start();
    let mut scene = scene(&net, &[STALE_AFTER_ARG]);
    scene.fault(|scene| drop_packets(&net, scene, None));
    scene.fails_open();
    scene.restarts_often("disconnected", 2.0);
    scene.heal(|_| net.router("iptables -F FORWARD"));
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}
