//! The command line and the environment: each setting of the agent and of its commands is declared once,
//! here. [`crate::settings`] holds the rules that concern several settings.

use crate::assembly::STARTUP_GRACE;
use clap::{Parser, Subcommand};
use nodegate_local_checks::{ApiServerUrl, HostRoot, ReadyzParts};
use nodegate_program::{AGENT_CHECK_PORT, HTTP_PORT, List, LogSettings, choice, duration, number, shown};
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::probers::{FALL, Goal, RISE};
use nodegate_readiness::{ConditionRules, DrainSignals, OnStale, OnUnknown, Policy, ServiceName};
use nodegate_server::{Limits, Networks};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The range of the settings that delay a start or an end.
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_mins(5);
/// The range of `--stale-after`. A shorter time would end before the agent has asked the API server again.
const STALE_AFTER: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_hours(1);
/// The longest `--unknown-after`.
const UNKNOWN_AFTER: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// The variables with which a container's `nodegate status` finds the agent beside it.
pub(crate) const LISTEN_PORT: &str = "LISTEN_PORT";
pub(crate) const LISTEN_ADDRESS: &str = "NODEGATE_LISTEN_ADDRESS";
pub(crate) const METRICS_ADDR: &str = "NODEGATE_METRICS_ADDR";

#[derive(Debug, Parser)]
#[command(
    name = "nodegate",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Commands (without one, the agent runs)",
    about = "Answers load balancers whether this Kubernetes node may get new traffic now",
    long_about = "nodegate runs on every node and answers one question for load balancers that live outside the cluster: \
may this node get new traffic now?\n\n\
It watches the node's own Node object and answers /health from memory: 200 while the node is Ready and not being \
drained, else 503 with the reason. No probe costs an API request. When the API server can't be reached for longer than \
--stale-after, the cache is stale and nodegate fails open (see --on-stale), so that a control-plane outage never \
empties the pool.\n\n\
nodegate status asks an agent that runs, and tells what it says by its exit code, too. nodegate wait ends when every load \
balancer has been told that the node is out, so that a drain loses nothing.",
    after_long_help = "\
PATHS
  /health                    200 or 503 and JSON; ?check=a,b names checks, ?drain=<code> asks for a third state
  /nodecheck                 OK or Down, for balancers that match a body
  /nodename                  Node: \"<name>\"
  /services/<ns>/<name>      what kube-proxy's healthCheckNodePort answers; ?drain=<code> heeds a cordon, too
  /status.json               everything known
  /drain.json                how far a drain has come, in short
  /wait                      answers when all balancers know that the node is out, for a preStop hook;
                             ?for=told|released|ready, ?timeout=<s> (20, at most 600), ?settle=<s>
  /metrics                   Prometheus or OpenMetrics text
  /livez, /readyz            nodegate itself, for the kubelet

CREDENTIALS
  The Pod's service account if there is one, else the file that KUBECONFIG names. They are read anew at each connection.
  Credential plugins (exec) are not run: the image has no programs.

ENVIRONMENT
  A variable stands in for the option that names it; the option wins. Only credentials have others: KUBECONFIG, HOME,
  and the KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of a pod.

EXAMPLES
  nodegate --node-name worker-1                          # with KUBECONFIG set
  nodegate --on-stale keep-drain --stale-after 30s       # a drained node stays out while the API server is upgraded
  nodegate --default-checks node_ready,okd_router_1936   # in the pool only while the router answers, too
  nodegate --http-check nginx=http://127.0.0.1:10254/healthz   # a check of your own, asked for as http:nginx
  nodegate status                                        # what the agent on this machine says
  nodegate wait --for told                               # until all balancers know that the node is out

