//! The command line and the environment: each setting of nodegate-haproxy is declared once, here. `settings`
//! holds the rules that concern several settings.

use crate::plan::annotation::{Balance, Mode};
use crate::plan::names::{DEFAULT_PREFIX, is_dns_name, is_prefix};
use crate::plan::policy::{LastResort, LocalServiceCheck, MaxRemoval, PlanPolicy, Publish};
use crate::run::exposure::{Bind, BindGrant, PortGrant, StatusAddress};
use crate::status::lease::LeaseName;
use clap::Parser;
use nodegate_program::{List, LogSettings, choice, duration, number, shown};
use nodegate_readiness::DrainSignals;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The range of `--reload-timeout`.
const RELOAD_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(2);
/// The range of `--check-interval`. A shorter interval would load the nodes; a longer one would test outdated
/// states.
const CHECK_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(5);
/// The maximum number of namespaces. Each has its own watch.
const MAX_NAMESPACES: usize = 32;

/// The maximum number of addresses of `--publish-status`.
const MAX_STATUS_ADDRESSES: usize = 64;

#[derive(Debug, Parser)]
#[command(
    name = "nodegate-haproxy",
    version,
    about = "Keeps HAProxy in step with a cluster's Nodes and NodePort/LoadBalancer Services",
    long_about = "nodegate-haproxy runs beside HAProxy, outside or inside the cluster. It watches Nodes and the Services of type \
NodePort and LoadBalancer, and nothing else.\n\n\
Each TCP port of a Service of type LoadBalancer, or of type NodePort that asks for it, becomes a frontend on the Service's port and a backend with one server per node. A node \
that is cordoned, uncordoned, NotReady or weighted anew is moved at once through HAProxy's socket, without a reload. \
When the structure changes, a file beside your own configuration is written: it is checked with haproxy -c, put in place \
in one step and loaded; if \
any of that fails, the old file and the old process stay and it is tried again.",
    after_long_help = "\
ANNOTATIONS OF A SERVICE (one value for all ports, or PORT=VALUE,… by the port's name or number)
  nodegate.io/haproxy-port          the port that HAProxy listens on; the Service's port if there is none
  nodegate.io/haproxy-mode          tcp or http
  nodegate.io/haproxy-balance       roundrobin, leastconn, first, random, source or uri
  nodegate.io/haproxy-send-proxy    v1, v2 or off
  nodegate.io/haproxy-publish       true: published, also if of type NodePort; false: not published
  nodegate.io/haproxy-bind          the name of the --bind address that it listens on, one for all of its ports
  nodegate.io/haproxy-ignore        true: not published
  nodegate.io/haproxy-nodes         a label selector: only these nodes serve it
  Two Services that want one port of one address: the older one has it, the other is named in the log and in the metrics.
  The port of a Service that is gone stays reserved for its namespace for 5 min.

ANNOTATION OF A NODE
  nodegate.io/haproxy-weight        its share of the traffic, 0 to 256; 100 if there is none

TEMPLATES
  A --template whose name ends in .j2 or .jinja is a minijinja template; {% include \"sections\" %} puts the generated
  sections in. Any other file is a hand-written head: it is kept to the byte and the sections are appended.

HAPROXY
    haproxy -W -S /run/haproxy-master.sock -f /etc/haproxy/haproxy.cfg -f /etc/haproxy/nodegate.cfg
  The first file is yours and is never written. With that, --master-socket is all that is needed; no stats socket has to
  be configured.

CREDENTIALS
  The Pod's service account if there is one, else the file that KUBECONFIG names. They are read anew at each connection.
  Credential plugins (exec) are run.

ENVIRONMENT
  A variable stands in for the option that names it; the option wins. Only credentials have others: KUBECONFIG, HOME,
  and the KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of a pod.

EXAMPLES
  nodegate-haproxy --print                                            # what would be written, to stdout
  nodegate-haproxy --diff                                             # what would change in the file
  nodegate-haproxy --explain                                          # who is published where, who is not and why
  nodegate-haproxy --master-socket /run/haproxy-master.sock           # states and reloads through one socket
  nodegate-haproxy --once --reload-command 'systemctl reload haproxy' # for cron
  nodegate-haproxy --prefix east                                      # a second cluster: /etc/haproxy/east.cfg
  nodegate-haproxy --before none --config /etc/haproxy/haproxy.cfg --template /etc/haproxy/haproxy.cfg.TEMPLATE
                                              # all that HAProxy loads, below a head of your own

EXIT CODES
  0  done, or ended by SIGTERM or SIGINT
  1  could not start, or --once, --print, --diff or --explain could not do their work
  2  a setting is wrong; every wrong one is named on a line of its own"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, and one at a time")]
