//! `kubectl nodegate drain`: for each node, cordons it, waits until every balancer has acknowledged, and evicts. With a
//! drain budget all nodes begin at once, and the budget decides whose turn it is; else one goes after the other.

mod kubectl;
mod preflight;

use crate::args::{DrainArgs, NO_DRY_RUN};
use crate::cluster::{Cluster, Credential, FleetNode};
use crate::error::Error;
use crate::fleet::{Row, look};
use crate::platform;
use crate::wait_for_nodes::{Steps, until_seen, wait_for_one};
use futures::stream::{self, StreamExt};
use nodegate_agent_api::Status;
use nodegate_agent_client::{Console, WaitEnd};
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

/// The state in which a drain leaves its node, in words; true if a cordon may be undone.
type Left = (&'static str, bool);

const UNTOUCHED: Left = ("nothing was done to it", false);
const CORDONED_BEFORE: Left = ("it is cordoned, as it was before", false);
const MAYBE_CORDONED: Left = ("it may be cordoned, and no pod was evicted", true);
const CORDONED: Left = ("it is left cordoned, and no pod was evicted", true);
const UNCORDONED: Left = ("it is uncordoned again, and no pod was evicted", false);
const EVICTING: Left = ("it is left cordoned, and pods may have been evicted", true);
const NOTHING_LEFT: Left = ("there is nothing to undo", false);

/// The pause between two checks that a Node still exists.
const EXISTS_EVERY: Duration = Duration::from_secs(2);

/// The maximum number of nodes that are drained at once.
const AT_ONCE: usize = 64;

/// The last line of a drain whose Node no longer exists.
const GONE: &str = "not drained: the Node is gone";

struct Drain<'a> {
    cluster: &'a Cluster,
    args: &'a DrainArgs,
    /// kubectl's kubeconfig with the credential of a plugin, which would ask again for another one.
    kubeconfig: Option<&'a Path>,
    node: &'a FleetNode,
    steps: &'a Steps<'a>,
    left: Cell<Left>,
}

/// Drains the nodes, and returns the exit code.
pub(crate) async fn run(cluster: &Cluster, args: &DrainArgs) -> Result<u8, Error> {
    let nodes = cluster.nodes(&args.nodes, args.selector.as_deref()).await?;
    let kubeconfig = cluster.credential.as_ref().map(Credential::kubeconfig).transpose();
    let kubeconfig = kubeconfig.map_err(|error| format!("can't hand the credential to kubectl: {error}"))?;
    let kubeconfig = kubeconfig.as_ref().map(|(_, file)| file.as_path());
    Console::line(&format!("cluster: {}", cluster.name));
    // With --min-ready, nodes that leave together could all see too few others, and return.
    let may_begin_together = nodes.len() > 1 && args.dry_run == NO_DRY_RUN && args.min_ready == 0;
    let has_budget = |row: &Row| row.status().is_some_and(|status| status.max_drained.is_some());
    let share_budget = may_begin_together && look(cluster, &nodes).await.iter().all(has_budget);
    let at_once = if share_budget { AT_ONCE } else { 1 };
    let drains = nodes.iter().map(|node| drain_one(cluster, args, kubeconfig, &node.name));
    let mut ends = stream::iter(drains).buffer_unordered(at_once);
    let (mut ended, mut worst) = (0, 0);
    while let Some(code) = ends.next().await {
        (ended, worst) = (ended + 1, worst.max(code));
        let others: Vec<_> = nodes.iter().skip(ended).map(|node| node.name.as_str()).collect();
        if code > 0 && at_once == 1 && !others.is_empty() {
            Console::line(&format!("not started: {}", others.join(", ")));
            break;
        }
    }
    Ok(worst)
}

