//! `kubectl nodegate uncordon`: brings nodes back, and waits until every balancer has acknowledged.

use crate::agents::Agents;
use crate::args::UncordonArgs;
use crate::error::Error;
use crate::wait_for_nodes::{Steps, Wait, existing, until_seen};
use nodegate_agent_client::Console;
use nodegate_readiness::probers::Goal;

/// Brings the nodes back, then waits for all of them; returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &UncordonArgs) -> Result<u8, Error> {
    let nodes = existing(agents, &args.nodes).await?;
    let console = Console::default();
    console.line(&format!("cluster: {}", agents.cluster().in_words()));
    for node in &nodes {
        let steps = Steps::begin(&console, &node.name);
        if node.unschedulable {
            agents.cluster().set_unschedulable(&node.name, false).await?;
            steps.line("uncordoned");
        } else {
            steps.line("was not cordoned");
        }
    }
    until_seen().await;
    let wait = args.told.wait_for(Goal::Ready, None, args.rise);
    let wait = Wait { agents, console: &console, args: &wait };
    Ok(wait.for_all(&nodes).await)
}
