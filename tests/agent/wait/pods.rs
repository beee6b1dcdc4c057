//! `/wait` for hooks of pods whose addresses are not in the Node's `spec.podCIDRs`, over real routes.

use nodegate_local_checks::PodRoutes;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::network::node_network::NodeNetwork;
use nodegate_testbed::{NODE, Scenario, http};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The node's routes as network plugins make them: Calico's to a pod, a bridge, Cilium's own and another
/// node's, flannel's to another node; and a second network card.
const ROUTES: &str = "\
ip link add cali0 type veth peer name eth0 netns {pods}; ip link set cali0 up
sysctl -q -w net.ipv4.conf.cali0.forwarding=1 net.ipv4.conf.cali0.proxy_arp=1 net.ipv4.neigh.cali0.proxy_delay=0
for n in $(seq 1 40); do ip route add 10.66.0.$n dev cali0 scope link; done
ip -6 route add fd66::1 dev cali0
ip link add cni0 type bridge; ip addr add 10.88.0.1/24 dev cni0; ip link set cni0 up
ip link add cilium_host type veth peer name cilium_net; ip link set cilium_net up; ip link set cilium_host up
ip addr add 10.89.0.23/32 dev cilium_host; ip route add 10.89.0.0/24 via 10.89.0.23 dev cilium_host
ip route add 10.89.1.0/24 via 10.89.0.23 dev cilium_host
ip link add flannel.1 type vxlan id 1 dstport 8472 dev eth0; ip link set flannel.1 up
ip route add 10.90.1.0/24 via 10.90.1.0 dev flannel.1 onlink
ip tuntap add eth9 mode tap; ip addr add 10.91.0.2/24 dev eth9; ip link set eth9 up";

#[test]
fn pods_are_known_by_the_routes_to_them_and_their_hooks_wait_at_once() {
    let (net, pods) = (NodeNetwork::start(), Namespace::new("pods"));
    for line in ROUTES.lines() {
        net.node(&line.replace("{pods}", pods.name()));
    }
    pods.shell("ip link set eth0 up; for n in $(seq 1 40); do ip addr add 10.66.0.$n/32 dev eth0; done");
    pods.shell("ip route add 169.254.1.1 dev eth0 scope link; ip route add default via 169.254.1.1 dev eth0");
    let routes = PodRoutes::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (address, is_pod) in [
        ("10.66.0.7", true),
        ("::ffff:10.66.0.7", true),
        ("fd66::1", true),
        ("10.88.0.9", true),
        ("10.89.0.9", true),
        ("10.89.1.9", false),
        ("10.90.1.9", false),
        ("10.91.0.9", false),
        // The uplink's network, the node itself, and what only the default route leads to.
        ("10.77.0.1", false),
        ("fd77::1", false),
        ("10.77.0.2", false),
        ("10.78.0.53", false),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(runtime.block_on(routes.lead_to_pod(address)), is_pod, "{address}");
    }

    let cluster = Scenario::start();
    let agent = net.agent_of(&cluster, "nameservers=off", &["--listen-address=::"]);
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    // An agent that has just started does not know its balancers, so every hook waits until its timeout.
    let address = SocketAddr::from((Ipv4Addr::new(10, 77, 0, 2), agent.address().port()));
    pods.act(|| {
        let send = |pod| {
            let from = Ipv4Addr::new(10, 66, 0, pod);
            let mut hook = http::connect_from(from, address, Duration::from_mins(1)).unwrap();
            hook.write_all(b"GET /wait?timeout=4 HTTP/1.0\r\n\r\n").unwrap();
            hook
        };
        for mut hook in (1..=40).map(send).collect::<Vec<_>>() {
            let mut text = String::new();
            hook.read_to_string(&mut text).unwrap();
            assert!(text.starts_with("HTTP/1.0 504 "), "{text}");
        }
    });
}
