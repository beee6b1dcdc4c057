//! The command line and the environment: each setting of nodegate-haproxy is declared once, here. `setup`
//! holds the rules that concern several settings.

use crate::plan::annotation::word;
use crate::plan::forward::Forward;
use crate::plan::ingress::Ingress;
use crate::plan::policy::{CheckPolicy, LastResort};
use crate::run::values::{
    DEFAULT_CHECK, DEFAULT_TIMEOUTS, NamedAddress, PortGrant, check, class, listen, namespaces,
    node_selector, timeouts,
};
use crate::status::lease::LeaseName;
use clap::Parser;
use ipnet::IpNet;
use nodegate_program::{List, LogSettings, duration, number};
use nodegate_readiness::DrainSignals;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The range of `--reload-interval`.
const RELOAD_INTERVAL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_mins(10);

#[derive(Debug, Parser)]
#[command(
    name = "nodegate-haproxy",
    version,
    about = "Configures a HAProxy from a cluster's Nodes and Services",
    long_about = "nodegate-haproxy runs beside a HAProxy, outside or inside the cluster, and owns the whole \
configuration of it: your part (--template), to the byte, and below it the sections that it generates from the \
cluster's Nodes and Services. It watches these two kinds of objects, and nothing else.\n\n\
Each TCP port of a Service of type LoadBalancer, or of type NodePort that asks for it, becomes a frontend on the \
Service's port and a backend with one server per node. A changed file is checked with haproxy -c, put in place in one \
step and loaded; it counts as applied once the running HAProxy proves that it has it. If any of that fails, the old file \
and the old processes stay, and it is tried again.\n\n\
A node that is cordoned, drained or not ready leaves by HAProxy's own check, which asks nodegate's agent there, and by \
its weight with the next reload.",
    after_long_help = include_str!("help.txt")
)]
pub(crate) struct Args {
    /// File to write, the only one that HAProxy loads (-f). A file that has no generated part is never replaced.
    /// The states of servers are kept beside it
    #[arg(long, env = "NODEGATE_HAPROXY_CONFIG", value_name = "FILE")]
    #[arg(default_value = "/var/lib/nodegate-haproxy/haproxy.cfg")]
    pub(crate) config: PathBuf,

    /// Your part of the file, kept to the byte; an edit is applied like a changed Service. Without it: the
    /// generated sections alone
    #[arg(long, env = "NODEGATE_HAPROXY_TEMPLATE", value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,

    /// HAProxy's program, for haproxy -c; "none" leaves the check to HAProxy's reload
    #[arg(long, env = "NODEGATE_HAPROXY_BINARY", value_name = "FILE", default_value = "haproxy")]
    pub(crate) haproxy: PathBuf,

    /// HAProxy's master socket (haproxy -W -S), for reloads and for the proof that the file runs
    #[arg(long, env = "NODEGATE_HAPROXY_MASTER_SOCKET", value_name = "SOCKET")]
    #[arg(default_value = "/run/nodegate-haproxy/master.sock")]
    pub(crate) master_socket: PathBuf,

    /// Command that reloads HAProxy, instead of the master socket; words are split at spaces, and exit status 0
    /// is success
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_COMMAND", value_name = "COMMAND")]
    pub(crate) reload_command: Option<String>,

    /// Shortest time between two reloads; the first change after that is applied at once
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_INTERVAL", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = duration(RELOAD_INTERVAL))]
    pub(crate) reload_interval: Duration,

    /// Timeouts of the generated sections: connect, client, server, check, http-request, http-keep-alive, queue,
    /// tunnel, client-fin, server-fin. Those that are not named keep their default
    #[arg(long, env = "NODEGATE_HAPROXY_TIMEOUTS", value_name = "NAME=TIME,…")]
    #[arg(default_value = DEFAULT_TIMEOUTS, value_parser = timeouts)]
    pub(crate) timeouts: BTreeMap<String, String>,

    /// Only Services of these namespaces
    #[arg(long, env = "NODEGATE_HAPROXY_NAMESPACES", value_name = "LIST", value_parser = namespaces)]
    pub(crate) namespaces: Option<List<String>>,

    /// Only Nodes with these labels
    #[arg(long, env = "NODEGATE_HAPROXY_NODE_SELECTOR", value_name = "SELECTOR", value_parser = node_selector)]
    pub(crate) node_selector: Option<String>,

    /// Class to serve: of the load-balancer Services, only those of this class are
    /// published. Without this setting: only those without a class
    #[arg(long, env = "NODEGATE_HAPROXY_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = class)]
    pub(crate) load_balancer_class: Option<String>,

    /// Signals that drain a node, by the rules of the agent's --drain-on: unschedulable, deleting,
    /// taint:<key>, taint:<key>=<value>, taint:<key>:<effect>, taint:<prefix>*, label:<key>,
    /// label:<key>=<value>, annotation:<key>, annotation:<key>=<value>, condition:<Type>,
    /// condition:<Type>=<status>, lifecycle; or none alone
    #[arg(long, env = "NODEGATE_HAPROXY_DRAIN_ON", value_name = "LIST", default_value_t)]
    pub(crate) drain_on: DrainSignals,

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

    /// Networks that the nodes' addresses are taken from, the preferred first. Without this setting: the
    /// first internal address, or else the first external one
    #[arg(long, env = "NODEGATE_HAPROXY_NODE_NETWORKS", value_name = "LIST")]
    #[arg(value_parser = List::<IpNet>::of("networks, e.g. 10.0.0.0/8,fd00::/8"))]
    pub(crate) node_networks: Option<List<IpNet>>,

    /// Nodes that serve when none is Ready. all: those that pass their check, drained or not, and if none
    /// does any; drained: the former alone; none: connections are refused
    #[arg(long, env = "NODEGATE_HAPROXY_LAST_RESORT", value_name = "all|drained|none")]
    #[arg(default_value = "all", value_parser = word::<LastResort>)]
    pub(crate) last_resort: LastResort,

    /// Addresses or host names that clients use: they become status.loadBalancer.ingress of each published
    /// load-balancer Service, and a Service that can't be published gets an Event that says why. A Service that has
    /// chosen another address of --bind gets that one. The account needs more rights: haproxy-kubeconfig
    /// --publish-status. Without this setting, nothing is written to the cluster
    #[arg(long, env = "NODEGATE_HAPROXY_PUBLISH_STATUS", value_name = "ADDRESSES")]
    #[arg(value_parser = List::<Ingress>::of("IP addresses and host names, e.g. 203.0.113.10,lb.example.com"))]
    pub(crate) publish_status: Option<List<Ingress>>,

    /// Lease of --publish-status: of all processes with the same Lease, one at a time writes. Its name is also
    /// the field manager of the statuses, so give each pair of one cluster a name of its own. Without a
    /// namespace: that of this Pod, or outside of a Pod "nodegate"
    #[arg(long, env = "NODEGATE_HAPROXY_LEASE", value_name = "[NAMESPACE/]NAME")]
    #[arg(default_value = "nodegate-haproxy", value_parser = |text: &str| text.parse::<LeaseName>())]
    pub(crate) lease: LeaseName,

    /// Address and port of /metrics, /livez and /readyz; "none" opens none
    #[arg(long, env = "NODEGATE_HAPROXY_LISTEN", value_name = "IP:PORT")]
    #[arg(default_value = "127.0.0.1:25003", value_parser = listen)]
    // In full, as clap takes a plain Option for a setting without a value.
    pub(crate) listen: std::option::Option<SocketAddr>,

    /// Show the published Services with their ports, the unpublished ones with the reason, and the nodes with
    /// HAProxy's check, and exit
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) log: LogSettings,
}
