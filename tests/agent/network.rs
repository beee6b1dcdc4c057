//! The `network` check of the real agent, without privileges, on a node with a real router and a real
//! resolver that fail.
//!
//! The node, the router and dnsmasq are in network namespaces, so these tests need root, and fail without it.

use nodegate_testbed::network::node_network::{NodeNetwork, RESOLVER_V4, RESOLVER_V6};
use nodegate_testbed::{Agent, Cluster, NODE};
use serde_json::{Value, json};

/// The settings of a node without a cluster, whose addresses the agent does not know. Most tests use them.
const NAME: &str = "name=node.test,families=both";
/// The same for a Node whose addresses say which families count.
const NAME_ALONE: &str = "name=node.test";

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
fn a_resolver_that_is_frozen_killed_and_restarted() {
    let mut net = with_resolver();
    let agent = net.agent(NAME);
    passes(&agent);
    net.signal_resolver("STOP");
    fails(&agent, "DNS: 10.78.0.53 no answer, fd78::53 no answer");
    net.signal_resolver("CONT");
    passes(&agent);
    net.kill_resolver();
    fails(&agent, "DNS: 10.78.0.53 connection refused, fd78::53 connection refused");
    net.start_resolver();
    passes(&agent);
    net.nameservers(&[]);
    fails(&agent, "DNS: 127.0.0.1 connection refused");
}

