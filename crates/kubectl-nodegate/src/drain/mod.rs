//! `kubectl nodegate drain`: one node after the other; cordon, wait until every balancer has been told, evict.

mod kubectl;
mod preflight;
mod signals;
mod stopped;

use crate::agents::Agents;
use crate::args::DrainArgs;
use crate::cluster::Node;
use crate::console::Console;
use crate::wait::{Steps, Wait, existing, until_seen};
use kubectl::Kubectl;
use nodegate_readiness::probers::Ended;
use std::cell::Cell;
use stopped::Stopped;

/// What has been done to the node so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Untouched,
    /// The API server has been told to, and has not said that it has.
    Cordoning,
    Cordoned,
    Evicting,
}

/// The drain of one node.
struct Drain<'a> {
    agents: &'a Agents,
    args: &'a DrainArgs,
    console: &'a Console,
    kubectl: &'a Kubectl,
    node: &'a Node,
    steps: Steps<'a>,
    left: Cell<Left>,
}

/// Drains the nodes, and gives the exit code.
pub(crate) async fn run(agents: &Agents, args: &DrainArgs) -> Result<u8, String> {
    let nodes = existing(agents, &args.nodes).await?;
    let (console, kubectl) = (Console::new(), Kubectl::new(args));
    for (number, node) in nodes.iter().enumerate() {
        let steps = Steps::begin(&console, &node.name);
        let drain = Drain {
            agents,
            args,
            console: &console,
            kubectl: &kubectl,
            node,
            steps,
            left: Cell::new(Left::Untouched),
        };
        if let Err(stopped) = drain.run().await {
            drain.steps.line(&stopped.why);
            drain.steps.line(&drain.how_to_go_on());
            let others: Vec<_> = nodes.iter().skip(number + 1).map(|node| node.name.as_str()).collect();
            if !others.is_empty() {
                console.line(&format!("not begun: {}", others.join(", ")));
            }
            return Ok(stopped.code);
        }
    }
    Ok(Ended::Reached.exit_code())
}

impl Drain<'_> {
    async fn run(&self) -> Result<(), Stopped> {
        tokio::select! {
            ready = self.until_it_may_be_evicted() => ready?,
            signal = signals::ending() => return Err(Stopped::failed(format!("broken off by {signal}"))),
        }
        self.left.set(Left::Evicting);
        self.steps.line(&self.kubectl.in_words(&self.node.name));
        self.console.clear();
        self.kubectl.drain(&self.node.name).await?;
        self.steps.line("drained");
        Ok(())
    }

    async fn until_it_may_be_evicted(&self) -> Result<(), Stopped> {
        for warning in preflight::check(self.agents, self.args, self.node).await? {
            self.steps.line(&format!("warning: {warning}"));
        }
        self.kubectl.rehearse(&self.node.name).await?;
        self.cordon().await?;
        until_seen().await;
        let DrainArgs { goal, fall, ref patience, .. } = *self.args;
        let demands = patience.demands(fall, None);
        let (agents, console) = (self.agents, self.console);
        let wait = Wait { agents, console, goal, demands, timeout: patience.timeout };
        match wait.for_one(self.node, &self.steps).await {
            Ended::Reached => Ok(()),
            Ended::TimedOut => Err(Stopped::failed("not drained: its balancers have not let go of it")),
            Ended::NotKnown => Err(Stopped::not_known("not drained: it is not known who was told")),
        }
    }

    async fn cordon(&self) -> Result<(), Stopped> {
        if self.node.unschedulable {
            self.steps.line("is cordoned already");
        } else {
            self.left.set(Left::Cordoning);
            let done = self.agents.cluster().set_unschedulable(&self.node.name, true).await;
            done.map_err(|error| {
                if error.is_refusal() {
                    self.left.set(Left::Untouched);
                }
                Stopped::failed(error.to_string())
            })?;
            self.steps.line("cordoned");
        }
        self.left.set(Left::Cordoned);
        Ok(())
    }

    /// How the node is left behind, and what can be done next.
    fn how_to_go_on(&self) -> String {
        let name = &self.node.name;
        let (back, on) = (format!("kubectl nodegate uncordon {name}"), self.kubectl.in_words(name));
        match self.left.get() {
            Left::Untouched if self.node.unschedulable => "it is cordoned, as it was before".to_owned(),
            Left::Untouched => "nothing was done to it".to_owned(),
            Left::Cordoning => {
                format!("it may be cordoned, and no pod was evicted; back: {back}; on, without waiting: {on}")
            }
            Left::Cordoned => {
                format!(
                    "it is left cordoned, and no pod was evicted; back: {back}; on, without waiting: {on}"
                )
            }
            Left::Evicting => {
                format!("it is left cordoned, and pods may have been evicted; back: {back}; once more: {on}")
            }
        }
    }
}
