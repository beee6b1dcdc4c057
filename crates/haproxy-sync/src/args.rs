//! The command line and the environment, as written. [`crate::settings`] gives them meaning.

use clap::{ArgAction, Parser};
use nodegate_readiness::DrainSignals;

/// Everything is text here, so that all mistakes can be named in one go instead of one per start.
#[derive(Debug, Parser)]
#[command(
    name = "nodegate-haproxy",
    version,
    about = "Keeps HAProxy in step with a cluster's Nodes and NodePort/LoadBalancer Services",
    long_about = "nodegate-haproxy runs beside HAProxy, outside or inside the cluster. It watches Nodes and the Services of type \
NodePort and LoadBalancer, and nothing else.\n\n\
Each TCP port of such a Service becomes a frontend on the Service's port and a backend with one server per node. A node \
that is cordoned, uncordoned, NotReady or weighted anew is moved at once through HAProxy's socket, without a reload. \
When the structure changes, the new configuration is checked with haproxy -c, put in place in one step and loaded; if \
any of that fails, the old file and the old process stay and it is tried again.",
    after_long_help = "\
ANNOTATIONS OF A SERVICE (one value for all ports, or PORT=VALUE,… by the port's name or number)
  nodegate.io/haproxy-port          the port that HAProxy listens on; the Service's port if there is none
  nodegate.io/haproxy-mode          tcp or http
  nodegate.io/haproxy-balance       roundrobin, leastconn, first, random, source or uri
  nodegate.io/haproxy-send-proxy    v1, v2 or off
  nodegate.io/haproxy-ignore        true: not published
  Two Services that want one port: the older one has it, the other is named in the log and in the metrics.

ANNOTATION OF A NODE
  nodegate.io/haproxy-weight        its share of the traffic, 0 to 256; 100 if there is none

