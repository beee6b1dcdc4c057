//! The machines of a network, each a namespace: three nodes, a router with the API server between them, and a
//! client behind the router.

use crate::site::NODES;
use nodegate_testbed::network::namespaces::Namespace;
use std::net::IpAddr;

/// The router's address among the nodes, where the API server listens, too.
pub(crate) const ROUTER: [u8; 4] = [10, 0, 0, 1];

pub(crate) struct Lan {
    pub(crate) nodes: Vec<Namespace>,
    pub(crate) router: Namespace,
    pub(crate) client: Namespace,
    /// The address that clients connect to.
    pub(crate) service: IpAddr,
}

impl Lan {
    pub(crate) fn new(service: IpAddr) -> Self {
        let router = Namespace::new("router");
        router.run("ip link add lan type bridge");
        router.run("ip link set lan up");
        router.run("ip addr add 10.0.0.1/24 dev lan");
        // Routes are chosen by the ports, too, because all connections come from one client.
        router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1");
        let client = Namespace::new("client");
        router.run(&format!("ip link add clients type veth peer name eth0 netns {}", client.name()));
        router.run("ip addr add 10.0.1.1/24 dev clients");
        router.run("ip link set clients up");
        client.run("ip addr add 10.0.1.2/24 dev eth0");
        client.run("ip link set eth0 up");
        client.run("ip route add default via 10.0.1.1");
        let nodes = (0..NODES.len()).map(|index| node(index, &router)).collect();
        Self { nodes, router, client, service }
    }

    pub(crate) fn node_address(index: usize) -> IpAddr {
        [10, 0, 0, 11 + u8::try_from(index).unwrap()].into()
    }
}

fn node(index: usize, router: &Namespace) -> Namespace {
    let node = Namespace::new(NODES[index]);
    router.run(&format!("ip link add n{index} type veth peer name eth0 netns {}", node.name()));
    router.run(&format!("ip link set n{index} master lan up"));
    node.run(&format!("ip addr add {}/24 dev eth0", Lan::node_address(index)));
    node.run("ip link set eth0 up");
    node.run("ip route add default via 10.0.0.1");
    node
}