EXIT CODES
  0  ended by SIGTERM or SIGINT
  1  could not start, e.g. the port is taken; or a second signal ended a shutdown at once
  2  a setting is wrong; every wrong one is named on a line of its own
  nodegate status ends with the verdict: 0 to 2, and 3 if nothing is known; nodegate wait with 0, 1 if it took too long,
  and 3 if it can't be known"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// The name of the Node that this agent runs on: the Downward API field spec.nodeName. Without it every
    /// /health answers 500
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = node_name)]
    pub(crate) node_name: Option<String>,

    /// The TCP port of the HTTP server
    #[arg(long, env = LISTEN_PORT, value_name = "PORT")]
    #[arg(default_value_t = HTTP_PORT)]
    #[arg(value_parser = number(0..=u16::MAX, "takes a port from 1 to 65535, or 0 for any free one"))]
    pub(crate) listen_port: u16,

    /// The address of the HTTP server; "::" means all addresses of both families
    #[arg(long, env = LISTEN_ADDRESS, value_name = "IP")]
    #[arg(default_value_t = Ipv6Addr::UNSPECIFIED.into(), value_parser = listen_address)]
    pub(crate) listen_address: IpAddr,

    /// The TCP port for HAProxy's agent-check, on the same address; 0 turns it off
    #[arg(long, env = "NODEGATE_AGENT_CHECK_PORT", value_name = "PORT")]
    #[arg(default_value_t = AGENT_CHECK_PORT)]
    #[arg(value_parser = number(0..=u16::MAX, "takes a port from 1 to 65535, or 0 for none"))]
    pub(crate) agent_check_port: u16,

    /// Clients that get an answer on --listen-port and on --agent-check-port: networks and addresses of both
    /// families, e.g. 10.0.0.0/24,192.168.1.7; empty means all. The agent closes other connections before it
    /// reads a byte. It always answers the node itself, where the kubelet's probes come from
    #[arg(long, env = "NODEGATE_ALLOW_FROM", value_name = "LIST")]
    pub(crate) allow_from: Option<Networks>,

    /// Accept a PROXY protocol header, version 1 or 2, on --listen-port, as an AWS NLB sends with its health
    /// checks: true or false. The agent skips the header and ignores the address in it
    #[arg(long, env = "NODEGATE_ACCEPT_PROXY", value_name = "true|false", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, value_parser = choice(&[("true", true), ("false", false)]))]
    pub(crate) accept_proxy: bool,

    /// Clients whose probes count for "told" (nodegate wait): networks and addresses as in --allow-from;
    /// empty means all clients, monitors included
    #[arg(long, env = "NODEGATE_BALANCERS", value_name = "LIST")]
    pub(crate) balancers: Option<Networks>,

    /// Answers in a row that make a load balancer take a server out: the largest `fall` of all balancers. A
    /// prober is told after so many answers, once it has probed again
    #[arg(long, env = "NODEGATE_TOLD_FALL", value_name = "COUNT")]
    #[arg(default_value_t = FALL, value_parser = number(1..=1000_u32, TIMES))]
    pub(crate) told_fall: u32,

    /// Answers in a row that make a load balancer bring a server back: the largest `rise` of all balancers
    #[arg(long, env = "NODEGATE_TOLD_RISE", value_name = "COUNT")]
    #[arg(default_value_t = RISE, value_parser = number(1..=1000_u32, TIMES))]
    pub(crate) told_rise: u32,

    /// Interval at which each load balancer probes: the longest of all balancers. Told then takes (fall + 1)
    /// intervals: a client at a balancer's address can't shorten that, and the wait covers each of several
    /// balancers behind one address. If not set, the agent takes the longest mean of a minute within the last
    /// hour, for each prober by itself
    #[arg(long, env = "NODEGATE_TOLD_INTERVAL", value_name = "DURATION", value_parser = duration(INTERVAL))]
    pub(crate) told_interval: Option<Duration>,

    /// Least number of regular probers; with fewer, `told` is unknown. If not set, one is enough
    #[arg(long, env = "NODEGATE_TOLD_PROBERS", value_name = "COUNT", value_parser = number(1..=256_usize, PROBERS))]
    pub(crate) told_probers: Option<usize>,

    /// Ports of this host at which clients' traffic arrives, such as those of an ingress on the host's
    /// network: nodegate wait --for released waits until no connection to them is left; up to 16
    #[arg(long, env = "NODEGATE_TRAFFIC_PORT", value_name = "LIST", default_value_t)]
    #[arg(value_parser = traffic_ports, hide_default_value = true)]
    pub(crate) traffic_port: List<u16>,

    /// A second address of the HTTP server; then only this one answers /metrics, /status.json and / (the
    /// page). It answers all other paths, too. --allow-from does not apply to it
    #[arg(long, env = METRICS_ADDR, value_name = "IP:PORT", value_parser = metrics_addr)]
    pub(crate) metrics_addr: Option<SocketAddr>,

    /// Most connections at a time, for each port by itself; above that the agent closes an idle one of the
    /// client with the most
    #[arg(long, env = "NODEGATE_MAX_CONNECTIONS", value_name = "COUNT")]
    #[arg(default_value_t = Limits::default().connections)]
    #[arg(value_parser = number(1..=100_000_usize, "takes a number from 1 to 100000"))]
    pub(crate) max_connections: usize,

    /// Longest time without proof that the cache matches the API server; after it, the cache is stale
    #[arg(long, env = "NODEGATE_STALE_AFTER", value_name = "DURATION")]
    #[arg(default_value = shown(Policy::default().stale_after), value_parser = duration(STALE_AFTER))]
    pub(crate) stale_after: Duration,

    /// Answer while the cache is stale: ready fails open; keep-drain fails open but holds the last known
    /// drain signal; not-ready fails closed
    #[arg(long, env = "NODEGATE_ON_STALE", value_name = "ready|keep-drain|not-ready", default_value_t)]
    pub(crate) on_stale: OnStale,

    /// Verdict when the control plane has lost the kubelet (Ready=Unknown): local keeps the node in the pool
    /// while the kubelet's health endpoint on this node answers (check kubelet; see --unknown-after);
    /// not-ready takes the node out at once
    #[arg(long, env = "NODEGATE_ON_UNKNOWN", value_name = "local|not-ready", default_value_t)]
    pub(crate) on_unknown: OnUnknown,

    /// With --on-unknown=local: the age of the taint node.kubernetes.io/unreachable:NoExecute at which the
    /// node leaves the pool, because Kubernetes then replaces its pods elsewhere
    #[arg(long, env = "NODEGATE_UNKNOWN_AFTER", value_name = "DURATION")]
    #[arg(default_value = shown(Policy::default().unknown_after), value_parser = duration(UNKNOWN_AFTER))]
    pub(crate) unknown_after: Duration,

    /// Directory for the last known facts of the node, a file of a few kB: an agent that restarts while no
    /// API server answers reads them. It must exist, be writable, and belong to this agent alone
    #[arg(long, env = "NODEGATE_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Signals that drain the node: unschedulable, deleting, taint:<key>, taint:<key>=<value>,
    /// taint:<key>:<effect>, taint:<prefix>*, label:<key>, label:<key>=<value>, annotation:<key>,
    /// annotation:<key>=<value>, condition:<Type>, condition:<Type>=<status>, lifecycle (short
    /// for the conditions of a drain, a graceful shutdown or a maintenance in progress); or none alone
    #[arg(long, env = "NODEGATE_DRAIN_ON", value_name = "LIST", default_value_t)]
    pub(crate) drain_on: DrainSignals,

    /// Time to wait for the API server's first answer before listening without it, if an agent of this boot
    /// answered within the last minute; otherwise the agent waits for --stale-after, at most 20 s
    #[arg(long, env = "NODEGATE_STARTUP_GRACE", value_name = "DURATION")]
    #[arg(default_value = shown(STARTUP_GRACE), value_parser = duration(GRACE))]
    pub(crate) startup_grace: Duration,

    /// Time for requests in flight after SIGTERM
    #[arg(long, env = "NODEGATE_SHUTDOWN_GRACE", value_name = "DURATION")]
    #[arg(default_value = shown(Limits::default().drain_timeout), value_parser = duration(GRACE))]
    pub(crate) shutdown_grace: Duration,

    /// Checks of a request that names none
    #[arg(long, env = "NODEGATE_DEFAULT_CHECKS", value_name = "LIST", default_value = NODE_READY)]
    pub(crate) default_checks: String,

    /// Local checks that run from the start and that the alerts cover; others start when a request first
    /// names them, if --on-demand allows it
    #[arg(long, env = "NODEGATE_BACKGROUND_CHECKS", value_name = "LIST")]
    pub(crate) background_checks: Option<String>,

    /// Other local checks that a request may start by naming them: all, none or a list. The rest fail with
    /// "Not enabled"
    #[arg(long, env = "NODEGATE_ON_DEMAND", value_name = "all|none|LIST", default_value = "all")]
    pub(crate) on_demand: String,

    /// Settings of a local check: NAME:key=value,… with interval, timeout, rise, fall and the check's own
    /// keys; may be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_CHECK_SETTINGS", value_name = "NAME:SETTINGS", value_delimiter = ';')]
    pub(crate) check_settings: Vec<String>,

    /// Service whose ready endpoints on this node the agent counts, as namespace/name; may be repeated, and
    /// the environment variable takes several separated by ",". Provides /services/<namespace>/<name> and the
    /// check service:<namespace>/<name>; each needs a watch, and the right to watch `EndpointSlices` in its
    /// namespace
    #[arg(long, env = "NODEGATE_WATCH_SERVICE", value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub(crate) watch_service: Vec<ServiceName>,

    /// A check of your own that passes while the URL answers 2xx; requests name it with "http:" before the
    /// name. May be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_HTTP_CHECK", value_name = "NAME=URL", value_delimiter = ';')]
    pub(crate) http_check: Vec<String>,

    /// A check of your own that passes while the port accepts connections; requests name it with "tcp:"
    /// before the name. May be repeated, and the environment variable takes several separated by ";"
    #[arg(long, env = "NODEGATE_TCP_CHECK", value_name = "NAME=HOST:PORT", value_delimiter = ';')]
    pub(crate) tcp_check: Vec<String>,

    /// URL of this node's own API server, for the check `apiserver`, which a balancer in front of the API servers
    /// asks as /health?check=apiserver. Its certificate must be of the cluster's CA and for the name
    /// kubernetes.default.svc
    #[arg(long, env = "NODEGATE_APISERVER", value_name = "URL", default_value_t)]
    pub(crate) apiserver: ApiServerUrl,

    /// Parts of the API server's /readyz that do not count for the check `apiserver`, by their names, e.g.
    /// etcd,etcd-readiness; empty means that all count
    #[arg(long, env = "NODEGATE_APISERVER_EXCLUDE", value_name = "LIST", default_value_t)]
    #[arg(hide_default_value = true)]
    pub(crate) apiserver_exclude: ReadyzParts,

    /// Directory of the host's files; in a container, the path at which the host's / is mounted
    #[arg(long, env = "NODEGATE_HOST_ROOT", value_name = "DIR", default_value_t, value_parser = host_root)]
    pub(crate) host_root: HostRoot,

    /// Node conditions that fail `custom_conditions`: TYPE fails when True, TYPE=STATUS when it has that
    /// status
    #[arg(long, env = "NODEGATE_CONDITIONS", value_name = "LIST", default_value_t)]
    pub(crate) conditions: ConditionRules,

    #[command(flatten)]
    pub(crate) log: LogSettings,
}

