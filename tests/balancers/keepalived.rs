//! Debian's keepalived: an address that stays with a ready node. Each node is a network namespace with
//! keepalived and an agent, and so is the router between them, with the API server.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::{NODES, Site, documented};
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{self, system};
use nodegate_testbed::{needs_root, until};
use std::net::{IpAddr, Ipv4Addr};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers");
/// The virtual address in the documentation.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10));

/// Installs the program at the path of the configuration. Only this mount namespace sees it.
const WITH_NODEGATE: &str = "mount -t tmpfs -o mode=755 nodegate /usr/local/bin
    cp \"$0\" /usr/local/bin/nodegate
    exec keepalived -n -l -P \"$@\"";

struct Keepalived {
    _programs: Vec<Program>,
}

impl Balancer for Keepalived {
    fn says(&self, site: &Site, node: usize) -> Option<String> {
        let there = holds(&site.namespaces()?.nodes[node]);
        Some(if there { "has the address" } else { "has not the address" }.to_owned())
    }

    /// Returns the node that has the address, if exactly one does.
    fn holder(&self, site: &Site) -> Option<usize> {
        Some(until("one node with the address", || holder(site)))
    }
}

fn holds(node: &Namespace) -> bool {
    node.run("ip -4 addr show dev eth0").contains(&format!("{ADDRESS}/24"))
}

pub(crate) fn holder(site: &Site) -> Option<usize> {
    let nodes = site.namespaces()?.nodes.iter().enumerate();
    let mut holders = nodes.filter(|(_, node)| holds(node)).map(|(index, _)| index);
    let first = holders.next()?;
    holders.next().is_none().then_some(first)
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let all = (0..NODES.len()).map(|index| keepalived(&nodes.site, index, row.file));
    Box::new(Keepalived { _programs: all.collect() })
}

pub(crate) fn keepalived(site: &Site, index: usize, name: &str) -> Program {
    let file = |name: &str| site.dir().join(format!("{name}-{index}"));
    let mut command = site.command_on(index, "sh");
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
        // keepalived 2.2.7 ends itself with SIGTERM if the configuration is valid; else it prints the reason
        // and exits with a code.
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(told.is_empty() && matches!(checked.status.code(), None | Some(0)), "{name}: {told}");
    }
}

/// Shows that the address leaves a node that is not ready. One node runs curl as its check, the other one the
/// agent's own program.
#[test]
fn keepalived_moves_the_address_to_a_ready_node() {
    let nodes = Nodes::start_with(|| Site::lan(ADDRESS), &[]);
    let names = ["keepalived/vrrp.conf", "keepalived/vrrp-status.conf"];
    let _programs = [0, 1].map(|index| keepalived(&nodes.site, index, names[index]));
    let at_home = || holder(&nodes.site);
    let first = until("one node with the address", at_home);
    let other = 1 - first;
    let cluster = &nodes.cluster;
    assert!(cluster.sim.cordon(NODES[first]));
    until("the address on the other node", || (at_home() == Some(other)).then_some(()));
    assert!(cluster.sim.uncordon(NODES[first]));
    nodes.wait_agent(first, |agent| drop(agent.wait_ready()));
    assert_eq!(at_home(), Some(other), "it does not come back by itself");
    assert!(cluster.sim.cordon(NODES[other]));
    until("the address on the first node", || (at_home() == Some(first)).then_some(()));
    // No node is ready: one keeps the address all the same.
    assert!(cluster.sim.cordon(NODES[first]));
    nodes.wait_agent(first, |agent| drop(agent.wait_reason("Unschedulable")));
    until("one node with the address", at_home);
}
