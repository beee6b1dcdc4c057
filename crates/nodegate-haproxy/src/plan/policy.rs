//! The operator's settings for the plan.

use ipnet::IpNet;
use nodegate_program::{HTTP_PORT, List, choice, duration, is_object_name, number};
use nodegate_readiness::{BadValue, LabelSelector, MaxDrained};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The maximum number of namespaces. Each has its own watch.
const MAX_NAMESPACES: usize = 32;
/// The range of the check's interval: shorter would load the nodes, longer would test outdated states.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(5);
/// The range of timeouts, which is HAProxy's.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24 * 24);
const TIMEOUTS: &str =
    "connect, client, server, check, http-request, http-keep-alive, queue, tunnel, client-fin, server-fin";
pub(crate) const DEFAULT_TIMEOUTS: &str =
    "connect=3s,client=1h,server=1h,check=5s,http-request=10s,http-keep-alive=1m";
pub(crate) type Timeouts = BTreeMap<String, String>;

const DEFAULT_CHECK: &str = "agent:port=25001,interval=1s";

#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct PlanPolicy {
    /// Class to serve: of the load-balancer Services, only those of this class are
    /// published. Without this setting: only those without a class
    #[arg(long, env = "NODEGATE_HAPROXY_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = class)]
    pub(crate) load_balancer_class: Option<String>,

    /// Addresses of the frontends; empty means all of both families. A Service picks one with spec.loadBalancerIP or
    /// nodegate.io/haproxy-bind; the others get the first of each family
    #[arg(long, env = "NODEGATE_HAPROXY_BIND", value_name = "IPS")]
    #[arg(value_parser = List::<IpAddr>::of("IP addresses of this machine, e.g. 10.0.0.5,10.0.0.100"))]
    pub(crate) bind: Option<List<IpAddr>>,

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

    /// Removal limit: the percentage of a Service's nodes, or of the Services, that may vanish at once; if more vanish,
    /// all stay
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
}

impl PlanPolicy {
    pub(crate) fn may_open(&self, namespace: &str, port: u16) -> bool {
        let grants = |PortGrant(whose, ports): &PortGrant| {
            (whose == "*" || whose == namespace) && ports.contains(&port)
        };
        self.ports.as_ref().is_none_or(|List(all)| all.is_empty() || all.iter().any(grants))
    }

    /// Returns the addresses of frontends that choose none: the first of each family, or all.
    pub(crate) fn default_addresses(&self) -> Vec<IpAddr> {
        let first = |is_ipv6| self.bound().iter().copied().find(|ip| ip.is_ipv6() == is_ipv6);
        let firsts: Vec<IpAddr> = [false, true].into_iter().filter_map(first).collect();
        if firsts.is_empty() { vec![Ipv6Addr::UNSPECIFIED.into()] } else { firsts }
    }

    pub(crate) fn bound(&self) -> &[IpAddr] {
        self.bind.as_ref().map_or(&[], |List(all)| all)
    }

    pub(crate) fn networks(&self) -> &[IpNet] {
        self.node_networks.as_ref().map_or(&[], |List(all)| all)
    }

    /// Returns true if `gone` of `all` objects may vanish at once.
    pub(crate) fn within_removal_limit(&self, gone: usize, all: usize) -> bool {
        gone * 100 <= all * usize::from(self.max_removal)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CheckKind {
    #[default]
    Agent,
    Tcp,
    /// No check: only the watch takes a node out.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckPolicy {
    pub(crate) kind: CheckKind,
    pub(crate) port: u16,
    pub(crate) interval: Duration,
}

impl Default for CheckPolicy {
    fn default() -> Self {
        let (kind, interval) = (CheckKind::default(), Duration::from_secs(1));
        Self { kind, port: HTTP_PORT, interval }
    }
}

fn check(value: &str) -> Result<CheckPolicy, String> {
    const TAKES: &str =
        "takes agent, tcp or none, and perhaps port and interval, e.g. agent:port=25001,interval=1s";
    const KINDS: &[(&str, CheckKind)] =
        &[("agent", CheckKind::Agent), ("tcp", CheckKind::Tcp), ("none", CheckKind::None)];
    let (kind, keys) = value.split_once(':').unwrap_or((value, ""));
    let kind = choice(KINDS)(kind).map_err(|_| TAKES)?;
    let mut check = CheckPolicy { kind, ..CheckPolicy::default() };
    for part in keys.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or(TAKES)?;
        match key {
            "port" => check.port = number(1..=u16::MAX, TAKES)(value)?,
            "interval" => check.interval = duration(INTERVAL)(value)?,
            _ => return Err(TAKES.to_owned()),
        }
    }
    Ok(check)
}

fn name(text: &str) -> Result<String, ()> {
    if is_object_name(text) && text.len() <= 63 { Ok(text.to_owned()) } else { Err(()) }
}

fn port(text: &str) -> Result<u16, ()> {
    text.parse().ok().filter(|port| *port != 0).ok_or(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortGrant(String, RangeInclusive<u16>);

impl FromStr for PortGrant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (namespace, ports) = text.split_once('=').ok_or(())?;
        let namespace = if namespace == "*" { namespace.to_owned() } else { name(namespace)? };
        let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
        let range = port(low)?..=port(high)?;
        if range.is_empty() { Err(()) } else { Ok(Self(namespace, range)) }
    }
}

pub(crate) fn timeouts(value: &str) -> Result<Timeouts, String> {
    let takes =
        || format!("takes timeouts from 1ms to 24days, e.g. connect=3s,client=1h; there are {TIMEOUTS}");
    let mut all = Timeouts::new();
    let given = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    for part in DEFAULT_TIMEOUTS.split(',').chain(given) {
        let (name, time) = part.split_once('=').ok_or_else(takes)?;
        let time = duration(TIMEOUT)(time).map_err(|_| takes())?;
        if !TIMEOUTS.split(", ").any(|known| known == name) {
            return Err(takes());
        }
        all.insert(name.to_owned(), format!("{}ms", time.as_millis()));
    }
    Ok(all)
}

fn class(value: &str) -> Result<String, &'static str> {
    let is_class = value.split('/').all(|part| is_object_name(&part.to_ascii_lowercase()));
    if is_class { Ok(value.to_owned()) } else { Err("takes a loadBalancerClass, e.g. example.com/haproxy") }
}

