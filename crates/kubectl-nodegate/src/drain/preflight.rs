//! Whether a node may be taken out at all: looked at before anything is done to it.

use super::stopped::Stopped;
use crate::agents::{Agents, Answer};
use crate::args::DrainArgs;
use crate::cluster::Node;
use crate::fleet;
use nodegate_readiness::probers::{Goal, Told, Turn, told};

/// Refuses what can't end well; gives what a person should know beforehand.
pub(super) async fn check(agents: &Agents, args: &DrainArgs, node: &Node) -> Result<Vec<String>, Stopped> {
    let answer = agents.ask(node).await.map_err(|error| {
        Stopped::not_known(format!(
            "its agent does not answer, so nobody knows who was told: {}",
            error.detail
        ))
    })?;
    can_be_known(&answer, args)?;
    let ready = others_that_are_ready(agents, node).await?;
    if ready < args.min_ready {
        let (demanded, are) = (args.min_ready, if ready == 1 { "node is" } else { "nodes are" });
        return Err(Stopped::failed(format!("refused: {ready} other {are} Ready, --min-ready={demanded}")));
    }
    let alone = "no other node is Ready: it is the last one that gets new traffic";
    Ok(if ready == 0 { vec![alone.to_owned()] } else { Vec::new() })
}

/// Waiting for what can never be known would leave a node cordoned for nothing.
fn can_be_known(answer: &Answer, args: &DrainArgs) -> Result<(), Stopped> {
    let status = &answer.status;
    let demands = args.patience.demands(args.fall, None);
    if let Told::Unknown(unknown) = told(status, Turn::of(status.verdict), &demands)
        && !unknown.may_pass()
    {
        return Err(Stopped::not_known(format!("not known whether balancers would be told: {unknown}")));
    }
    let counts = status.drain.as_ref().is_some_and(|drain| drain.traffic.is_some());
    if args.goal == Goal::Released && !counts {
        let why = "its agent has no --traffic-port: it can't be known whether a session is left";
        return Err(Stopped::not_known(why));
    }
    Ok(())
}

/// By what their agents say, and not as a guess.
async fn others_that_are_ready(agents: &Agents, node: &Node) -> Result<usize, Stopped> {
    let nodes = agents.cluster().nodes(None).await.map_err(|error| Stopped::failed(error.to_string()))?;
    let others: Vec<Node> = nodes.into_iter().filter(|other| other.name != node.name).collect();
    let rows = fleet::look(agents, &others).await;
    Ok(rows.iter().filter(|row| row.is_surely_ready()).count())
}