/// Drains a node, and returns the exit code.
async fn drain_one(cluster: &Cluster, args: &DrainArgs, kubeconfig: Option<&Path>, name: &str) -> u8 {
    let steps = &Steps::begin(name);
    // Another person may have changed it while the others were drained.
    let stopped = match cluster.node(name).await {
        Err(error) => error,
        Ok(None) => Error::failed(GONE),
        Ok(Some(node)) => {
            let left = Cell::new(if node.unschedulable { CORDONED_BEFORE } else { UNTOUCHED });
            let drain = Drain { cluster, args, kubeconfig, node: &node, steps, left };
            match Box::pin(drain.run()).await {
                Ok(()) => return 0,
                Err(error) => Error { why: format!("{}\n{}", error.why, drain.how_to_go_on()), ..error },
            }
        }
    };
    stopped.why.lines().for_each(|line| steps.line(line));
    stopped.code
}

impl Drain<'_> {
    async fn run(&self) -> Result<(), Error> {
        if self.args.dry_run != NO_DRY_RUN {
            return self.show().await;
        }
        tokio::select! {
            ready = self.until_pods_may_be_evicted() => ready?,
            () = self.until_gone() => {
                self.left.set(NOTHING_LEFT);
                return Err(Error::failed(GONE));
            }
            signal = platform::termination_signal() => return Err(Error::interrupted(signal)),
        }
        self.left.set(EVICTING);
        self.steps.line(&self.in_words());
        self.evict(NO_DRY_RUN).await?;
        self.steps.line("drained");
        Ok(())
    }

    async fn show(&self) -> Result<(), Error> {
        let status = self.preflight().await?;
        if !self.node.unschedulable {
            self.steps.line("would cordon it");
        }
        for line in preflight::would_wait_for(&status, self.args.goal) {
            self.steps.line(&line);
        }
        self.steps.line(&format!("would run {}", self.in_words()));
        self.evict(self.args.dry_run).await?;
        self.steps.line("dry run: nothing was done to it");
        Ok(())
    }

    async fn preflight(&self) -> Result<Status, Error> {
        let (status, warning) =
            preflight::check(self.cluster, self.args.goal, self.args.min_ready, self.node).await?;
        if let Some(warning) = warning {
            self.steps.line(&format!("warning: {warning}"));
        }
        Ok(status)
    }

    /// Cordons the node, and waits. `step` of `crates/agent-client/src/wait.rs` decides when the wait ends.
    async fn until_pods_may_be_evicted(&self) -> Result<(), Error> {
        self.preflight().await?;
        self.dry_run().await?;
        self.cordon().await?;
        until_seen().await;
        match wait_for_one(self.cluster, self.args.goal, self.args.timeout, self.node, self.steps).await {
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
        let Err(stopped) = preflight::enough_others(self.cluster, self.args.min_ready, self.node).await
        else {
            return Ok(());
        };
        if !self.node.unschedulable {
            let done = self.cluster.set_unschedulable(&self.node.name, false).await;
            done.map_err(|error| Error::failed(format!("{}; {}", stopped.why, error.why)))?;
            self.left.set(UNCORDONED);
        }
        Err(stopped)
    }

    /// Returns when the Node no longer exists.
    async fn until_gone(&self) {
        loop {
            tokio::time::sleep(EXISTS_EVERY).await;
            // Without an answer, the Node may still exist.
            if let Ok(node) = self.cluster.node(&self.node.name).await
                && node.is_none_or(|node| node.uid != self.node.uid)
            {
                return;
            }
        }
    }

    async fn cordon(&self) -> Result<(), Error> {
        if self.node.unschedulable {
            self.steps.line("is cordoned already");
        } else {
            self.left.set(MAYBE_CORDONED);
            let done = self.cluster.set_unschedulable(&self.node.name, true).await;
            done.map_err(|error| {
                if error.rejected.is_some() {
                    self.left.set(UNTOUCHED);
                }
                error.into_failure()
            })?;
            self.steps.line("cordoned");
        }
        self.left.set(CORDONED);
        Ok(())
    }

    /// Returns a line about the state in which the node is left, and the possible next commands.
    fn how_to_go_on(&self) -> String {
        let (state, may_be_undone) = self.left.get();
        if !may_be_undone {
            return state.to_owned();
        }
        let (name, flags) = (&self.node.name, self.cluster.kubectl_flags().join(" "));
        let on = self.in_words();
        format!("{state}; to undo: kubectl nodegate uncordon {name} {flags}; to go on without waiting: {on}")
    }
}