pub(crate) fn field_manager(value: &str) -> Result<String, &'static str> {
    name(value).map_err(|()| "takes a name, e.g. nodegate-haproxy")
}

pub(crate) fn namespaces(value: &str) -> Result<List<String>, String> {
    let names = List::<String>::of("namespaces")(value)?;
    let are_right = names.0.iter().all(|name| is_object_name(name)) && names.0.len() <= MAX_NAMESPACES;
    are_right.then_some(names).ok_or_else(|| format!("takes at most {MAX_NAMESPACES} names of namespaces"))
}

/// A port of HAProxy that leads to a port of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    /// The labels of the nodes. `None` for all nodes.
    pub(crate) nodes: Option<LabelSelector>,
    /// The names of the checks that the agents are asked for. Empty for the agents' own.
    pub(crate) checks: Vec<String>,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const TAKES: &str = "takes NAME=PORT:NODEPORT[@SELECTOR][?CHECKS], e.g. \
            https=443:443@node-role.kubernetes.io/infra?node_ready,okd_router_1936";
        let (name, rest) = text.trim().split_once('=').ok_or(TAKES)?;
        let (rest, checks) = rest.split_once('?').unwrap_or((rest, ""));
        let (ports, nodes) = rest.split_once('@').map_or((rest, None), |(rest, nodes)| (rest, Some(nodes)));
        let nodes = nodes.map(str::parse).transpose().map_err(|error: BadValue| error.to_string())?;
        let (from, to) = ports.split_once(':').ok_or(TAKES)?;
        let List(checks) = List::<String>::of("checks")(checks)?;
        let is_check = |name: &String| {
            name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b':' | b'/' | b'.'))
        };
        if !is_object_name(name) || name.contains('.') || name.len() > 63 || !checks.iter().all(is_check) {
            return Err(TAKES.to_owned());
        }
        let [port, node_port] = [from, to].map(|text| port(text.trim()).map_err(|()| TAKES));
        Ok(Self { name: name.to_owned(), port: port?, node_port: node_port?, nodes, checks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_opens_the_ports_that_it_is_granted() {
        let ports = List::of("")("shop=443,shop=8000-8099,*=30000-32767").ok();
        let granted = PlanPolicy { ports, ..PlanPolicy::default() };
        let ports = [22, 443, 8099, 30000];
        let may = |policy: &PlanPolicy, namespace| ports.map(|port| policy.may_open(namespace, port));
        assert_eq!(may(&PlanPolicy::default(), "shop"), [true; 4], "without --ports all may be opened");
        assert_eq!(may(&granted, "shop"), [false, true, true, true]);
        assert_eq!(may(&granted, "web"), [false, false, false, true]);
        assert!("".parse::<PortGrant>().is_err() && check("").is_err() && "".parse::<Forward>().is_err());
    }

    #[test]
    fn a_check_and_timeouts_replace_what_they_name() {
        let default = CheckPolicy::default();
        assert_eq!((check("agent"), check(DEFAULT_CHECK)), (Ok(default.clone()), Ok(default)));
        let tcp = check("tcp:interval=250ms").unwrap();
        assert_eq!((tcp.kind, tcp.interval), (CheckKind::Tcp, Duration::from_millis(250)));
        let all = timeouts("client=2h,tunnel=90s").unwrap();
        let named = ["client", "tunnel", "connect"].map(|name| &*all[name]);
        assert_eq!((named, all.len()), (["7200000ms", "90000ms", "3000ms"], 7));
    }

    #[test]
    fn a_forward_has_ports_and_perhaps_nodes_and_checks() {
        let plain: Forward = "https=443:8443".parse().unwrap();
        assert_eq!((plain.port, plain.node_port, plain.nodes, plain.checks.len()), (443, 8443, None, 0));
        let full: Forward = "http=80:80@role in (a, b),!c?node_ready,http:nginx".parse().unwrap();
        assert_eq!(full.nodes.map(|nodes| nodes.to_string()).as_deref(), Some("role in (a, b),!c"));
        assert_eq!(full.checks, ["node_ready", "http:nginx"]);
    }
}