pub(crate) struct Args {
    /// File to write, which HAProxy loads (-f) after those of --before. A file that another program or a
    /// person wrote is an error. Without it: /etc/haproxy/PREFIX.cfg
    #[arg(long, env = "NODEGATE_HAPROXY_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The operator's own configuration: files or directories that HAProxy loads (-f) before --config. They
    /// are only read; their global and defaults sections apply to the generated ones, too. "none" if HAProxy
    /// loads --config alone
    #[arg(long, env = "NODEGATE_HAPROXY_BEFORE", value_name = "FILES", value_delimiter = ',')]
    #[arg(default_value = "/etc/haproxy/haproxy.cfg")]
    pub(crate) before: Vec<PathBuf>,

    /// Prefix of the names of all generated sections and files. Two clusters can share one HAProxy with two
    /// prefixes
    #[arg(long, env = "NODEGATE_HAPROXY_PREFIX", value_name = "WORD", default_value = DEFAULT_PREFIX)]
    #[arg(value_parser = prefix)]
    pub(crate) prefix: String,

    /// Template or hand-written head for --config. Without it: no head, or with --before none a small one
    /// with user, group and chroot
    #[arg(long, env = "NODEGATE_HAPROXY_TEMPLATE", value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,

    /// Directory for the state between two runs: states of servers, marks, a lock, a copy of the replaced
    /// configuration. Created if it does not exist
    #[arg(long, env = "NODEGATE_HAPROXY_STATE_DIR", value_name = "DIRECTORY")]
    #[arg(default_value = "/var/lib/nodegate-haproxy")]
    pub(crate) state_dir: PathBuf,

    /// File for the states of servers, which HAProxy's next process reads; "none" writes no such file.
    /// Without it: PREFIX.servers in --state-dir
    #[arg(long, env = "NODEGATE_HAPROXY_STATE_FILE", value_name = "FILE")]
    pub(crate) state_file: Option<String>,

    /// Pause while this file exists: no write, no reload, no command to HAProxy
    #[arg(long, env = "NODEGATE_HAPROXY_PAUSE_FILE", value_name = "FILE")]
    #[arg(default_value = "/etc/nodegate-haproxy/pause")]
    pub(crate) pause_file: PathBuf,

    /// HAProxy's program, for haproxy -c
    #[arg(long, env = "NODEGATE_HAPROXY_BINARY", value_name = "FILE", default_value = "haproxy")]
    pub(crate) haproxy: PathBuf,

    /// HAProxy's master socket (haproxy -W -S): reloads, and states unless there is a --runtime-socket
    #[arg(long, env = "NODEGATE_HAPROXY_MASTER_SOCKET", value_name = "SOCKET")]
    pub(crate) master_socket: Option<PathBuf>,

    /// HAProxy's stats socket with "level admin"
    #[arg(long, env = "NODEGATE_HAPROXY_RUNTIME_SOCKET", value_name = "SOCKET")]
    pub(crate) runtime_socket: Option<PathBuf>,

    /// Command that reloads HAProxy without a master socket; words are split at spaces, and exit status 0 is
    /// success
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_COMMAND", value_name = "COMMAND")]
    pub(crate) reload_command: Option<String>,