#[test]
fn dns_answers_that_pass_and_that_fail_the_network_check() {
    let net = with_resolver();
    passes(&net.agent("name=nowhere.test"));
    fails(&net.agent("name=elsewhere.example"), "DNS: 10.78.0.53 REFUSED, fd78::53 REFUSED");
    fails(&net.agent("name=."), "DNS: 10.78.0.53 REFUSED, fd78::53 REFUSED");
    passes(&net.agent("nameservers=off"));
    passes(&net.agent("name=big.test"));
    net.at_resolver("iptables -I INPUT -p tcp --dport 53 -j REJECT --reject-with tcp-reset");
    net.at_resolver("ip6tables -I INPUT -p tcp --dport 53 -j REJECT --reject-with tcp-reset");
    passes(&net.agent(NAME));
    fails(
        &net.agent("name=big.test"),
        "DNS: 10.78.0.53 connection refused over TCP, fd78::53 connection refused over TCP",
    );
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
fn the_network_check_fails_while_the_link_is_down() {
    let net = with_resolver();
    let agent = net.agent(NAME);
    passes(&agent);
    net.router("ip link set rt0 down");
    fails(&agent, "Gateway: 10.77.0.1 on eth0: link is down, fe80::1 on eth0: link is down; DNS: ");
    net.router("ip link set rt0 up; ip addr replace fd77::1/64 dev rt0 nodad; ip addr replace fe80::1/64 dev rt0 nodad");
    passes(&agent);
}

#[test]
fn a_router_must_answer_arp_and_neighbour_discovery() {
    let net = with_resolver();
    let agent = net.agent(NAME);
    passes(&agent);
    passes(&net.agent_within("1s", NAME));
    net.router("ip addr del 10.77.0.1/24 dev rt0");
    fails(&agent, "Gateway: 10.77.0.1 on eth0: no answer to ARP");
    net.router("ip addr add 10.77.0.1/24 dev rt0");
    passes(&agent);
    // This drops neighbour discovery.
    net.router("ip6tables -I INPUT -i rt0 -j DROP");
    fails(&agent, "Gateway: fe80::1 on eth0: no answer to NDP");
    passes(&net.agent("name=node.test,families=ipv4"));
    net.router("ip6tables -F INPUT");
    passes(&agent);
}

/// Shows that a gateway passes that answers ARP but drops IP. All nodes have the same gateway: a change of
/// its policy must not take out every node at once.
#[test]
fn a_router_that_answers_arp_but_drops_ip_passes() {
    let _links = crate::rtnl::LINKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let net = with_resolver();
    let agent = net.agent(NAME);
    passes(&agent);
    agent.wait_runs("network", 14);
    // It still answers ARP, and forwards.
    net.router("iptables -I INPUT -i rt0 -j DROP");
    agent.wait_runs("network", 14);
    passes(&agent);
    assert_eq!(agent.logged("local check fails"), 0, "{}", agent.log_text());
}

#[test]
fn a_lost_default_route_fails() {
    let net = with_resolver();
    let agent = net.agent(&format!("{NAME},nameservers=off"));
    passes(&agent);
    net.node("ip route del default");
    fails(&agent, "Gateway: IPv4 default route is gone");
    net.node("ip -6 route del default");
    fails(&agent, "Gateway: IPv4 default route is gone, IPv6 default route is gone");
    net.node("ip route add default via 10.77.0.1; ip route add default via fe80::1 dev eth0");
    passes(&agent);
    net.node("ip link set eth0 down");
    fails(&agent, "Gateway: IPv4 default route is gone, IPv6 default route is gone");
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

/// Starts a cluster whose Node has these addresses.
fn cluster(internal: &[&str]) -> Cluster {
    let cluster = Cluster::start();
    set_addresses(&cluster, internal);
    cluster
}

fn set_addresses(cluster: &Cluster, internal: &[&str]) {
    let addresses: Vec<Value> =
        internal.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
    cluster.sim.edit_node(NODE, "kubelet", |node| node["status"]["addresses"] = addresses.into());
}

/// A leftover IPv6 route of an image or of an old router advertisement, to a router that does not exist.
const LEFTOVER: &str = "ip -6 route replace default via fe80::66 dev eth0";

#[test]
fn a_leftover_route_of_a_family_without_a_node_address_does_not_fail() {
    let net = with_resolver();
    net.node(LEFTOVER);
    let cluster = cluster(&["10.77.0.2"]);
    let agent = net.agent_of(&cluster, NAME_ALONE);
    agent.wait_ready();
    passes(&agent);
    agent.wait_runs("network", 5);
    passes(&agent);
    // The family of the node's address counts as before.
    net.router("ip addr del 10.77.0.1/24 dev rt0");
    fails(&agent, "Gateway: 10.77.0.1 on eth0: no answer to ARP");
    net.router("ip addr add 10.77.0.1/24 dev rt0");
    passes(&agent);
    // The Node gets a second address, so the IPv6 route is not a leftover any more.
    set_addresses(&cluster, &["10.77.0.2", "fd77::2"]);
    fails(&agent, "Gateway: fe80::66 on eth0: no answer to NDP");
    set_addresses(&cluster, &["10.77.0.2"]);
    passes(&agent);
}

#[test]
fn a_nameserver_of_a_family_without_a_node_address_can_pass_but_not_fail() {
    let mut net = with_resolver();
    let cluster = cluster(&["10.77.0.2"]);
    let strict = net.agent_of(&cluster, &format!("{NAME_ALONE},nameservers=all"));
    strict.wait_ready();
    passes(&strict);
    let before = strict.logged("local check fails");
    net.at_resolver("ip addr del fd78::53/64 dev eth0");
    strict.wait_runs("network", 4);
    passes(&strict);
    assert_eq!(strict.logged("local check fails"), before, "{}", strict.log_text());
    drop(strict);
    // The nameserver of the node's family is dead, the other one answers: names resolve.
    net.at_resolver("ip addr add fd78::53/64 dev eth0 nodad");
    net.kill_resolver();
    net.start_resolver();
    net.nameservers(&["10.78.0.99", RESOLVER_V6]);
    let agent = net.agent_of(&cluster, NAME_ALONE);
    agent.wait_ready();
    passes(&agent);
    agent.wait_runs("network", 1);
    agent.logs_once("a nameserver does not answer");
    // Without a nameserver of the node's own family, the others count.
    net.nameservers(&[RESOLVER_V6]);
    agent.wait_runs("network", 2);
    passes(&agent);
    net.kill_resolver();
    fails(&agent, "DNS: fd78::53 connection refused");
}

/// Shows that a node passes if one family works, as long as no Node address says which families count.
#[test]
fn one_working_family_is_enough_before_the_node_addresses_are_known() {
    let net = with_resolver();
    net.node(LEFTOVER);
    let agent = net.agent(NAME_ALONE);
    passes(&agent);
    net.router("ip addr del 10.77.0.1/24 dev rt0");
    fails(&agent, "Gateway: 10.77.0.1 on eth0: no answer to ARP, fe80::66 on eth0: no answer to NDP");
    // A family without a route does not count as working.
    net.node("ip -6 route del default");
    let fresh = net.agent(NAME_ALONE);
    fails(&fresh, "Gateway: 10.77.0.1 on eth0: no answer to ARP");
}
