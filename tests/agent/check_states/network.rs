//! `network` on a node with a real kernel, a real router and a real resolver, in network namespaces.

use crate::check_states::part::{Pace, Part, Says, State};
use nodegate_testbed::network::node_network::{NodeNetwork, RESOLVER_V4, RESOLVER_V6};
use nodegate_testbed::process::{Slowed, slow_down};
use nodegate_testbed::{Agent, Cluster, NODE};
use serde_json::json;
use std::time::Duration;

/// A delay that is shorter than a resolver's timeout.
const SLOW: Duration = Duration::from_millis(1500);

const NO_ANSWER: Says = Says::Fails("DNS: 10.78.0.53 no answer, fd78::53 no answer");
const REFUSED: Says = Says::Fails("DNS: 10.78.0.53 connection refused, fd78::53 connection refused");

/// A node's nameservers.
pub(crate) struct Dns {
    pace: Pace,
    slowed: Option<Slowed>,
    net: NodeNetwork,
}

impl Part for Dns {
    const CHECK: &'static str = "network";
    const TITLE: &'static str = "network: nameservers";
    const PLAYED_WITH: &'static str =
        "dnsmasq behind a router, in network namespaces; `name=node.test,families=both`";
    const STATES: &'static [State<Self>] = &[
        State::new(
            "absent: no nameserver in resolv.conf, and none on 127.0.0.1",
            |_| (),
            Says::Fails("DNS: 127.0.0.1 connection refused"),
        ),
        State::new("starting: its host is there, it does not listen", Self::name, REFUSED),
        State::new("healthy", |dns| dns.net.start_resolver(), Says::Passes),
        State::new("slow: takes 1.5 s", Self::slow, Says::Passes),
        State::new("hung: its queue takes queries, it never answers", Self::hang, NO_ANSWER).within(10),
        State::new("goes on", |dns| dns.net.signal_resolver("CONT"), Says::Passes),
        State::new("one of two is dead", Self::halve, Says::Passes),
        State::new(
            "lying: says REFUSED to everything",
            Self::lie,
            Says::Fails("DNS: 10.78.0.53 REFUSED, fd78::53 REFUSED"),
        ),
        State::new("killed", |dns| dns.net.kill_resolver(), REFUSED),
        State::new("started again", |dns| dns.net.start_resolver(), Says::Passes),
        State::new("removed, with its host", Self::remove, NO_ANSWER).within(10),
    ];

    fn start(pace: Pace) -> Self {
        let net = NodeNetwork::start();
        net.nameservers(&[]);
        Self { pace, slowed: None, net }
    }

    fn agent(&self) -> Agent {
        self.net.agent_with(self.pace.settings(), "name=node.test,gateways=off,families=both")
    }
}

impl Dns {
    fn name(&mut self) {
        self.net.nameservers(&[RESOLVER_V4, RESOLVER_V6]);
    }

