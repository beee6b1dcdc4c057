//! `nodegate wait`: queries a running agent until all balancers have acknowledged.

use crate::target::{AddrArg, AgentAddress};
use nodegate_agent_api::{Goal, WaitReply};
use nodegate_agent_client::{
    AgentReply, Console, NodeIdentity, PAUSE, WAIT_WITHIN, WaitEnd, WaitSettings, Waiting, WrongAgent, parse,
};
use nodegate_program::{Mistakes, node_name, sanitize_short};
use nodegate_readiness::ServiceName;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// The timeout of one query.
const ANSWER_WITHIN: Duration = WAIT_WITHIN.saturating_add(Duration::from_secs(3));
/// The longest text of a refusal that is repeated, in characters.
const MAX_REFUSAL: usize = 200;

/// Waits until every load balancer has acknowledged that the node is out, or back
///
/// nodegate wait queries a running agent and exits when every load balancer has acknowledged the drain
/// (acknowledged). With --for released it also waits until no session is left, with --for ready until every
/// load balancer has acknowledged that the node is back. Run it between kubectl cordon and kubectl drain, in
/// place of a sleep that is too long or too short. It changes nothing.
///
/// A balancer has acknowledged when it has had the answer so often in a row that it must have acted on it (--ack-fall
/// and --ack-rise of the agent), has probed once more, which shows that it has processed the answer before, and all of
/// that has taken as long as it takes at its interval. nodegate wait waits for every regular prober. It also waits for
/// one that falls silent, until that one is gone: ten of its intervals and half a minute later.
#[derive(Debug, clap::Args)]
#[command(after_long_help = include_str!("help/wait.txt"))]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    wait: WaitSettings,

    /// Service to wait for in place of the node, as namespace/name: one of the agent's --watch-service
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service: Option<ServiceName>,

    #[command(flatten)]
    pub(crate) agent: AddrArg,

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
        let service = self.service.as_ref().map(ToString::to_string);
        let mut waiting = Waiting::new(self.wait.goal, self.wait.timeout);
        let path = waiting.path(service.as_deref());
        let began = nodegate_clock::now();
        loop {
            let reply = target.get(&path, ANSWER_WITHIN);
            if let Ok(AgentReply { status: 400 | 404 | 500, body }) = &reply {
                // Asking again does not help.
                let refusal = sanitize_short(String::from_utf8_lossy(body).trim(), MAX_REFUSAL);
                return Err(target.failed(refusal));
            }
            let reply: Result<WaitReply, _> = reply.and_then(|reply| parse(&reply));
            let mut reply = reply.map_err(|error| target.failed(error));
            if let (Ok(answer), Some(node)) = (&reply, &node)
                && let Err(wrong) = node.confirm(answer)
            {
                let why = wrong.at(target);
                reply = Err(if wrong == WrongAgent::NotYetKnown { why } else { return Err(why) });
            }
            let elapsed = nodegate_clock::now().saturating_duration_since(began);
            let progress = waiting.step(reply.as_ref().map_err(String::as_str), elapsed);
            progress.lines.iter().for_each(|line| Console::line(line));
            if let Some(ended) = progress.ended {
                return Ok(ended);
            }
            thread::sleep(PAUSE);
        }
    }
}
