//! `kubectl nodegate wait`: several nodes at once, each as `nodegate wait` waits for one.

use crate::agents::Agents;
use crate::args::WaitArgs;
use crate::cluster::FleetNode;
use crate::console::Console;
use crate::error::Error;
use futures::stream::{self, StreamExt};
use nodegate_readiness::probers::{Demands, Goal, WaitEnd, Waiting};
use std::time::Duration;
use tokio::time::Instant;

/// Between two questions to an agent.
const PAUSE: Duration = Duration::from_millis(500);
/// How long an agent may take to see what has been written to its Node. Asked at once, it would say that the node that has just
/// been cordoned is Ready.
const TO_BE_SEEN: Duration = Duration::from_millis(100);
/// How many nodes are waited for at a time.
const AT_ONCE: usize = 256;

/// What is waited for, and how long.
pub(crate) struct Wait<'a> {
    pub(crate) agents: &'a Agents,
    pub(crate) console: &'a Console,
    pub(crate) goal: Goal,
    pub(crate) demands: Demands,
    pub(crate) timeout: Option<Duration>,
}

/// Lines of one node, with the seconds since the beginning.
pub(crate) struct Steps<'a> {
    console: &'a Console,
    node: &'a str,
    began: Instant,
}

/// Waits, and gives the exit code.
pub(crate) async fn run(agents: &Agents, args: &WaitArgs) -> Result<u8, Error> {
    let nodes = existing(agents, &args.nodes).await?;
    let console = Console::new();
    let WaitArgs { goal, ref patience, .. } = *args;
    let demands = patience.demands(args.fall, args.rise);
    let wait = Wait { agents, console: &console, goal, demands, timeout: patience.timeout };
    Ok(wait.for_all(&nodes).await)
}

/// The nodes of these names; it is an error if one is not there.
pub(crate) async fn existing(agents: &Agents, names: &[String]) -> Result<Vec<FleetNode>, Error> {
    let nodes = agents.cluster().named(names).await?;
    match nodes.iter().find(|node| !node.exists) {
        Some(absent) => Err(Error::NoSuchNode(absent.name.clone())),
        None => Ok(nodes),
    }
}

/// Lets a cordon, or the end of one, come to the agents.
pub(crate) async fn until_seen() {
    tokio::time::sleep(TO_BE_SEEN).await;
}

impl Wait<'_> {
    /// Waits for all of them at once; gives the exit code of the one that ended worst.
    pub(crate) async fn for_all(&self, nodes: &[FleetNode]) -> u8 {
        let waits = nodes
            .iter()
            .map(|node| async move { self.for_one(node, &Steps::begin(self.console, &node.name)).await });
        let ends: Vec<WaitEnd> = stream::iter(waits).buffer_unordered(AT_ONCE).collect().await;
        ends.into_iter().map(WaitEnd::exit_code).max().unwrap_or_default()
    }

    /// Waits for one, and tells of it as it happens.
    pub(crate) async fn for_one(&self, node: &FleetNode, steps: &Steps<'_>) -> WaitEnd {
        let began = Instant::now();
        let mut waiting = Waiting::new(self.goal, self.demands, self.timeout);
        loop {
            let said = self.agents.ask(node).await;
            let said = said.as_ref().map(|answer| &answer.said.status).map_err(|error| error.detail.as_str());
            let progress = waiting.step(said, began.elapsed());
            progress.lines.iter().for_each(|line| steps.line(line));
            if let Some(ended) = progress.ended {
                return ended;
            }
            steps.over(&progress.now);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl<'a> Steps<'a> {
    pub(crate) fn begin(console: &'a Console, node: &'a str) -> Self {
        Self { console, node, began: Instant::now() }
    }

    /// A line that stays.
    pub(crate) fn line(&self, text: &str) {
        self.console.line(&self.with_head(text));
    }

    /// How things stand, on a terminal.
    fn over(&self, text: &str) {
        self.console.over(&self.with_head(text));
    }

    fn with_head(&self, text: &str) -> String {
        format!("{}  {:>5.1} s  {text}", self.node, self.began.elapsed().as_secs_f64())
    }
}
