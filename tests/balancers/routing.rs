//! Balancers that move an address or a route: keepalived, `ExaBGP` with BIRD.

use crate::balancer::{Balancer, Row};
use crate::nodes::{Lan, NODES, Nodes, documented, node_address};
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{self, system};
use nodegate_testbed::{needs_root, until};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers");
/// keepalived's virtual address in the documentation.
pub(crate) const VIRTUAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10));
/// The service's address of the documented BGP.
pub(crate) const ANYCAST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
pub(crate) const BGP_ARGS: &[&str] = &[
    "--tcp-check=service=127.0.0.1:30443",
    "--background-checks=tcp:service",
    "--check-settings=tcp:service:interval=1s",
];

/// Installs the program at the path of the configuration. Only this mount namespace sees it.
const WITH_NODEGATE: &str = "mount -t tmpfs -o mode=755 nodegate /usr/local/bin
    cp \"$0\" /usr/local/bin/nodegate
    exec keepalived -n -l -P \"$@\"";

fn holds(lan: &Lan, node: usize) -> bool {
    lan.nodes[node].run("ip -4 addr show dev eth0").contains(&format!("{VIRTUAL}/24"))
}

/// Returns the node that has the address, if exactly one does.
fn holder(lan: &Lan) -> Option<usize> {
    let mut holders = (0..NODES.len()).filter(|node| holds(lan, *node));
    let first = holders.next()?;
    holders.next().is_none().then_some(first)
}

/// Starts Debian's keepalived: an address that stays with a ready node.
pub(crate) fn keepalived(row: &Row, nodes: &Nodes) -> Balancer {
    let programs = (0..NODES.len()).map(|index| keepalived_on(nodes, index, row.file)).collect();
    let mut balancer = Balancer::new(programs, |lan, node| {
        Some(if holds(lan, node) { "has the address" } else { "has not the address" }.to_owned())
    });
    balancer.holder = |lan| Some(until("one node with the address", || holder(lan)));
    balancer
}

fn keepalived_on(nodes: &Nodes, index: usize, name: &str) -> Program {
    let file = |name: &str| nodes.dir().join(format!("{name}-{index}"));
    let mut command = nodes.lan.nodes[index].command("sh");
    command.args(["-ec", WITH_NODEGATE]).arg(programs::agent());
    command.arg("-f").arg(format!("{DOCS}/{name}"));
    command.arg("-p").arg(file("pid")).arg("-r").arg(file("vrrp"));
    Program::start(&mut command)
}

#[test]
fn keepalived_accepts_the_documented_configurations() {
    needs_root("a keepalived that may become the scripts' user");
    for name in documented("keepalived") {
        // The configurations name eth0, which not every machine has.
        let check = "ip link add eth0 type veth peer name eth1 && exec keepalived -t -f \"$0\"";
        let checked =
            system("unshare").args(["--net", "sh", "-ec", check, &format!("{DOCS}/{name}")]).output();
        let checked = checked.expect("unshare is needed");
        // keepalived 2.2.7 ends itself with SIGTERM if the configuration is valid, else with a code.
        let printed = String::from_utf8_lossy(&checked.stderr);
        assert!(printed.is_empty() && matches!(checked.status.code(), None | Some(0)), "{name}: {printed}");
    }
}

/// One node runs curl as its check, the other one the agent's own program.
#[test]
fn keepalived_moves_the_address_to_a_ready_node() {
    let nodes = Nodes::start(&[]);
    let names = ["keepalived/vrrp.conf", "keepalived/vrrp-status.conf"];
    let _programs = [0, 1].map(|index| keepalived_on(&nodes, index, names[index]));
    let at_home = || holder(&nodes.lan);
    let first = until("one node with the address", at_home);
    let other = 1 - first;
    let cluster = &nodes.cluster;
    assert!(cluster.sim.cordon(NODES[first]));
    until("the address on the other node", || (at_home() == Some(other)).then_some(()));
    assert!(cluster.sim.uncordon(NODES[first]));
    nodes.ask_agent(first, |agent| drop(agent.wait_ready()));
    assert_eq!(at_home(), Some(other), "it does not come back by itself");
    assert!(cluster.sim.cordon(NODES[other]));
    until("the address on the first node", || (at_home() == Some(first)).then_some(()));
    // No node is ready: one keeps the address all the same.
    assert!(cluster.sim.cordon(NODES[first]));
    nodes.ask_agent(first, |agent| drop(agent.wait_reason("Unschedulable")));
    until("one node with the address", at_home);
}

/// Returns true if the routing table of the router's kernel has this node as a next hop.
fn is_next_hop(lan: &Lan, node: usize) -> bool {
    let routes = lan.router.run(&format!("ip route show {ANYCAST}"));
    routes.contains(&format!("via {} ", node_address(node)))
}

/// Starts Debian's `ExaBGP` on each node, and BIRD on the router: each ready node is one of several next hops.
pub(crate) fn bgp(row: &Row, nodes: &Nodes) -> Balancer {
    let (lan, dir) = (&nodes.lan, nodes.dir());
    let mut bird = lan.router.command("bird");
    bird.arg("-f").arg("-c").arg(nodes.configuration("bgp/bird.conf"));
    bird.arg("-s").arg(dir.join("bird.ctl")).arg("-P").arg(dir.join("bird.pid"));
    let bird = Program::start(&mut bird);
    let documented = fs::read_to_string(nodes.configuration(row.file)).unwrap();
    let speakers = (0..NODES.len()).map(|index| {
        let text = documented.replace("10.0.0.11", &node_address(index).to_string());
        speaker(&lan.nodes[index], &text, &dir.join(format!("exabgp-{index}.conf")))
    });
    // Dropped in this order, the programs end without an error message.
    let bgp = Balancer::new(speakers.chain([bird]).collect(), |lan, node| {
        Some(if is_next_hop(lan, node) { "a next hop" } else { "no next hop" }.to_owned())
    });
    until("a next hop for each node", || (0..NODES.len()).all(|node| is_next_hop(lan, node)).then_some(()));
    bgp
}

fn speaker(node: &Namespace, text: &str, file: &Path) -> Program {
    fs::write(file, text).unwrap();
    node.run(&format!("ip addr add {ANYCAST}/32 dev lo"));
    let mut command = node.command("exabgp");
    // The named pipes of `ExaBGP` are for one daemon per machine.
    command.env("exabgp.api.cli", "false").env("exabgp.daemon.user", "root").arg(file);
    Program::start(&mut command)
}
