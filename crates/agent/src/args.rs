//! The command line of the program: the agent's settings, which each module declares for itself, and the
//! commands that query an agent.

use crate::agent::{self, AgentSetup};
use crate::agent_ports::PortArgs;
use crate::assembly::AgentSettings;
use crate::checks::CheckArgs;
use crate::handover::{HandoverArgs, StateFile};
use crate::pod_addresses::PodArgs;
use crate::rule_settings::PolicyArgs;
use crate::status_command::StatusArgs;
use crate::target::AgentAddress;
use crate::traffic::TrafficArgs;
use crate::wait_command::WaitArgs;
use clap::{Parser, Subcommand};
use nodegate_local_checks::{HostSignalArgs, LocalCheckArgs};
use nodegate_node_watch::ServiceArgs;
use nodegate_program::{BAD_SETTING, LogSettings, Mistakes, Program, Removed, UNKNOWN, failed, node_name};
use nodegate_readiness::Catalog;
use nodegate_server::ProberArgs;
use std::process::ExitCode;

/// The command line of the program.
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
nodegate status queries a running agent; its exit code is the verdict. nodegate wait ends when every load \
balancer has been told that the node is out, so that a drain loses nothing.",
    after_long_help = "\
PATHS
  /health                    200 or 503 and JSON; ?check=a,b names checks, ?drain=<code> asks for a third state
  /nodecheck                 OK or Down, for balancers that match a body
  /nodename                  Node: \"<name>\"
  /services/<ns>/<name>      what kube-proxy's healthCheckNodePort answers; with ?drain=<code> a cordon counts, too
  /status.json               everything known
  /drain.json                how far a drain has come, in short
  /wait                      answers when all balancers know that the node is out, for a preStop hook;
                             ?for=told|released|ready, ?timeout=<s> (20, at most 600), ?settle=<s>
  /metrics                   Prometheus or OpenMetrics text
  /livez, /readyz            nodegate itself, for the kubelet

CREDENTIALS
  The Pod's service account if there is one, else the file that KUBECONFIG names. They are read again at each connection.
  A credential plugin (exec) may take 20 s; the image has no programs, so it can run none.

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
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The name of the Node that this agent runs on: the Downward API field spec.nodeName. Without it every
    /// /health answers 500
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,

    #[command(flatten)]
    ports: PortArgs,
    #[command(flatten)]
    probers: ProberArgs,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    handover: HandoverArgs,
    #[command(flatten)]
    host_signals: HostSignalArgs,
    #[command(flatten)]
    checks: CheckArgs,
    #[command(flatten)]
    local_checks: LocalCheckArgs,
    #[command(flatten)]
    services: ServiceArgs,
    #[command(flatten)]
    log: LogSettings,
}

/// The commands besides running the agent.
#[derive(Debug, Subcommand)]
enum Command {
    Status(StatusArgs),
    Wait(WaitArgs),
}

impl Program for Args {
    /// The work, with sound settings.
    type Setup = Box<dyn FnOnce() -> ExitCode>;

    const REMOVED: &'static [Removed] = &[
        Removed::flag(
            "accept-proxy",
            "NODEGATE_ACCEPT_PROXY",
            "leave it out, a PROXY header is always skipped",
        ),
        Removed::flag("agent-port", "NODEGATE_AGENT_PORT", "use --agent-check-port"),
        Removed::flag("checks", "NODEGATE_CHECKS", "use --background-checks"),
        Removed::flag("check", "NODEGATE_CHECK", "use --check-settings"),
        Removed::flag("apiserver", "NODEGATE_APISERVER", "use --check-settings apiserver:url=<URL>"),
        Removed::flag(
            "apiserver-exclude",
            "NODEGATE_APISERVER_EXCLUDE",
            "use --check-settings apiserver:exclude=<name>:<name>",
        ),
        Removed::flag("startup-grace", "NODEGATE_STARTUP_GRACE", "it is always 1 s"),
        Removed::flag("max-connections", "NODEGATE_MAX_CONNECTIONS", "it is always 1024"),
    ];

    fn bad_setting() -> u8 {
        // The exit code of these commands is the agent's verdict, so a wrong setting has another one.
        let asks = std::env::args_os().nth(1).is_some_and(|word| word == "status" || word == "wait");
        if asks { UNKNOWN } else { BAD_SETTING }
    }

    fn log(&self) -> Option<LogSettings> {
        self.command.is_none().then(|| self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Self::Setup {
        match self.command {
            Some(Command::Status(args)) => {
                let target = AgentAddress::chosen(args.addr.as_deref(), mistakes);
                Box::new(move || args.run(&target))
            }
            Some(Command::Wait(args)) => {
                args.check(mistakes);
                let target = AgentAddress::chosen(args.addr.as_deref(), mistakes);
                Box::new(move || args.run(&target))
            }
            None => {
                let setup = self.agent(mistakes);
                Box::new(|| agent::run(setup).map_or_else(failed, |()| ExitCode::SUCCESS))
            }
        }
    }

    fn run(setup: Self::Setup) -> ExitCode {
        setup()
    }
}

impl Args {
    fn agent(self, mistakes: &mut Mistakes) -> AgentSetup {
        self.ports.check(mistakes);
        let local_checks = self.local_checks.local_checks(mistakes);
        let services = self.services.services(mistakes);
        let catalog = Catalog::new(local_checks.for_catalog()).with_services(services);
        let (catalog, default_checks) = self.checks.choose(catalog, mistakes);
        AgentSetup {
            settings: AgentSettings {
                // `None` is not an error here: the agent starts, and every answer reports it.
                node_name: self.node_name,
                policy: self.policy.policy(),
                catalog,
                default_checks,
                probers: self.probers.settings(),
            },
            ports: self.ports,
            traffic: self.traffic,
            pods: self.pods,
            host_signals: self.host_signals,
            state_file: self.handover.state_dir.as_deref().map(StateFile::in_directory),
            local_checks,
        }
    }
}