/// The commands besides running the agent.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Status(StatusArgs),
    Wait(WaitArgs),
}

/// Shows the verdict of a running agent; the exit code is the verdict
#[derive(Debug, clap::Args)]
#[command(
    long_about = "nodegate status asks a running agent what it says of its node, and shows it: the verdict and why, how far \
the cache can be trusted, each check, and the last flips. The exit code is the verdict, as monitoring plugins have it, so \
that scripts, keepalived and exec probes need no curl and no jq.",
    after_long_help = "\
THE AGENT ON THIS MACHINE
  is asked where it listens by its own settings, if they are in the environment: NODEGATE_METRICS_ADDR,
  else NODEGATE_LISTEN_ADDRESS and LISTEN_PORT, else 127.0.0.1 and 25001. No other setting matters.

EXAMPLES
  nodegate status                              # the agent on this machine; in a Pod: /nodegate status
  nodegate status --addr 10.0.0.11             # another one
  nodegate status --check node_ready,kubelet   # these checks instead of the default ones
  nodegate status -o json | jq .cache          # the agent's /status.json as it is

EXIT CODES (those of monitoring plugins)
  0  Ready: OK
  1  Draining: WARNING
  2  NotReady: CRITICAL
  3  UNKNOWN: no answer of an agent, one that does not know its node, or wrong arguments
  While the cache is stale it is the code of the answer that balancers get, by --on-stale. The text calls it a guess and
  says what was known before; as data: -o json | jq .last_known"
)]
pub(crate) struct StatusArgs {
    /// Agent to query: HOST, HOST:PORT or http://HOST:PORT, where HOST is a name or an address. Without a
    /// port: that of the agent on this machine
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Option<String>,