    fn slow(&mut self) {
        self.slowed = Some(slow_down(self.net.resolver_pid(), self.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.slowed = None;
        self.net.signal_resolver("STOP");
    }

    fn halve(&mut self) {
        self.net.nameservers(&["10.78.0.99", RESOLVER_V4]);
    }

    fn lie(&mut self) {
        self.net.kill_resolver();
        self.name();
        self.net.start_resolver_that_refuses();
    }

    fn remove(&mut self) {
        self.net.kill_resolver();
        self.net.at_resolver("ip link set eth0 down");
    }
}

/// The routers of the default routes.
pub(crate) struct Gateway {
    pace: Pace,
    net: NodeNetwork,
}

const GONE: Says = Says::Fails("Gateway: IPv4 default route is gone, IPv6 default route is gone");
const DOWN: Says = Says::Fails("Gateway: 10.77.0.1 on eth0: link is down, fe80::1 on eth0: link is down");

impl Part for Gateway {
    const CHECK: &'static str = "network";
    const TITLE: &'static str = "network: routers";
    const PLAYED_WITH: &'static str = "a router in a network namespace, the kernel's neighbour tables with the kernel's own times; `families=both`";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: there is no default route, nor ever was", |_| (), Says::Passes),
        State::new("healthy", Self::route, Says::Passes),
        State::new("refusing: the router drops all that is for itself", Self::drop_all, Says::Passes),
        State::new("the link is down", |gateway| gateway.net.router("ip link set rt0 down"), DOWN),
        State::new("the link is up again", Self::up, Says::Passes).within(15),
        State::new(
            "removed: no machine has the router's IPv4 address",
            Self::lose,
            Says::Fails("Gateway: 10.77.0.1 on eth0: no answer to ARP"),
        )
        .within(75)
        .long(),
        State::new("started again: a machine has it", Self::back, Says::Passes).within(15).long(),
        State::new("the default routes are gone", Self::unroute, GONE).newcomer(Says::Passes),
        State::new("they are back", Self::route, Says::Passes),
    ];

    fn start(pace: Pace) -> Self {
        let net = NodeNetwork::without_routes();
        net.usual_neighbour_times();
        Self { pace, net }
    }

    fn agent(&self) -> Agent {
        self.net.agent_with(self.pace.settings(), "nameservers=off,families=both")
    }
}

impl Gateway {
    fn route(&mut self) {
        self.net
            .node("ip route add default via 10.77.0.1 dev eth0; ip route add default via fe80::1 dev eth0");
    }

    fn unroute(&mut self) {
        self.net.node("ip route del default; ip -6 route del default");
    }

    fn drop_all(&mut self) {
        self.net.router("iptables -I INPUT -i rt0 -j DROP");
    }

    fn up(&mut self) {
        self.net.router("iptables -F INPUT; ip link set rt0 up");
        self.net.router("ip addr replace fd77::1/64 dev rt0 nodad; ip addr replace fe80::1/64 dev rt0 nodad");
    }

    fn lose(&mut self) {
        self.net.router("ip addr del 10.77.0.1/24 dev rt0");
    }

    fn back(&mut self) {
        self.net.router("ip addr add 10.77.0.1/24 dev rt0");
    }
}

/// A node with only an IPv4 address, and with a leftover IPv6 route of its image to a router that does not
/// exist.
pub(crate) struct Leftover {
    pace: Pace,
    net: NodeNetwork,
    cluster: Cluster,
}

const DEAD: Says = Says::Fails("Gateway: 10.77.0.1 on eth0: no answer to ARP");
/// The reason in the first answer: the check runs once before the agent knows the Node's addresses.
const DEAD_AT_FIRST: Says =
    Says::Fails("Gateway: 10.77.0.1 on eth0: no answer to ARP, fe80::66 on eth0: no answer to NDP");

impl Part for Leftover {
    const CHECK: &'static str = "network";
    const TITLE: &'static str = "network: a leftover IPv6 route of a node with an IPv4 address";
    const PLAYED_WITH: &'static str = "the same router, whose neighbours are forgotten sooner, and a simulated API server for the Node's addresses";
    const STATES: &'static [State<Self>] = &[
        State::new("healthy, except for the route to nowhere", |_| (), Says::Passes),
        State::new("removed: no machine has the router's IPv4 address", Self::lose, DEAD)
            .newcomer_at_first(DEAD_AT_FIRST)
            .within(10),
        State::new("started again: a machine has it", Self::back, Says::Passes).within(10),
    ];

    fn start(pace: Pace) -> Self {
        let net = NodeNetwork::start();
        net.node("ip -6 route replace default via fe80::66 dev eth0");
        let cluster = Cluster::start();
        let addresses = json!([{"type": "InternalIP", "address": "10.77.0.2"}]);
        cluster.sim.edit_node(NODE, "kubelet", |node| node["status"]["addresses"] = addresses);
        Self { pace, net, cluster }
    }

    fn agent(&self) -> Agent {
        let agent = self.net.agent_of_with(&self.cluster, self.pace.settings(), "nameservers=off");
        agent.wait_ready();
        agent
    }
}

impl Leftover {
    fn lose(&mut self) {
        self.net.router("ip addr del 10.77.0.1/24 dev rt0");
    }

    fn back(&mut self) {
        self.net.router("ip addr add 10.77.0.1/24 dev rt0");
    }
}
