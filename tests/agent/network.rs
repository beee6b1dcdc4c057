//! The `network` check of the real agent, without privileges, beside the kernel's own choice of a default route.

// The node, the router and dnsmasq are in network namespaces, so these tests need root. Routers that answer are
// 10.77.0.1, 10.77.0.11 to 10.77.0.13, `fe80::1`, and `fe80::11` to `fe80::13`; all others are silent. A second network
// card, eth1, leads nowhere.

use nodegate_testbed::network::node_network::{NodeNetwork, RESOLVER_V4, RESOLVER_V6};
use nodegate_testbed::{NODE, Scenario};

const CHECK: &str = "network";

/// Situations of a node, and their outcome.
const CASES: &str = include_str!("network.txt");

fn cases(of: &str) -> impl Iterator<Item = &'static str> {
    CASES.lines().filter_map(move |line| line.strip_prefix(of)?.strip_prefix("; "))
}

fn network() -> NodeNetwork {
    let net = NodeNetwork::without_routes();
    for n in 11..=13 {
        net.router(&format!("ip addr add 10.77.0.{n}/24 dev rt0; ip addr add fe80::{n}/64 dev rt0 nodad"));
    }
    net.router("ip addr add 192.0.2.1/32 dev rt0");
    // A card whose cable is out, which the kernel does not use.
    net.node("ip link add eth1 type veth peer name eth1-peer; ip addr add 10.79.0.2/24 dev eth1");
    net.node("sysctl -q -w net.ipv4.conf.eth1.ignore_routes_with_linkdown=1");
    net.node("sysctl -q -w net.ipv6.conf.eth1.ignore_routes_with_linkdown=1");
    net.node("ip link set eth1-peer up; ip link set eth1 up; ip addr add fe80::2/64 dev eth1 nodad");
    for object in cases("object") {
        net.node(&format!("ip nexthop add {object}"));
    }
    net
}

fn reason(family: &str, silent: &str) -> String {
    if silent == "gone" {
        return format!("Gateway: {family} default route is gone");
    }
    let protocol = |router: &str| if router.contains(':') { "NDP" } else { "ARP" };
    let failed = silent
        .split(", ")
        .map(|router| format!("{router} on eth0: no answer to {}", protocol(router)))
        .collect::<Vec<_>>();
    format!("Gateway: {}", failed.join(", "))
}

/// Plays the cases one after the other with one agent, which has seen a default route.
fn play(ip: &str, family: &str, first: &str) {
    let net = network();
    net.node(&format!("{ip} route add {first}"));
    let agent = net.agent("nameservers=off");
    agent.wait_passes(CHECK);
    for case in cases(family) {
        let [name, routes, silent] = case.splitn(3, ';').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        eprintln!("{family}: {name}");
        net.node("ip link set eth1-peer up");
        for table in ["main", "100"] {
            net.node(&format!("while {ip} route del default table {table} 2>/dev/null; do :; done"));
        }
        for route in routes.split('|') {
            net.node(&format!("{ip} route add {route}"));
        }
        net.node("ip link set eth1-peer down");
        for runs in [0, 2] {
            agent.wait_runs(CHECK, runs);
            match silent {
                "" => agent.wait_passes(CHECK),
                silent => agent.wait_fails(CHECK, &reason(family, silent)),
            };
        }
    }
}

#[test]
fn ipv4_default_routes_are_those_that_the_kernel_uses() {
    play("ip -4", "IPv4", "default via 10.77.0.1");
}

#[test]
fn ipv6_default_routes_are_those_that_the_kernel_uses() {
    play("ip -6", "IPv6", "default via fe80::1 dev eth0");
}

/// The check's own tests have the other answers and their lack.
#[test]
fn the_nameservers_of_the_host_are_asked() {
    let mut net = NodeNetwork::start();
    net.nameservers(&[]);
    let agent = net.agent("interval=200ms,timeout=2s,name=node.test,gateways=off");
    agent.wait_fails(CHECK, "DNS: 127.0.0.1 connection refused");
    net.nameservers(&[RESOLVER_V4, RESOLVER_V6]);
    agent.wait_fails(CHECK, "DNS: 10.78.0.53 connection refused, fd78::53 connection refused");
    net.start_resolver();
    agent.wait_passes(CHECK);
    // One dead nameserver of two is a warning.
    net.nameservers(&["10.78.0.99", RESOLVER_V4]);
    agent.logs_once("a nameserver does not answer");
    agent.wait_passes(CHECK);
}

#[test]
fn routers_fail_when_their_link_or_route_goes() {
    let net = NodeNetwork::without_routes();
    let agent = net.agent("nameservers=off");
    // There never was a default route.
    agent.wait_passes(CHECK);
    let route = "ip route add default via 10.77.0.1 dev eth0; ip route add default via fe80::1 dev eth0";
    net.node(route);
    agent.wait_passes(CHECK);
    // A router that drops all that is for itself still answers ARP and NDP.
    net.router("iptables -I INPUT -i rt0 -j DROP");
    agent.wait_runs(CHECK, 2);
    agent.wait_passes(CHECK);
    net.router("ip link set rt0 down");
    agent.wait_fails(CHECK, "Gateway: 10.77.0.1 on eth0: link is down, fe80::1 on eth0: link is down");
    net.router("iptables -F INPUT; ip link set rt0 up");
    net.router("ip addr replace fd77::1/64 dev rt0 nodad; ip addr replace fe80::1/64 dev rt0 nodad");
    agent.wait_passes(CHECK);
    net.node("ip route del default; ip -6 route del default");
    agent.wait_fails(CHECK, "Gateway: IPv4 default route is gone, IPv6 default route is gone");
    net.node(route);
    agent.wait_passes(CHECK);
}

/// Plays a node with only an IPv4 address, and with a leftover IPv6 route of its image to a router that does not exist.
#[test]
fn a_route_of_a_family_that_the_node_does_not_have_is_ignored() {
    let net = NodeNetwork::start();
    net.node("ip -6 route replace default via fe80::66 dev eth0");
    let cluster = Scenario::start();
    cluster.sim.set_addresses(NODE, &["10.77.0.2"]);
    let agent = net.agent_of(&cluster, "nameservers=off", &[]);
    agent.wait_ready();
    agent.wait_passes(CHECK);
    net.router("ip addr del 10.77.0.1/24 dev rt0");
    agent.wait_fails(CHECK, "Gateway: 10.77.0.1 on eth0: no answer to ARP");
    net.router("ip addr add 10.77.0.1/24 dev rt0");
    agent.wait_passes(CHECK);
}