    /// Output format: text or json. Text has colour on a terminal, unless `NO_COLOR` is set
    #[arg(short, long, value_name = "text|json", default_value = "text")]
    #[arg(value_parser = choice(&[("text", StatusOutput::Text), ("json", StatusOutput::Json)]))]
    pub(crate) output: StatusOutput,

    /// Checks to query instead of the default ones, as in /health?check=; the agent starts those that don't
    /// run
    #[arg(long, value_name = "LIST")]
    pub(crate) check: Option<String>,

    /// Timeout of the whole command
    #[arg(long, value_name = "DURATION")]
    #[arg(default_value = "2s", value_parser = duration(Duration::from_millis(1)..=Duration::from_hours(1)))]
    pub(crate) timeout: Duration,
}

/// Waits until every load balancer has been told that the node is out, or back
#[derive(Debug, clap::Args)]
#[command(
    long_about = "nodegate wait asks a running agent who asks it and what each was told, and ends when what is waited for has \
come: that every load balancer knows that the node is out of the pool, that besides no session is left on it, or that all \
know that it is back. It goes between kubectl cordon and kubectl drain, in place of a sleep that is too long or too short. \
It changes nothing.\n\n\
A balancer counts as told when it has had the answer so often in a row that it must have acted on it (--fall, --rise), \
has asked once more, since who asks again has digested the answer before, and all of that has taken as long as it takes at its \
interval. All who go on asking are waited for, and those who fall \
silent until they are gone, ten of their intervals and half a minute later.",
    after_long_help = "\
WHAT CAN'T BE KNOWN
  An agent that has just started does not know yet who asks: for 90 s nothing is known. So it is while
  the cache is stale, and where nobody asks. Several balancers behind one address look like one that
  asks more often, unless they name themselves (HAProxy: http-check send-state, agent-send); --interval
  says how often each of them asks. Whether sessions are left is known where --traffic-port is set.

