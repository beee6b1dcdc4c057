//! `kubectl nodegate wait` and `uncordon`: wait for several nodes at once, for each as `nodegate wait` does for one.

use crate::agents::AT_ONCE;
use crate::args::{UncordonArgs, WaitArgs};
use crate::cluster::{Cluster, FleetNode};
use crate::error::Error;
use futures::stream::{self, StreamExt};
use nodegate_agent_api::Goal;
use nodegate_agent_client::{Console, PAUSE, WaitEnd, WaitTimeout, Waiting};
use std::time::Duration;
use tokio::time::Instant;

/// The time that an agent needs to see a change of its Node. Without this delay, it would still report a node
/// that has just been cordoned as before.
const TO_BE_SEEN: Duration = Duration::from_millis(100);

/// The lines of one node, with the seconds since the start.
pub(crate) struct Steps<'a> {
    node: &'a str,
    began: Instant,
}

pub(crate) async fn run(cluster: &Cluster, args: &WaitArgs) -> Result<u8, Error> {
    let nodes = cluster.nodes(&args.nodes, None).await?;
    Ok(wait_for_all(cluster, args.wait.goal, args.wait.timeout, &nodes).await)
}

/// Brings the nodes back, then waits for all of them; returns the exit code.
pub(crate) async fn uncordon(cluster: &Cluster, args: &UncordonArgs) -> Result<u8, Error> {
    let (mut nodes, mut failed) = (Vec::new(), None);
    Console::line(&format!("cluster: {}", cluster.name));
    for node in cluster.nodes(&args.nodes, None).await? {
        let steps = Steps::begin(&node.name);
        if !node.unschedulable {
            steps.line("was not cordoned");
        } else if let Err(error) = cluster.set_unschedulable(&node.name, false).await {
            steps.line(&error.why);
            failed.get_or_insert(error);
            continue;
        } else {
            steps.line("uncordoned");
        }
        nodes.push(node);
    }
    until_seen().await;
    let worst = wait_for_all(cluster, Goal::Ready, args.timeout, &nodes).await;
    failed.map_or(Ok(worst), Err)
}

/// Waits until the agents have seen a cordon or uncordon.
pub(crate) async fn until_seen() {
    tokio::time::sleep(TO_BE_SEEN).await;
}

/// Waits for all nodes at once; returns the exit code of the worst end.
async fn wait_for_all(cluster: &Cluster, goal: Goal, timeout: WaitTimeout, nodes: &[FleetNode]) -> u8 {
    let waits = nodes.iter().map(|node| async move {
        wait_for_one(cluster, goal, timeout, node, &Steps::begin(&node.name)).await
    });
    let ends: Vec<WaitEnd> = stream::iter(waits).buffer_unordered(AT_ONCE).collect().await;
    ends.into_iter().max().map_or(0, WaitEnd::exit_code)
}

/// Waits for a node.
pub(crate) async fn wait_for_one(
    cluster: &Cluster,
    goal: Goal,
    timeout: WaitTimeout,
    node: &FleetNode,
    steps: &Steps<'_>,
) -> WaitEnd {
    let (began, mut waiting) = (Instant::now(), Waiting::new(goal, timeout));
    let path = waiting.path(None);
    loop {
        let reply = cluster.ask_wait(node, &path).await;
        let progress = waiting.step(reply.as_ref().map_err(String::as_str), began.elapsed());
        progress.lines.iter().for_each(|line| steps.line(line));
        if let Some(ended) = progress.ended {
            return ended;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl<'a> Steps<'a> {
    pub(crate) fn begin(node: &'a str) -> Self {
        Self { node, began: Instant::now() }
    }

    pub(crate) fn line(&self, text: &str) {
        Console::line(&format!("{}  {:>5.1} s  {text}", self.node, self.began.elapsed().as_secs_f64()));
    }
}
