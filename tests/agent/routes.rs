//! The default routes that the `network` check looks at, beside the kernel's own choice: several next hops,
//! next hop objects, routers of another family, dead links, and the tables of VPNs and second network cards.
//!
//! Routers that answer have the addresses 10.77.0.1 and 10.77.0.11 to 10.77.0.18, and `fe80::1` and `fe80::11`
//! to `fe80::18`; all others are silent. A second network card, eth1, leads nowhere.

use nodegate_testbed::Agent;
use nodegate_testbed::network::node_network::NodeNetwork;

/// A node's routes, and the verdict.
struct Case {
    name: &'static str,
    routes: &'static [&'static str],
    /// `None` if the check passes, else the beginning of its reason.
    fails: Option<&'static str>,
}

const IPV4: &[Case] = &[
    Case { name: "one", routes: &["default via 10.77.0.1"], fails: None },
    Case {
        name: "one, silent",
        routes: &["default via 10.77.0.66"],
        fails: Some("Gateway: 10.77.0.66 on eth0: no answer to ARP"),
    },
    Case {
        name: "two next hops",
        routes: &["default nexthop via 10.77.0.1 dev eth0 nexthop via 10.77.0.11 dev eth0"],
        fails: None,
    },
    Case {
        name: "two, the first silent",
        routes: &["default nexthop via 10.77.0.66 dev eth0 nexthop via 10.77.0.11 dev eth0"],
        fails: None,
    },
    Case {
        name: "two, both silent",
        routes: &["default nexthop via 10.77.0.66 dev eth0 nexthop via 10.77.0.67 dev eth0"],
        fails: Some("Gateway: 10.77.0.66 on eth0: no answer to ARP, 10.77.0.67 on eth0: no answer to ARP"),
    },
    Case {
        name: "two, one of them dead, the other silent",
        routes: &["default nexthop via 10.79.0.1 dev eth1 nexthop via 10.77.0.66 dev eth0"],
        fails: Some("Gateway: 10.77.0.66 on eth0: no answer to ARP"),
    },
    Case {
        name: "two, one of them dead, the other answers",
        routes: &["default nexthop via 10.79.0.1 dev eth1 nexthop via 10.77.0.1 dev eth0"],
        fails: None,
    },
    Case {
        name: "eight, seven of them silent",
        routes: &[
            "default nexthop via 10.77.0.61 dev eth0 nexthop via 10.77.0.62 dev eth0 nexthop via 10.77.0.63 dev eth0 \
             nexthop via 10.77.0.64 dev eth0 nexthop via 10.77.0.65 dev eth0 nexthop via 10.77.0.66 dev eth0 \
             nexthop via 10.77.0.67 dev eth0 nexthop via 10.77.0.18 dev eth0",
        ],
        fails: None,
    },
    Case {
        name: "a router with an IPv6 address",
        routes: &["default via inet6 fe80::11 dev eth0"],
        fails: None,
    },
    Case {
        name: "two with IPv6 addresses, one silent",
        routes: &["default nexthop via inet6 fe80::66 dev eth0 nexthop via inet6 fe80::11 dev eth0"],
        fails: None,
    },
    Case {
        name: "one with an IPv6 address, silent",
        routes: &["default via inet6 fe80::66 dev eth0"],
        fails: Some("Gateway: fe80::66 on eth0: no answer to NDP"),
    },
    Case { name: "a group of next hop objects, one silent", routes: &["default nhid 10"], fails: None },
    Case {
        name: "a group of next hop objects, both silent",
        routes: &["default nhid 20"],
        fails: Some("Gateway: 10.77.0.66 on eth0: no answer to ARP, 10.77.0.67 on eth0: no answer to ARP"),
    },
    Case {
        name: "the best dead, a worse one answers",
        routes: &["default via 10.79.0.1 dev eth1 metric 10", "default via 10.77.0.1 metric 20"],
        fails: None,
    },
    Case {
        name: "all rejected, a worse route answers",
        routes: &["blackhole default metric 10", "default via 10.77.0.1 metric 20"],
        fails: Some("Gateway: IPv4 default route is gone"),
    },
    Case {
        name: "a VPN's table has a silent router",
        routes: &["default via 10.77.0.1", "default via 10.77.0.66 table 100"],
        fails: None,
    },
    Case {
        name: "gone, a VPN's table has one that answers",
        routes: &["default via 10.77.0.11 table 100"],
        fails: Some("Gateway: IPv4 default route is gone"),
    },
];