THE AGENT ON THIS MACHINE
  is found as nodegate status finds it; in its Pod: kubectl -n nodegate exec <pod> -- /nodegate wait

EXAMPLES
  kubectl cordon worker-1 && nodegate wait --addr 10.0.0.11 && kubectl drain worker-1 --ignore-daemonsets
  nodegate wait --addr 10.0.0.11 --node worker-1   # no other node's agent is believed
  nodegate wait --probers 2              # two balancers must have been told
  nodegate wait --fall 5 --interval 10s  # as they are set, behind one address
  nodegate wait --for released           # an ingress on the host's network has no connection left
  nodegate wait --for ready              # after kubectl uncordon

EXIT CODES
  0  it has come
  1  it has not come in time; the last line names who was waited for
  3  it can't be known, and the last line says why; or wrong arguments"
)]
pub(crate) struct WaitArgs {
    /// State to wait for: told, every balancer knows that the node is out; released, and no session is left;
    /// ready, every balancer knows that it is back
    #[arg(long = "for", value_name = "told|released|ready", default_value = "told")]
    #[arg(value_parser = choice(&[("told", Goal::Told), ("released", Goal::Released), ("ready", Goal::Ready)]))]
    pub(crate) goal: Goal,

    /// Agent to query: HOST, HOST:PORT or http://HOST:PORT, where HOST is a name or an address. Without a
    /// port: that of the agent on this machine
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Option<String>,