    /// Longest time for a reload
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "30s", value_parser = duration(RELOAD_TIMEOUT))]
    pub(crate) reload_timeout: Duration,

    /// Only Services with these labels
    #[arg(long, env = "NODEGATE_HAPROXY_SERVICE_SELECTOR", value_name = "SELECTOR", value_parser = selector)]
    pub(crate) service_selector: Option<String>,

    /// Only Nodes with these labels
    #[arg(long, env = "NODEGATE_HAPROXY_NODE_SELECTOR", value_name = "SELECTOR", value_parser = selector)]
    pub(crate) node_selector: Option<String>,

    /// Services to publish. load-balancers: those of that type, and those of type NodePort with
    /// nodegate.io/haproxy-publish: true; all: all that have ports on nodes; annotated: those with
    /// nodegate.io/haproxy-publish: true, or with the class of --load-balancer-class
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_PUBLISH",
        value_name = "load-balancers|all|annotated",
        default_value_t
    )]
    #[arg(value_parser = choice(&[
        ("load-balancers", Publish::LoadBalancers), ("all", Publish::All), ("annotated", Publish::Annotated),
    ]))]
    pub(crate) publish: Publish,

    /// The loadBalancerClass to serve: of the Services that can have one, only those with this class are
    /// published. Without this setting: only those without a class
    #[arg(long, env = "NODEGATE_HAPROXY_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = class)]
    pub(crate) load_balancer_class: Option<String>,

    /// Signals that drain a node, by the rules of the agent's --drain-on: unschedulable, deleting,
    /// taint:<key>, taint:<key>=<value>, taint:<key>:<effect>, taint:<prefix>*, label:<key>,
    /// label:<key>=<value>, annotation:<key>, annotation:<key>=<value>, condition:<Type>,
    /// condition:<Type>=<status>, lifecycle; or none alone
    #[arg(long, env = "NODEGATE_HAPROXY_DRAIN_ON", value_name = "LIST", default_value_t)]
    pub(crate) drain_on: DrainSignals,

    /// Only Services of these namespaces
    #[arg(long, env = "NODEGATE_HAPROXY_NAMESPACES", value_name = "LIST", value_parser = namespaces)]
    pub(crate) namespaces: Option<List<String>>,

    /// Addresses of the frontends; empty means all of both families. An address with a name (web=10.0.0.100)
    /// is for Services with the annotation nodegate.io/haproxy-bind: web; if all have names, Services without
    /// the annotation get the first
    #[arg(long, env = "NODEGATE_HAPROXY_BIND", value_name = "[NAME=]IPS")]
    #[arg(value_parser = List::<Bind>::of("IP addresses, each with a name or without, e.g. 10.0.0.5,web=10.0.0.100"))]
    pub(crate) bind: Option<List<Bind>>,

    /// Named addresses of --bind that a namespace may use; * stands for all. Without this setting: every
    /// namespace may use all
    #[arg(long, env = "NODEGATE_HAPROXY_BIND_ALLOW", value_name = "NAMESPACE=NAME,…")]
    #[arg(value_parser = List::<BindGrant>::of("namespaces with names of addresses, e.g. shop=web,*=db"))]
    pub(crate) bind_allow: Option<List<BindGrant>>,

    /// Addresses or host names that clients use: they become status.loadBalancer.ingress of each published
    /// load-balancer Service, and a Service that can't be published gets an Event that says why. NAME=ADDRESS
    /// is for Services that listen on the --bind address of that name; those without such an entry get the
    /// --bind address itself. The account needs more rights: haproxy-kubeconfig --publish-status. Without this
    /// setting, nothing is written to the cluster
    #[arg(long, env = "NODEGATE_HAPROXY_PUBLISH_STATUS", value_name = "[NAME=]ADDRESSES")]
    #[arg(value_parser = status_addresses)]
    pub(crate) publish_status: Option<List<StatusAddress>>,

    /// Lease of --publish-status: of all processes with the same Lease, one at a time writes. Its name is also
    /// the field manager of the statuses, so give each pair of one cluster a name of its own. Without a namespace: that of this Pod, or
    /// outside of a Pod "nodegate"
    #[arg(long, env = "NODEGATE_HAPROXY_LEASE", value_name = "[NAMESPACE/]NAME")]
    #[arg(default_value = "nodegate-haproxy", value_parser = lease)]
    pub(crate) lease: LeaseName,

    /// Ports that a namespace may open; * stands for all. Without this setting: every namespace may open all
    #[arg(long, env = "NODEGATE_HAPROXY_PORTS", value_name = "NAMESPACE=RANGE,…")]
    #[arg(value_parser = List::<PortGrant>::of("namespaces with ports, e.g. shop=443,shop=8000-8099,*=30000-32767"))]
    pub(crate) ports: Option<List<PortGrant>>,

    /// Ports that no Service gets, besides those that your own configuration or the template binds
    #[arg(long, env = "NODEGATE_HAPROXY_RESERVED_PORTS", value_name = "LIST")]
    #[arg(default_value_t = List(PlanPolicy::default().reserved.into_iter().collect()))]
    #[arg(value_parser = List::<u16>::of("ports, e.g. 22,8404"))]
    pub(crate) reserved_ports: List<u16>,

    /// Mode of Services without the annotation
    #[arg(long, env = "NODEGATE_HAPROXY_MODE", value_name = "tcp|http", default_value_t)]
    pub(crate) mode: Mode,

    /// Balancing algorithm of Services without the annotation
    #[arg(long, env = "NODEGATE_HAPROXY_BALANCE", value_name = "NAME", default_value_t)]
    pub(crate) balance: Balance,

    /// Types of node addresses to use, the preferred type first
    #[arg(long, env = "NODEGATE_HAPROXY_ADDRESS_TYPES", value_name = "LIST")]
    #[arg(default_value_t = List(PlanPolicy::default().address_types), value_parser = address_types)]
    pub(crate) address_types: List<String>,

    /// nodegate's port on the nodes
    #[arg(long, env = "NODEGATE_HAPROXY_CHECK_PORT", value_name = "PORT")]
    #[arg(default_value_t = PlanPolicy::default().check.port)]
    #[arg(value_parser = number(1..=u16::MAX, "takes a port from 1 to 65535"))]
    pub(crate) check_port: u16,

    /// Path of the health check; with drain=404 HAProxy itself sends a drained node nothing new, and keeps
    /// its open connections
    #[arg(long, env = "NODEGATE_HAPROXY_CHECK_PATH", value_name = "PATH")]
    #[arg(default_value_t = PlanPolicy::default().check.path, value_parser = check_path)]
    pub(crate) check_path: String,

    /// The time between two checks of a node
    #[arg(long, env = "NODEGATE_HAPROXY_CHECK_INTERVAL", value_name = "DURATION")]
    #[arg(default_value = shown(Duration::from_millis(PlanPolicy::default().check.inter_ms)))]
    #[arg(value_parser = duration(CHECK_INTERVAL))]
    pub(crate) check_interval: Duration,

    /// nodegate's agent-check port on the nodes; 0 turns the agent-check off
    #[arg(long, env = "NODEGATE_HAPROXY_AGENT_CHECK_PORT", value_name = "PORT")]
    #[arg(default_value_t = PlanPolicy::default().check.agent_port.unwrap_or_default())]
    #[arg(value_parser = number(0..=u16::MAX, "takes a port from 1 to 65535, or 0 for none"))]
    pub(crate) agent_check_port: u16,

    /// Check of a node's endpoints for a Service with externalTrafficPolicy: Local. auto: kube-proxy at the
    /// healthCheckNodePort, nodegate's /services/… where there is none; nodegate: always the latter
    #[arg(long, env = "NODEGATE_HAPROXY_LOCAL_CHECK", value_name = "auto|nodegate", default_value_t)]
    #[arg(value_parser = choice(&[("auto", LocalServiceCheck::Auto), ("nodegate", LocalServiceCheck::Nodegate)]))]
    pub(crate) local_check: LocalServiceCheck,

    /// Removal limit: the percentage of each Service's servers, or of the Services, that may vanish at once;
    /// the rest stays
    #[arg(long, env = "NODEGATE_HAPROXY_MAX_REMOVAL", value_name = "PERCENT")]
    #[arg(default_value_t = PlanPolicy::default().max_removal, value_parser = max_removal)]
    pub(crate) max_removal: MaxRemoval,

    /// Nodes that serve when none is Ready. all: those that pass their check, drained or not, and if none
    /// does any; drained: the former alone; none: connections are refused
    #[arg(long, env = "NODEGATE_HAPROXY_LAST_RESORT", value_name = "all|drained|none", default_value_t)]
    #[arg(value_parser = choice(&[("all", LastResort::All), ("drained", LastResort::Drained), ("none", LastResort::None)]))]
    pub(crate) last_resort: LastResort,

    /// Address and port of /metrics, /livez and /readyz; "none" opens none
    #[arg(long, env = "NODEGATE_HAPROXY_LISTEN", value_name = "IP:PORT")]
    #[arg(default_value = "127.0.0.1:25003", value_parser = listen)]
    // In full, as clap takes a plain Option for a setting without a value.
    pub(crate) listen: std::option::Option<SocketAddr>,

    /// Render once to stdout and exit; nothing is written or reloaded
    #[arg(long, conflicts_with_all = ["once", "diff", "explain"])]
    pub(crate) print: bool,

    /// Show the pending changes of the --config file, as diff -u does, and exit; print nothing without
    /// changes
    #[arg(long, conflicts_with_all = ["once", "explain"])]
    pub(crate) diff: bool,

    /// Show the published Services with their ports, the unpublished ones with the reason, and the nodes, and
    /// exit
    #[arg(long, conflicts_with = "once")]
    pub(crate) explain: bool,

    /// Apply once and exit
    #[arg(long)]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) log: LogSettings,
}