TEMPLATES
  A --template whose name ends in .j2 or .jinja is a minijinja template; {% include \"sections\" %} puts the generated
  sections in. Any other file is a hand-written head: it is kept to the byte and the sections are appended.

HAPROXY
    haproxy -W -S /run/haproxy-master.sock -f /etc/haproxy/haproxy.cfg
  With that, --master-socket is all that is needed; no stats socket has to be configured.

CREDENTIALS
  The Pod's service account if there is one, else the file that KUBECONFIG names. They are read anew at each connection.
  Credential plugins (exec) are run.

ENVIRONMENT
  A variable stands in for the option that names it; the option wins. Only credentials have others: KUBECONFIG, HOME,
  and the KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of a pod.

EXAMPLES
  nodegate-haproxy --print                                            # what would be written, to stdout
  nodegate-haproxy --master-socket /run/haproxy-master.sock           # states and reloads through one socket
  nodegate-haproxy --template /etc/haproxy/haproxy.cfg.TEMPLATE       # below a head of your own
  nodegate-haproxy --once --reload-command 'systemctl reload haproxy' # for cron

EXIT CODES
  0  done, or ended by SIGTERM or SIGINT
  1  could not start, or --once or --print could not do their work
  2  a setting is wrong; every wrong one is named on a line of its own"
)]
pub(crate) struct Args {
    /// The configuration that HAProxy reads; it is replaced as a whole
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_CONFIG",
        value_name = "FILE",
        default_value = "/etc/haproxy/haproxy.cfg"
    )]
    pub(crate) config: String,

    /// The operator's template or hand-written head; without it a small default head is used
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_TEMPLATE",
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) template: String,

    /// Where the states of servers are kept for HAProxy's next process; "none" keeps them nowhere. Without it: the
    /// name of the --config file with .servers behind it
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_STATE_FILE",
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) state_file: String,

    /// Files that HAProxy is started with (-f) before --config; they are only read, by haproxy -c
    #[arg(long, env = "NODEGATE_HAPROXY_BEFORE", value_name = "FILE", action = ArgAction::Append, value_delimiter = ',')]
    pub(crate) before: Vec<String>,

    /// HAProxy's program, for haproxy -c
    #[arg(long, env = "NODEGATE_HAPROXY_BINARY", value_name = "FILE", default_value = "haproxy")]
    pub(crate) haproxy: String,

    /// HAProxy's master socket (haproxy -W -S): reloads, and states unless there is a --runtime-socket
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_MASTER_SOCKET",
        value_name = "SOCKET",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) master_socket: String,

    /// HAProxy's stats socket with "level admin"
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_RUNTIME_SOCKET",
        value_name = "SOCKET",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) runtime_socket: String,

    /// How to reload without a master socket; words are split at spaces, and exit status 0 is success
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_RELOAD_COMMAND",
        value_name = "COMMAND",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) reload_command: String,

    /// How long a reload may take
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    pub(crate) reload_timeout: String,

    /// Only Services with these labels
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_SERVICE_SELECTOR",
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) service_selector: String,

    /// Only Nodes with these labels
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_NODE_SELECTOR",
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) node_selector: String,

    /// Which signals drain a node, by the same rules as the agent's --drain-on: unschedulable, deleting, taint:<key>,
    /// label:<key>, or none alone
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_DRAIN_ON",
        value_name = "LIST",
        default_value_t = DrainSignals::default().to_string()
    )]
    pub(crate) drain_on: String,

    /// Only Services of these namespaces
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_NAMESPACES",
        value_name = "LIST",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) namespaces: String,

    /// Where frontends listen: addresses, or nothing for all of both families
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_BIND",
        value_name = "IPS",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) bind: String,

    /// Ports that no Service gets, besides those that the template binds
    #[arg(long, env = "NODEGATE_HAPROXY_RESERVED_PORTS", value_name = "LIST", default_value = "22")]
    pub(crate) reserved_ports: String,

    /// The mode of Services that ask for none
    #[arg(long, env = "NODEGATE_HAPROXY_MODE", value_name = "tcp|http", default_value = "tcp")]
    pub(crate) mode: String,

    /// The algorithm of Services that ask for none
    #[arg(long, env = "NODEGATE_HAPROXY_BALANCE", value_name = "NAME", default_value = "roundrobin")]
    pub(crate) balance: String,

    /// Which addresses of a node are used, the preferred type first
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_ADDRESS_TYPES",
        value_name = "LIST",
        default_value = "InternalIP,ExternalIP"
    )]
    pub(crate) address_types: String,

    /// nodegate's port on the nodes
    #[arg(long, env = "NODEGATE_HAPROXY_CHECK_PORT", value_name = "PORT", default_value = "25001")]
    pub(crate) check_port: String,

    /// What a health check asks for; with drain=200 a drained node is healthy, and is drained by its state
    #[arg(
        long,
        env = "NODEGATE_HAPROXY_CHECK_PATH",
        value_name = "PATH",
        default_value = "/health?drain=200"
    )]
    pub(crate) check_path: String,

    /// The time between two checks of a node
    #[arg(long, env = "NODEGATE_HAPROXY_CHECK_INTERVAL", value_name = "DURATION", default_value = "1s")]
    pub(crate) check_interval: String,

    /// nodegate's agent-check port on the nodes; 0 if it is not to be asked
    #[arg(long, env = "NODEGATE_HAPROXY_AGENT_PORT", value_name = "PORT", default_value = "25002")]
    pub(crate) agent_port: String,

    /// Who knows whether a node has an endpoint of a Service with externalTrafficPolicy: Local. auto: kube-proxy at the
    /// healthCheckNodePort, nodegate's /services/… where there is none; nodegate: always the latter
    #[arg(long, env = "NODEGATE_HAPROXY_LOCAL_CHECK", value_name = "auto|nodegate", default_value = "auto")]
    pub(crate) local_check: String,

    /// How much may vanish at once, in percent of the nodes, Services or servers; what goes beyond is kept as it was
    #[arg(long, env = "NODEGATE_HAPROXY_MAX_REMOVAL", value_name = "PERCENT", default_value = "50")]
    pub(crate) max_removal: String,

    /// The address and port of /metrics, /livez and /readyz; "none" opens none
    #[arg(long, env = "NODEGATE_HAPROXY_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:25003")]
    pub(crate) listen: String,

    /// Render once to stdout and end; nothing is written or reloaded
    #[arg(long, conflicts_with = "once")]
    pub(crate) print: bool,

    /// Apply once and end
    #[arg(long)]
    pub(crate) once: bool,

    /// How log lines look on stderr: text or json
    #[arg(long, env = "NODEGATE_LOG_FORMAT", value_name = "text|json", default_value = "text")]
    pub(crate) log_format: String,

    /// What is logged: a level (error, warn, info, debug, trace, off), or target=level,…
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
}