    /// Name of the Node whose agent must answer; the answer of another Node's agent is an error. Without it,
    /// any agent will do
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    pub(crate) node: Option<String>,

    /// UID of --node, which distinguishes it from a node of another cluster (kubectl get node NAME -o
    /// jsonpath={.metadata.uid})
    #[arg(long, value_name = "UID")]
    pub(crate) node_uid: Option<String>,

    /// Answers in a row that take a server out: the largest `fall` of all balancers. If not set, --told-fall
    /// of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub(crate) fall: Option<u32>,

    /// Answers in a row that bring a server back: the largest `rise`. If not set, --told-rise of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub(crate) rise: Option<u32>,

    /// Least number of regular probers; with fewer, `told` is unknown. If not set, --told-probers of the
    /// agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=256_usize, PROBERS))]
    pub(crate) probers: Option<usize>,

    /// Interval at which each balancer probes, if several share an address and don't name themselves. If not
    /// set, --told-interval of the agent
    #[arg(long, value_name = "DURATION", value_parser = duration(INTERVAL))]
    pub(crate) interval: Option<Duration>,

    /// Longest time to wait; if not set, 2 min, or as long as the slowest balancer needs
    #[arg(long, value_name = "DURATION")]
    #[arg(value_parser = duration(Duration::ZERO..=Duration::from_hours(24)))]
    pub(crate) timeout: Option<Duration>,
}

const TIMES: &str = "takes a number from 1 to 1000";
const PROBERS: &str = "takes a number from 1 to 256";
/// The range of load balancers' intervals.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);

/// The output formats of `nodegate status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusOutput {
    Text,
    Json,
}

/// Parses the name of a Node, a DNS subdomain (RFC 1123). Any other text would change the meaning of the
/// field selector.
fn node_name(value: &str) -> Result<String, &'static str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let valid = value.len() <= 253
        && value.chars().all(allowed)
        && ends_well(value.chars().next())
        && ends_well(value.chars().last());
    if valid {
        Ok(value.to_owned())
    } else {
        Err("takes the name of a Node: lower-case letters, digits, '-' and '.', at most 253")
    }
}

fn listen_address(value: &str) -> Result<IpAddr, &'static str> {
    value.parse().map_err(|_| "takes an IP address, e.g. ::, 0.0.0.0 or 10.0.0.7")
}

fn metrics_addr(value: &str) -> Result<SocketAddr, &'static str> {
    value.parse().map_err(|_| "takes an IP address and a port, e.g. 127.0.0.1:25004 or [::]:25004")
}

fn host_root(value: &str) -> Result<HostRoot, &'static str> {
    HostRoot::new(value)
}

fn traffic_ports(value: &str) -> Result<List<u16>, String> {
    const MOST: usize = 16;
    let takes = || format!("takes a list of up to {MOST} ports");
    let list = List::<u16>::of("ports")(value).map_err(|_| takes())?;
    if list.0.len() > MOST || list.0.contains(&0) { Err(takes()) } else { Ok(list) }
}
