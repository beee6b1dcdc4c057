//! `nodegate wait`: queries a running agent until all balancers have acknowledged.

use crate::fetch;
use crate::target::AgentAddress;
use nodegate_agent_client::{Console, NodeIdentity, STATUS_PATH, Status, WaitEnd, hook_recipe, parse_status};
use nodegate_program::{Mistakes, node_name};
use nodegate_readiness::ServiceName;
use nodegate_readiness::probers::Goal;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// The pause between two queries, short compared to a balancer's interval.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The timeout of one query.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Waits until every load balancer has acknowledged that the node is out, or back
///
/// nodegate wait queries a running agent and exits when every load balancer has acknowledged the drain
/// (acknowledged). With --for released it also waits until no session is left, with --for ready until every
/// load balancer has acknowledged that the node is back. Run it between kubectl cordon and kubectl drain, in
/// place of a sleep that is too long or too short. It changes nothing.
///
/// A balancer has acknowledged when it has had the answer so often in a row that it must have acted on it (--fall,
/// --rise), has probed once more, which shows that it has processed the answer before, and all of that has
/// taken as long as it takes at its interval. nodegate wait waits for every regular prober. It also waits for
/// one that falls silent, until that one is gone: ten of its intervals and half a minute later.
#[derive(Debug, clap::Args)]
#[command(after_long_help = include_str!("help/wait.txt"))]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    wait: nodegate_agent_client::WaitSettings,

    /// Service to wait for in place of the node, as namespace/name: one of the agent's --watch-service
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service: Option<ServiceName>,

    /// Print the settings that a rollout of --service needs, from the intervals of its balancers, and exit
    #[arg(long)]
    explain: bool,

    /// Agent to query: HOST, HOST:PORT or http://HOST:PORT, where HOST is a name or an address. Without a
    /// port: that of the agent on this machine
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Option<String>,

    /// Name of the Node whose agent must answer; the answer of another Node's agent is an error. Without it,
    /// any agent will do
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<String>,

    /// UID of --node, which distinguishes it from a node of another cluster (kubectl get node NAME -o
    /// jsonpath={.metadata.uid})
    #[arg(long, value_name = "UID")]
    node_uid: Option<String>,
}

impl WaitArgs {
    pub(crate) fn check(&self, mistakes: &mut Mistakes) {
        if self.node_uid.is_some() && self.node.is_none() {
            mistakes.setting("node-uid", "needs --node");
        }
        if self.explain && self.service.is_none() {
            mistakes.setting("explain", "needs --service");
        }
        if self.service.is_some() && self.wait.goal == Goal::Released {
            mistakes.setting("for", "takes acknowledged or ready with --service");
        }
    }

    /// Queries the agent until the wait ends, and returns the exit code.
    pub(crate) fn run(self, target: &AgentAddress) -> ExitCode {
        let end = self.wait(target).unwrap_or_else(|unknown| {
            Console::line(&format!("not known: {unknown}"));
            WaitEnd::NotKnown
        });
        ExitCode::from(end.exit_code())
    }

    /// The error says why the goal can't be known.
    fn wait(self, target: &AgentAddress) -> Result<WaitEnd, String> {
        let node = self.node.map(|name| NodeIdentity { name, uid: self.node_uid });
        let mut waiting = self.wait.begin();
        let began = nodegate_clock::now();
        loop {
            let mut said = ask(target);
            if let (Ok(status), Some(node)) = (&said, &node)
                && let Err(wrong) = node.confirm(status)
            {
                let why = wrong.at(target);
                said = Err(if wrong.is_temporary() { why } else { return Err(why) });
            }
            if let (Ok(status), Some(service)) = (&said, &self.service) {
                let of_service = status.of_service(&service.to_string()).ok_or_else(|| {
                    format!("the agent does not watch {service}; name it with --watch-service")
                })?;
                if self.explain {
                    hook_recipe(&of_service, &self.wait.overrides())?
                        .iter()
                        .for_each(|line| Console::line(line));
                    return Ok(WaitEnd::Reached);
                }
                said = Ok(of_service);
            }
            let elapsed = nodegate_clock::now().saturating_duration_since(began);
            let progress = waiting.step(said.as_ref().map_err(String::as_str), elapsed);
            progress.lines.iter().for_each(|line| Console::line(line));
            if let Some(ended) = progress.ended {
                return Ok(ended);
            }
            thread::sleep(ASK_EVERY);
        }
    }
}

fn ask(target: &AgentAddress) -> Result<Status, String> {
    let reply = fetch::get(target, STATUS_PATH, ANSWER_WITHIN).and_then(parse_status);
    reply.map(|answered| answered.status).map_err(|error| format!("http://{target}: {error}"))
}
