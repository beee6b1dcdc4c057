//! Checks that a node may be taken out, before `drain` changes anything.

use super::DrainStopped;
use crate::agents::{AgentAnswer, Agents};
use crate::args::DrainArgs;
use crate::cluster::FleetNode;
use crate::fleet;
use nodegate_readiness::Age;
use nodegate_readiness::probers::{Acknowledgement, Goal, PoolChange, Unknown, acknowledged};

pub(super) struct Preflight {
    pub(super) warnings: Vec<String>,
    answer: AgentAnswer,
}

/// Rejects drains that can't succeed. An answer of another cluster's agent does not count, so the node's
/// agent is identified before anything is changed.
pub(super) async fn check(
    agents: &Agents,
    args: &DrainArgs,
    node: &FleetNode,
) -> Result<Preflight, DrainStopped> {
    let answer = agents.ask(node).await.map_err(|error| {
        let what = "its agent does not answer, so it is unknown which balancers have acknowledged the drain";
        DrainStopped::not_known(format!("{what}: {}", error.detail))
    })?;
    can_be_known(&answer, args)?;
    let ready = enough_others(agents, args, node).await?;
    let alone = "no other node is Ready: it is the last one that gets new traffic";
    let warnings = if ready == 0 { vec![alone.to_owned()] } else { Vec::new() };
    Ok(Preflight { warnings, answer })
}

/// Returns the number of other nodes that are Ready; fails if they are fewer than demanded.
pub(super) async fn enough_others(
    agents: &Agents,
    args: &DrainArgs,
    node: &FleetNode,
) -> Result<usize, DrainStopped> {
    let ready = others_that_are_ready(agents, node).await?;
    if ready >= args.min_ready {
        return Ok(ready);
    }
    let (are, demanded) = (if ready == 1 { "node is" } else { "nodes are" }, args.min_ready);
    Err(DrainStopped::failed(format!("refused: {ready} other {are} Ready, --min-ready={demanded}")))
}

/// Rejects a drain whose acknowledgement can never be known; waiting for it would leave the node cordoned
/// without a result.
fn can_be_known(answer: &AgentAnswer, args: &DrainArgs) -> Result<(), DrainStopped> {
    let status = &answer.said.status;
    let overrides = args.acknowledged.overrides(args.fall, None);
    let unknown =
        |why| DrainStopped::not_known(format!("not known whether balancers would acknowledge: {why}"));
    match acknowledged(status, PoolChange::of(status.verdict), &overrides) {
        // This may pass, but the clients that fill the table continue.
        Acknowledgement::Unknown(Unknown::Listening { overflown: true, .. }) => {
            let overflows = status.drain.as_ref().map_or(0, |drain| drain.overflows);
            return Err(unknown(format!(
                "its agent has more probers than it can remember: {overflows} probe requests found no slot; \
                 --balancers names the probers that count"
            )));
        }
        Acknowledgement::Unknown(why) if !why.is_temporary() => return Err(unknown(why.to_string())),
        _ => {}
    }
    let counts = status.drain.as_ref().is_some_and(|drain| drain.traffic.is_some());
    if args.goal == Goal::Released && !counts {
        let why = "its agent has no --traffic-port: it can't be known whether a session is left";
        return Err(DrainStopped::not_known(why));
    }
    Ok(())
}

/// Returns the number of other nodes that are Ready according to fresh answers of their agents.
async fn others_that_are_ready(agents: &Agents, node: &FleetNode) -> Result<usize, DrainStopped> {
    let nodes = agents.cluster.nodes(None).await.map_err(|error| DrainStopped::failed(error.why))?;
    let others: Vec<FleetNode> = nodes.into_iter().filter(|other| other.name != node.name).collect();
    let rows = fleet::look(agents, &others).await;
    Ok(rows.iter().filter(|row| row.is_surely_ready()).count())
}

impl Preflight {
    /// Returns a line for each balancer that the drain would wait for.
    pub(super) fn would_wait_for(&self, goal: Goal) -> Vec<String> {
        let status = &self.answer.said.status;
        let probers = status.probers.iter().filter(|prober| prober.is_waited_for());
        let mut lines: Vec<_> = probers
            .map(|prober| {
                let every = prober
                    .interval_ms
                    .map_or(String::new(), |ms| format!(", probes every {}", Age(ms.into())));
                format!("would wait for {} {}{every}", prober.who(), prober.request)
            })
            .collect();
        if goal == Goal::Released {
            let left = status
                .sessions()
                .map_or_else(|| "not known how many".to_owned(), |left| format!("{left} now"));
            lines.push(format!("would wait for the last session: {left}"));
        }
        lines
    }
}