fn prefix(value: &str) -> Result<String, &'static str> {
    let taken = || value.to_owned();
    is_prefix(value).then(taken).ok_or("takes at most 32 lower-case letters, digits and -, e.g. nodegate")
}

fn selector(value: &str) -> Result<String, &'static str> {
    if value.len() <= 1000 && !value.chars().any(char::is_control) {
        Ok(value.to_owned())
    } else {
        Err("takes a label selector, e.g. team=web,tier!=test")
    }
}

fn class(value: &str) -> Result<String, &'static str> {
    let name = |text: &str| {
        !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
    };
    let (prefix, last) = value.split_once('/').unwrap_or(("x", value));
    if value.len() <= 317 && name(prefix) && name(last) {
        Ok(value.to_owned())
    } else {
        Err("takes a loadBalancerClass, e.g. example.com/haproxy")
    }
}

fn namespaces(value: &str) -> Result<List<String>, String> {
    let names = List::<String>::of("namespaces")(value)?;
    if names.0.iter().all(|name| is_dns_name(name)) && names.0.len() <= MAX_NAMESPACES {
        Ok(names)
    } else {
        Err(format!("takes at most {MAX_NAMESPACES} names of namespaces"))
    }
}

fn address_types(value: &str) -> Result<List<String>, &'static str> {
    const TAKES: &str = "takes a list of InternalIP and ExternalIP";
    let types = List::<String>::of("types of node addresses")(value).map_err(|_| TAKES)?;
    let known = |kind: &String| matches!(kind.as_str(), "InternalIP" | "ExternalIP");
    if types.0.is_empty() || !types.0.iter().all(known) { Err(TAKES) } else { Ok(types) }
}

