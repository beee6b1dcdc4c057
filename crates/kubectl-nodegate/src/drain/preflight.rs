//! Whether a node may be taken out at all: looked at before anything is done to it.

use super::stopped::DrainStopped;
use crate::agents::{AgentAnswer, Agents};
use crate::args::DrainArgs;
use crate::cluster::FleetNode;
use crate::fleet;
use nodegate_readiness::Age;
use nodegate_readiness::probers::{Goal, PoolChange, Told, Unknown, told};

/// What is known of a node that may be taken out.
pub(super) struct Preflight {
    /// What a person should know beforehand.
    pub(super) warnings: Vec<String>,
    answer: AgentAnswer,
}

/// Refuses what can't end well. An answer of another cluster's agent is none, so the node's agent has been identified
/// before anything is done.
pub(super) async fn check(
    agents: &Agents,
    args: &DrainArgs,
    node: &FleetNode,
) -> Result<Preflight, DrainStopped> {
    let answer = agents.ask(node).await.map_err(|error| DrainStopped::NoAgent(error.detail))?;
    can_be_known(&answer, args)?;
    let ready = others_that_are_ready(agents, node).await?;
    if ready < args.min_ready {
        return Err(DrainStopped::TooFewReady { ready, demanded: args.min_ready });
    }
    let alone = "no other node is Ready: it is the last one that gets new traffic";
    let warnings = if ready == 0 { vec![alone.to_owned()] } else { Vec::new() };
    Ok(Preflight { warnings, answer })
}

/// Waiting for what can never be known would leave a node cordoned for nothing.
fn can_be_known(answer: &AgentAnswer, args: &DrainArgs) -> Result<(), DrainStopped> {
    let status = &answer.said.status;
    let demands = args.patience.demands(args.fall, None);
    match told(status, PoolChange::of(status.verdict), &demands) {
        // It may pass, but whoever fills the places goes on.
        Told::Unknown(Unknown::Listening { overflown: true, .. }) => {
            let overflows = status.drain.as_ref().map_or(0, |drain| drain.overflows);
            return Err(DrainStopped::Overflown(overflows));
        }
        Told::Unknown(unknown) if !unknown.may_pass() => return Err(DrainStopped::Unknowable(unknown)),
        _ => {}
    }
    let counts = status.drain.as_ref().is_some_and(|drain| drain.traffic.is_some());
    if args.goal == Goal::Released && !counts { Err(DrainStopped::NoTrafficPort) } else { Ok(()) }
}

/// By what their agents say, and not as a guess.
async fn others_that_are_ready(agents: &Agents, node: &FleetNode) -> Result<usize, DrainStopped> {
    let nodes = agents.cluster().nodes(None).await?;
    let others: Vec<FleetNode> = nodes.into_iter().filter(|other| other.name != node.name).collect();
    let rows = fleet::look(agents, &others).await;
    Ok(rows.iter().filter(|row| row.is_surely_ready()).count())
}

impl Preflight {
    /// Who would be waited for, a line for each.
    pub(super) fn would_wait_for(&self, goal: Goal) -> Vec<String> {
        let status = &self.answer.said.status;
        let probers = status.probers.iter().filter(|prober| prober.is_waited_for());
        let mut lines: Vec<_> = probers
            .map(|prober| {
                let every =
                    prober.interval_ms.map_or(String::new(), |ms| format!(", asks every {}", Age(ms.into())));
                format!("would wait for {} {}{every}", prober.who(), prober.question)
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
