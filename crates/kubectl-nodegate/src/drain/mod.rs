//! `kubectl nodegate drain`: for each node, cordons it, waits until every balancer has acknowledged, and evicts. With a
//! drain budget all nodes begin at once, and the budget decides whose turn it is; else one goes after the other.

mod kubectl;
pub(crate) mod preflight;

use crate::agents::Agents;
use crate::args::{DrainArgs, DryRun};
use crate::cluster::FleetNode;
use crate::error::Error;
use crate::fleet::labelled;
use crate::platform;
use crate::wait_for_nodes::{Steps, existing, until_seen, wait_for_one};
use futures::stream::{self, StreamExt};
use kubectl::Kubectl;
use nodegate_agent_client::{Console, WaitEnd, Waiting};
use preflight::Preflight;
use std::cell::Cell;
use std::time::Duration;

/// The changes made to the node so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Untouched,
    /// The cordon was requested, and the API server has not confirmed it.
    Cordoning,
    Cordoned,
    /// The cordon was undone.
    Uncordoned,
    Evicting,
    /// The Node no longer exists.
    Gone,
}

/// The pause between two checks that a Node still exists.
const EXISTS_EVERY: Duration = Duration::from_secs(2);

/// The maximum number of nodes that are drained at once.
const AT_ONCE: usize = 64;

/// The last line of a drain whose Node no longer exists.
const GONE: &str = "not drained: the Node is gone";

struct Drain<'a> {
    agents: &'a Agents,
    args: &'a DrainArgs,
    kubectl: &'a Kubectl,
    node: &'a FleetNode,
    steps: &'a Steps<'a>,
    left: Cell<Left>,
}

/// Drains the nodes, and returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &DrainArgs) -> Result<u8, Error> {
    let nodes = nodes_to_drain(agents, args).await?;
    let kubectl = Kubectl::new(args, &agents.cluster)?;
    Console::line(&format!("cluster: {}", agents.cluster.name));
    // With --min-ready, nodes that leave together could all see too few others, and return.
    let may_begin_together = nodes.len() > 1 && args.dry_run == DryRun::None && args.min_ready == 0;
    let at_once = if may_begin_together && share_budget(agents, &nodes).await { AT_ONCE } else { 1 };
    let drains = nodes.iter().map(|node| drain_one(agents, args, &kubectl, &node.name));
    let mut ends = stream::iter(drains).buffer_unordered(at_once);
    let (mut ended, mut worst) = (0, WaitEnd::Reached.exit_code());
    while let Some(code) = ends.next().await {
        (ended, worst) = (ended + 1, worst.max(code));
        let others: Vec<_> = nodes.iter().skip(ended).map(|node| node.name.as_str()).collect();
        if code != WaitEnd::Reached.exit_code() && at_once == 1 && !others.is_empty() {
            Console::line(&format!("not started: {}", others.join(", ")));
            break;
        }
    }
    Ok(worst)
}

/// Returns true if the agents of all these nodes have a drain budget.
async fn share_budget(agents: &Agents, nodes: &[FleetNode]) -> bool {
    let asked = nodes.iter().map(|node| agents.ask(node));
    let answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    answers.all(async |answer| answer.is_ok_and(|answer| answer.said.status.max_drained.is_some())).await
}

/// Drains a node, and returns the exit code.
async fn drain_one(agents: &Agents, args: &DrainArgs, kubectl: &Kubectl, name: &str) -> u8 {
    let steps = Steps::begin(name);
    // Another person may have changed it while the others were drained.
    let stopped = match agents.cluster.node(name).await {
        Err(error) => Some(error),
        Ok(node) if !node.exists => Some(Error::failed(GONE)),
        Ok(node) => {
            let left = Cell::new(Left::Untouched);
            let drain = Drain { agents, args, kubectl, node: &node, steps: &steps, left };
            let stopped = Box::pin(drain.run()).await.err();
            stopped.map(|error| Error { why: format!("{}\n{}", error.why, drain.how_to_go_on()), ..error })
        }
    };
    let Some(Error { why, code, .. }) = stopped else { return WaitEnd::Reached.exit_code() };
    why.lines().for_each(|line| steps.line(line));
    code
}

/// Returns the named nodes, or those with the labels.
async fn nodes_to_drain(agents: &Agents, args: &DrainArgs) -> Result<Vec<FleetNode>, Error> {
    let Some(selector) = &args.selector else { return existing(agents, &args.nodes).await };
    let mut nodes = labelled(agents, selector).await?;
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(nodes)
}

