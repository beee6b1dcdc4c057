//! Debian's `ExaBGP` on each node, and BIRD on the router: each ready node is one of several next hops.

use crate::balancer::{Balancer, Row};
use crate::lan::Lan;
use crate::nodes::Nodes;
use crate::site::{NODES, Site};
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::Program;
use nodegate_testbed::until;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// The service's address in the documentation.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
/// The agents' arguments in the documentation.
pub(crate) const AGENT_ARGS: &[&str] = &[
    "--tcp-check=service=127.0.0.1:30443",
    "--background-checks=tcp:service",
    "--check-settings=tcp:service:interval=1s",
];
const FIRST: &str = "10.0.0.11";

struct Bgp {
    /// Dropped in this order, the programs end without an error message.
    _speakers: Vec<Program>,
    _bird: Program,
}

impl Balancer for Bgp {
    /// Returns the next hops from the routing table of the router's kernel.
    fn says(&self, site: &Site, node: usize) -> Option<String> {
        let lan = site.namespaces()?;
        let there = is_next_hop(lan, node);
        Some(if there { "a next hop" } else { "no next hop" }.to_owned())
    }
}

fn is_next_hop(lan: &Lan, node: usize) -> bool {
    let routes = lan.router.run(&format!("ip route show {ADDRESS}"));
    routes.contains(&format!("via {} ", Lan::node_address(node)))
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let site = &nodes.site;
    let lan = site.namespaces().expect("it is played among namespaces");
    let mut bird = lan.router.command("bird");
    bird.arg("-f").arg("-c").arg(site.configuration("bgp/bird.conf"));
    bird.arg("-s").arg(site.dir().join("bird.ctl")).arg("-P").arg(site.dir().join("bird.pid"));
    let bird = Program::start(&mut bird);
    let documented = fs::read_to_string(site.configuration(row.file)).unwrap();
    let speakers = (0..NODES.len()).map(|index| {
        let own = Lan::node_address(index).to_string();
        let text = documented.replace(FIRST, &own);
        speaker(&lan.nodes[index], &text, &site.dir().join(format!("exabgp-{index}.conf")))
    });
    let bgp = Bgp { _speakers: speakers.collect(), _bird: bird };
    until("a next hop for each node", || (0..NODES.len()).all(|node| is_next_hop(lan, node)).then_some(()));
    Box::new(bgp)
}

fn speaker(node: &Namespace, text: &str, file: &Path) -> Program {
    fs::write(file, text).unwrap();
    node.run(&format!("ip addr add {ADDRESS}/32 dev lo"));
    let mut command = node.command("exabgp");
    // The named pipes of `ExaBGP` are for one daemon per machine.
    command.env("exabgp.api.cli", "false").env("exabgp.daemon.user", "root").arg(file);
    Program::start(&mut command)
}