fn status_addresses(value: &str) -> Result<List<StatusAddress>, String> {
    const WHAT: &str = "IP addresses and host names, each with the name of a --bind address or without, \
        e.g. 203.0.113.10,web=lb.example.com";
    let list = List::<StatusAddress>::of(WHAT)(value)?;
    let most = MAX_STATUS_ADDRESSES;
    if list.0.len() <= most { Ok(list) } else { Err(format!("takes at most {most} addresses")) }
}

fn lease(value: &str) -> Result<LeaseName, &'static str> {
    value.parse()
}

fn check_path(value: &str) -> Result<String, &'static str> {
    let plain =
        value.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'"' | b'\'' | b'\\' | b'#' | b'$'));
    if value.starts_with('/') && plain && value.len() <= 1000 {
        Ok(value.to_owned())
    } else {
        Err("takes a path that begins with / and holds no space, quote, backslash, # or $")
    }
}

fn max_removal(value: &str) -> Result<MaxRemoval, &'static str> {
    match value.trim_end_matches('%').parse() {
        Ok(percent @ 0..=100) => Ok(MaxRemoval(percent)),
        _ => Err("takes a percentage from 0 to 100"),
    }
}

fn listen(value: &str) -> Result<Option<SocketAddr>, &'static str> {
    match value {
        "none" => Ok(None),
        _ => {
            value.parse().map(Some).map_err(|_| "takes an address and a port, e.g. 127.0.0.1:25003, or none")
        }
    }
}