impl Drain<'_> {
    async fn run(&self) -> Result<(), Error> {
        if self.args.dry_run != DryRun::None {
            return self.show().await;
        }
        tokio::select! {
            ready = self.until_it_may_be_evicted() => ready?,
            () = self.until_gone() => {
                self.left.set(Left::Gone);
                return Err(Error::failed(GONE));
            }
            signal = platform::termination_signal() => return Err(Error::interrupted(signal)),
        }
        self.left.set(Left::Evicting);
        self.steps.line(&self.kubectl.in_words(&self.node.name));
        self.kubectl.drain(&self.node.name, DryRun::None).await?;
        self.steps.line("drained");
        Ok(())
    }

    async fn show(&self) -> Result<(), Error> {
        let preflight = self.preflight().await?;
        if !self.node.unschedulable {
            self.steps.line("would cordon it");
        }
        preflight.would_wait_for(self.args.goal).iter().for_each(|line| self.steps.line(line));
        self.steps.line(&format!("would run {}", self.kubectl.in_words(&self.node.name)));
        self.kubectl.drain(&self.node.name, self.args.dry_run).await?;
        self.steps.line("dry run: nothing was done to it");
        Ok(())
    }

    async fn preflight(&self) -> Result<Preflight, Error> {
        let preflight = preflight::check(self.agents, self.args.goal, self.args.min_ready, self.node).await?;
        for warning in &preflight.warnings {
            self.steps.line(&format!("warning: {warning}"));
        }
        Ok(preflight)
    }

    async fn until_it_may_be_evicted(&self) -> Result<(), Error> {
        self.preflight().await?;
        self.kubectl.dry_run(&self.node.name).await?;
        self.cordon().await?;
        until_seen().await;
        let waiting = Waiting::new(self.args.goal, self.args.timeout);
        match wait_for_one(self.agents, waiting, self.node, self.steps).await {
            WaitEnd::Reached => self.while_others_are_ready().await,
            WaitEnd::TimedOut => {
                Err(Error::failed("not drained: not all load balancers acknowledged the drain in time"))
            }
            WaitEnd::NotKnown => Err(Error::from(
                "not drained: it is unknown which balancers have acknowledged the drain".to_owned(),
            )),
        }
    }

    /// Checks --min-ready once more: other nodes may have left during the wait. If too few are left, the node returns.
    async fn while_others_are_ready(&self) -> Result<(), Error> {
        let Err(stopped) = preflight::enough_others(self.agents, self.args.min_ready, self.node).await else {
            return Ok(());
        };
        if !self.node.unschedulable {
            let done = self.agents.cluster.set_unschedulable(&self.node.name, false).await;
            done.map_err(|error| Error::failed(format!("{}; {}", stopped.why, error.why)))?;
            self.left.set(Left::Uncordoned);
        }
        Err(stopped)
    }

    /// Returns when the Node no longer exists.
    async fn until_gone(&self) {
        loop {
            tokio::time::sleep(EXISTS_EVERY).await;
            // Without an answer, the Node may still exist.
            if let Ok(node) = self.agents.cluster.node(&self.node.name).await
                && (!node.exists || node.uid != self.node.uid)
            {
                return;
            }
        }
    }

    async fn cordon(&self) -> Result<(), Error> {
        if self.node.unschedulable {
            self.steps.line("is cordoned already");
        } else {
            self.left.set(Left::Cordoning);
            let done = self.agents.cluster.set_unschedulable(&self.node.name, true).await;
            done.map_err(|error| {
                if error.rejected.is_some() {
                    self.left.set(Left::Untouched);
                }
                error.into_failure()
            })?;
            self.steps.line("cordoned");
        }
        self.left.set(Left::Cordoned);
        Ok(())
    }

    /// Returns a line about the state in which the node is left, and the possible next commands.
    fn how_to_go_on(&self) -> String {
        let name = &self.node.name;
        let flags = self.agents.cluster.kubectl_flags.join(" ");
        let (back, on) = (format!("kubectl nodegate uncordon {name} {flags}"), self.kubectl.in_words(name));
        match self.left.get() {
            Left::Untouched if self.node.unschedulable => "it is cordoned, as it was before".to_owned(),
            Left::Untouched => "nothing was done to it".to_owned(),
            Left::Uncordoned => "it is uncordoned again, and no pod was evicted".to_owned(),
            Left::Gone => "there is nothing to undo".to_owned(),
            left @ (Left::Cordoning | Left::Cordoned) => {
                let state = if left == Left::Cordoned { "is left" } else { "may be" };
                format!(
                    "it {state} cordoned, and no pod was evicted; to undo: {back}; to go on without waiting: {on}"
                )
            }
            Left::Evicting => {
                format!(
                    "it is left cordoned, and pods may have been evicted; to undo: {back}; to try again: {on}"
                )
            }
        }
    }
}
