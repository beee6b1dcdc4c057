//! The `network` check of the real agent, without privileges, on a node with a real router and a real
//! resolver that fail.
//!
//! The node, the router and dnsmasq are in network namespaces, so these tests need root, and fail without it.

use nodegate_testbed::Agent;
use nodegate_testbed::network::node_network::{NodeNetwork, RESOLVER_V4, RESOLVER_V6};

/// The settings of a node without a cluster, whose addresses the agent does not know. Most tests use them.
const NAME: &str = "name=node.test,families=both";
fn passes(agent: &Agent) {
    agent.wait_passes("network");
}

fn fails(agent: &Agent, reason: &str) {
    agent.wait_fails_with("network", reason);
}

fn with_resolver() -> NodeNetwork {
    let mut net = NodeNetwork::start();
    net.start_resolver();
    net.nameservers(&[RESOLVER_V4, RESOLVER_V6]);
    net
}

#[test]
fn one_dead_nameserver_of_two_is_a_warning_unless_all_are_needed() {
    let net = with_resolver();
    net.nameservers(&["10.78.0.99", RESOLVER_V4]);
    let agent = net.agent(NAME);
    passes(&agent);
    agent.wait_runs("network", 2);
    agent.logs_once("a nameserver does not answer");
    let strict = net.agent(&format!("{NAME},nameservers=all"));
    fails(&strict, "DNS: 10.78.0.99 ");
}

#[test]
fn the_best_default_route_counts_also_without_a_gateway() {
    let net = NodeNetwork::without_routes();
    let alone = "nameservers=off,families=both";
    passes(&net.agent(alone));
    net.node("ip route add default dev eth0; ip -6 route add default dev eth0");
    let agent = net.agent(alone);
    passes(&agent);
    net.router("ip link set rt0 down");
    fails(&agent, "Gateway: eth0: link is down, eth0: link is down");
    net.router("ip link set rt0 up");
    passes(&agent);
    // The best route counts, though it leads nowhere; the worse one would work.
    net.node("ip route replace default via 10.77.0.1 metric 200; ip route del default dev eth0");
    passes(&agent);
    net.node("ip route add default via 10.77.0.66 metric 100");
    fails(&agent, "Gateway: 10.77.0.66 on eth0: no answer to ARP");
    passes(&net.agent(&format!("{alone},gateways=off")));
    // The next hop is in no network of the node.
    net.node("ip route del default metric 100; ip route del default metric 200");
    net.router("ip addr add 192.0.2.1/32 dev rt0");
    net.node("ip route add default via 192.0.2.1 dev eth0 onlink");
    passes(&agent);
}
