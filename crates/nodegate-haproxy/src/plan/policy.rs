//! The operator's settings for the plan.

use crate::plan::annotation::parse_word;
use crate::plan::values::{CheckPolicy, DEFAULT_CHECK, Forward, NamedAddress, PortGrant, check, class};
use clap::ValueEnum;
use ipnet::IpNet;
use nodegate_program::{List, number};
use nodegate_readiness::MaxDrained;
use std::net::{IpAddr, Ipv6Addr};

/// The nodes that serve when none is Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LastResort {
    /// The nodes that pass their check, first those that only their label takes out, then drained ones. If none does,
    /// any node.
    #[default]
    All,
    /// The nodes that pass their check, in the same order.
    Drained,
    None,
}

/// The rules of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct PlanPolicy {
    /// Class to serve: of the load-balancer Services, only those of this class are
    /// published. Without this setting: only those without a class
    #[arg(long, env = "NODEGATE_HAPROXY_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = class)]
    pub(crate) load_balancer_class: Option<String>,

    /// Addresses of the frontends; empty means all of both families. A Service picks one by its name (web=10.0.0.100)
    /// or number, with spec.loadBalancerIP or nodegate.io/haproxy-bind; the others get those without a name, or
    /// the first if all have one
    #[arg(long, env = "NODEGATE_HAPROXY_BIND", value_name = "[NAME=]IPS")]
    #[arg(value_parser = List::<NamedAddress>::of("IP addresses, each with a name or without, e.g. 10.0.0.5,web=10.0.0.100"))]
    pub(crate) bind: Option<List<NamedAddress>>,

    /// Ports that a namespace may open; * stands for all. Without this setting: every namespace may open all
    #[arg(long, env = "NODEGATE_HAPROXY_PORTS", value_name = "NAMESPACE=RANGE,…")]
    #[arg(value_parser = List::<PortGrant>::of("namespaces with ports, e.g. shop=443,shop=8000-8099,*=30000-32767"))]
    pub(crate) ports: Option<List<PortGrant>>,

    /// Ports of the nodes themselves, published without a Service: for an ingress or router on the host's network.
    /// SELECTOR names the nodes by label, CHECKS the agents' checks. Separate several with ";", or repeat the flag
    #[arg(long, env = "NODEGATE_HAPROXY_FORWARD", value_name = "NAME=PORT:NODEPORT[@SELECTOR][?CHECKS]")]
    #[arg(value_delimiter = ';')]
    pub(crate) forward: Vec<Forward>,

    /// Check of the nodes: agent asks nodegate's agents at port, tcp connects to the Service's port on the node,
    /// none leaves it to the watch
    #[arg(long, env = "NODEGATE_HAPROXY_CHECK", value_name = "agent|tcp|none[:KEY=VALUE,…]")]
    #[arg(default_value = DEFAULT_CHECK, value_parser = check)]
    pub(crate) check: CheckPolicy,

    /// Removal limit: the percentage of each Service's servers, or of the Services, that may vanish at once;
    /// the rest stays
    #[arg(long, env = "NODEGATE_HAPROXY_MAX_REMOVAL", value_name = "PERCENT")]
    #[arg(default_value_t = 50, value_parser = number(0..=100_u8, "takes a percentage from 0 to 100"))]
    pub(crate) max_removal: u8,

    /// Drain budget: the largest share of the nodes that a cordon takes out at a time, rounded down, at least one.
    /// Further cordoned nodes serve until their turn comes. Set it as the agents' --max-drained; 100% is no limit
    #[arg(long, env = "NODEGATE_HAPROXY_MAX_DRAINED", value_name = "PERCENT", default_value = "50%")]
    pub(crate) max_drained: MaxDrained,

    /// Networks that the nodes' addresses are taken from, the preferred first. Without this setting: the
    /// first internal address, or else the first external one
    #[arg(long, env = "NODEGATE_HAPROXY_NODE_NETWORKS", value_name = "LIST")]
    #[arg(value_parser = List::<IpNet>::of("networks, e.g. 10.0.0.0/8,fd00::/8"))]
    pub(crate) node_networks: Option<List<IpNet>>,

    /// Nodes that serve when none is Ready. all: those that pass their check and are out by the exclusion label
    /// alone, else drained ones, and if none passes any; drained: without the last step; none: connections are refused
    #[arg(long, env = "NODEGATE_HAPROXY_LAST_RESORT", value_name = "all|drained|none")]
    #[arg(default_value = "all", value_parser = parse_word::<LastResort>)]
    pub(crate) last_resort: LastResort,
}

impl PlanPolicy {
    pub(crate) fn may_open(&self, namespace: &str, port: u16) -> bool {
        let grants = |PortGrant(whose, ports): &PortGrant| {
            (whose == "*" || whose == namespace) && ports.contains(&port)
        };
        self.ports.as_ref().is_none_or(|List(all)| all.is_empty() || all.iter().any(grants))
    }

    /// Returns the addresses of frontends that choose none: those without a name, else the first name's, else
    /// all.
    pub(crate) fn default_addresses(&self) -> Vec<IpAddr> {
        let name = self.bound().map(|(name, _)| name).min_by_key(|name| !name.is_empty());
        name.map_or_else(|| vec![Ipv6Addr::UNSPECIFIED.into()], |name| self.named(name))
    }

    pub(crate) fn named(&self, name: &str) -> Vec<IpAddr> {
        let mut all = Vec::new();
        for (_, address) in self.bound().filter(|(other, _)| *other == name) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }

    /// Returns the addresses of `--bind`, each with its name, which may be empty.
    pub(crate) fn bound(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        let all = self.bind.iter().flat_map(|List(all)| all);
        all.map(|NamedAddress(name, address)| (name.as_str(), *address))
    }

    pub(crate) fn networks(&self) -> &[IpNet] {
        self.node_networks.as_ref().map_or(&[], |List(all)| all)
    }

    /// Returns true if `gone` of `all` objects may vanish at once.
    pub(crate) fn may_vanish(&self, gone: usize, all: usize) -> bool {
        gone * 100 <= all * usize::from(self.max_removal)
    }
}