const IPV6: &[Case] = &[
    Case { name: "one", routes: &["default via fe80::1 dev eth0"], fails: None },
    Case {
        name: "two next hops, the first silent",
        routes: &["default nexthop via fe80::66 dev eth0 nexthop via fe80::11 dev eth0"],
        fails: None,
    },
    Case {
        name: "six, four of them silent",
        routes: &[
            "default nexthop via fe80::61 dev eth0 nexthop via fe80::62 dev eth0 nexthop via fe80::63 dev eth0 \
             nexthop via fe80::64 dev eth0 nexthop via fe80::11 dev eth0 nexthop via fe80::12 dev eth0",
        ],
        fails: None,
    },
    Case {
        name: "two, one of them dead, the other silent",
        routes: &["default nexthop via fe80::1 dev eth1 nexthop via fe80::66 dev eth0"],
        fails: Some("Gateway: fe80::66 on eth0: no answer to NDP"),
    },
    Case { name: "a group of next hop objects, one silent", routes: &["default nhid 60"], fails: None },
    Case {
        name: "a VPN's table has a silent router with a better metric",
        routes: &["default via fe80::1 dev eth0", "default via fe80::66 dev eth0 table 100 metric 1"],
        fails: None,
    },
    Case {
        name: "silent, a VPN's table has one that answers",
        routes: &["default via fe80::66 dev eth0", "default via fe80::11 dev eth0 table 100 metric 1"],
        fails: Some("Gateway: fe80::66 on eth0: no answer to NDP"),
    },
    Case {
        name: "gone, a VPN's table has one that answers",
        routes: &["default via fe80::11 dev eth0 table 100"],
        fails: Some("Gateway: IPv6 default route is gone"),
    },
];

/// Next hop objects: 10 has one router that answers, 20 has none, 60 has one with an IPv6 address.
const OBJECTS: [&str; 8] = [
    "id 1 via 10.77.0.11 dev eth0",
    "id 2 via 10.77.0.66 dev eth0",
    "id 3 via 10.77.0.67 dev eth0",
    "id 10 group 2/1",
    "id 20 group 2/3",
    "id 61 via fe80::66 dev eth0",
    "id 62 via fe80::11 dev eth0",
    "id 60 group 61/62",
];

fn network() -> NodeNetwork {
    let net = NodeNetwork::without_routes();
    for n in 11..=18 {
        net.router(&format!("ip addr add 10.77.0.{n}/24 dev rt0; ip addr add fe80::{n}/64 dev rt0 nodad"));
    }
    // A card whose cable is out, which the kernel does not use.
    net.node("ip link add eth1 type veth peer name eth1-peer; ip addr add 10.79.0.2/24 dev eth1");
    net.node("sysctl -q -w net.ipv4.conf.eth1.ignore_routes_with_linkdown=1");
    net.node("sysctl -q -w net.ipv6.conf.eth1.ignore_routes_with_linkdown=1");
    net.node("ip link set eth1-peer up; ip link set eth1 up; ip addr add fe80::2/64 dev eth1 nodad");
    for object in OBJECTS {
        net.node(&format!("ip nexthop add {object}"));
    }
    net
}

/// Plays the cases one after the other with one agent, which has seen a default route.
fn play(ip: &str, family: &str, first: &str, cases: &[Case]) {
    let net = network();
    net.node(&format!("{ip} route add {first}"));
    let agent = net.agent(&format!("nameservers=off,families={family}"));
    agent.wait_passes("network");
    for case in cases {
        net.node("ip link set eth1-peer up");
        for table in ["main", "100"] {
            net.node(&format!("while {ip} route del default table {table} 2>/dev/null; do :; done"));
        }
        for route in case.routes {
            net.node(&format!("{ip} route add {route}"));
        }
        net.node("ip link set eth1-peer down");
        eprintln!("{family}: {}", case.name);
        is_judged(&agent, case);
        // It stays so.
        agent.wait_runs("network", 2);
        is_judged(&agent, case);
    }
}

fn is_judged(agent: &Agent, case: &Case) {
    match case.fails {
        Some(reason) => agent.wait_fails_with("network", reason),
        None => agent.wait_passes("network"),
    };
}

#[test]
fn ipv4_default_routes() {
    play("ip -4", "ipv4", "default via 10.77.0.1", IPV4);
}

#[test]
fn ipv6_default_routes() {
    play("ip -6", "ipv6", "default via fe80::1 dev eth0", IPV6);
}
