//! `nodegate wait`: queries a running agent until all balancers have been told.

mod terminal;

use crate::args::WaitArgs;
use crate::fetch;
use crate::target::AgentAddress;
use nodegate_agent_client::{NodeIdentity, STATUS_PATH, Status, WrongAgent, harmless, understand};
use nodegate_program::Mistakes;
use nodegate_readiness::probers::{Demands, WaitEnd, Waiting};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use terminal::Terminal;

/// The pause between two queries, short compared to a balancer's interval.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The timeout of one query.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The agent to query, and its Node.
struct Question {
    target: AgentAddress,
    /// The expected Node; without it any agent will do.
    node: Option<NodeIdentity>,
}

/// Queries the agent until the wait ends, and returns the exit code.
pub(crate) fn run(args: &WaitArgs, mut wrong: Mistakes) -> Result<ExitCode, ExitCode> {
    let target = AgentAddress::chosen(args.addr.as_deref(), &mut wrong);
    if args.node_uid.is_some() && args.node.is_none() {
        wrong.setting("node-uid", "needs --node");
    }
    wrong.ensure_none()?;
    let node = args.node.clone().map(|name| NodeIdentity { name, uid: args.node_uid.clone() });
    let demands =
        Demands { fall: args.fall, rise: args.rise, probers: args.probers, interval: args.interval };
    let waiting = Waiting::new(args.goal, demands, args.timeout);
    let ended = Question { target, node }.wait(waiting, Terminal::new());
    Ok(ExitCode::from(ended.exit_code()))
}

impl Question {
    fn wait(&self, mut waiting: Waiting, mut terminal: Terminal) -> WaitEnd {
        let began = nodegate_clock::now();
        loop {
            let said = match self.ask() {
                Ok(status) => match self.confirm(&status) {
                    Ok(()) => Ok(status),
                    Err(wrong) if wrong.may_pass() => Err(wrong.at(&self.target)),
                    Err(wrong) => {
                        terminal.line(&format!("not known: {}", wrong.at(&self.target)));
                        terminal.end();
                        return WaitEnd::NotKnown;
                    }
                },
                Err(error) => Err(format!("http://{}: {error}", self.target)),
            };
            let elapsed = nodegate_clock::now().saturating_duration_since(began);
            let progress = waiting.step(said.as_ref().map_err(String::as_str), elapsed);
            let lines = progress.lines.iter().map(|line| harmless(line));
            lines.for_each(|line| terminal.line(&line));
            if let Some(ended) = progress.ended {
                terminal.end();
                return ended;
            }
            terminal.now(&harmless(&progress.now));
            thread::sleep(ASK_EVERY);
        }
    }

    fn ask(&self) -> Result<Status, String> {
        let reply =
            fetch::get(&self.target, STATUS_PATH, ANSWER_WITHIN).map_err(|error| error.to_string())?;
        understand(reply).map(|answered| answered.status).map_err(|error| error.to_string())
    }

    fn confirm(&self, status: &Status) -> Result<(), WrongAgent> {
        self.node.as_ref().map_or(Ok(()), |node| node.confirm(status))
    }
}
