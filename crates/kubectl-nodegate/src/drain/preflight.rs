//! Checks that a node may be taken out, before `drain` changes anything.

use crate::agents::{AgentAnswer, Agents};
use crate::cluster::FleetNode;
use crate::error::Error;
use crate::fleet;
use nodegate_agent_api::Goal;
use nodegate_readiness::Age;

pub(crate) struct Preflight {
    pub(crate) warnings: Vec<String>,
    answer: AgentAnswer,
}

/// Rejects drains that can't succeed. An answer of another cluster's agent does not count, so the node's
/// agent is identified before anything is changed.
pub(crate) async fn check(
    agents: &Agents,
    goal: Goal,
    min_ready: usize,
    node: &FleetNode,
) -> Result<Preflight, Error> {
    let answer = agents.ask(node).await.map_err(|error| {
        let what = "its agent does not answer, so it is unknown which balancers have acknowledged the drain";
        Error::from(format!("{what}: {}", error.detail))
    })?;
    can_be_known(&answer, goal)?;
    let (ready, others) = enough_others(agents, min_ready, node).await?;
    let alone = "no other node is Ready: it is the last one that gets new traffic";
    let by_label = "all nodes that are left are out by the label node.kubernetes.io/exclude-from-external-load-balancers: \
                    where balancers have a pool of last resort, it alone gets new traffic";
    let are_by_label = !others.is_empty() && others.iter().all(fleet::Row::is_out_by_label);
    let warnings = match ready {
        0 if are_by_label => vec![by_label.to_owned()],
        0 => vec![alone.to_owned()],
        _ => Vec::new(),
    };
    Ok(Preflight { warnings, answer })
}

/// Returns the number of other nodes that are Ready, and the rows of all others; fails if too few are Ready.
pub(super) async fn enough_others(
    agents: &Agents,
    min_ready: usize,
    node: &FleetNode,
) -> Result<(usize, Vec<fleet::Row>), Error> {
    let others = others(agents, node).await?;
    let ready = others.iter().filter(|row| row.is_surely_ready()).count();
    if ready >= min_ready {
        return Ok((ready, others));
    }
    let are = if ready == 1 { "node is" } else { "nodes are" };
    Err(Error::failed(format!("refused: {ready} other {are} Ready, --min-ready={min_ready}")))
}

/// Rejects a drain whose acknowledgement can never be known; waiting for it would leave the node cordoned
/// without a result.
fn can_be_known(answer: &AgentAnswer, goal: Goal) -> Result<(), Error> {
    let drain = &answer.said.status.drain;
    let unknown = |why: &str| Error::from(format!("not known whether balancers would acknowledge: {why}"));
    match drain.not_known_code.as_deref() {
        // The overflow may pass, but the clients that fill the table continue.
        Some("overflown") => {
            let overflows = drain.overflows;
            return Err(unknown(&format!(
                "its agent has more probers than it can remember: {overflows} probe requests found no slot; \
                 --balancers names the probers that count"
            )));
        }
        Some("misconfigured" | "no_probers") => {
            return Err(unknown(drain.not_known.as_deref().unwrap_or_default()));
        }
        _ => {}
    }
    let counts = drain.traffic.is_some();
    if goal == Goal::Released && !counts {
        let why = "its agent has no --traffic-port: it can't be known whether a session is left";
        return Err(Error::from(why.to_owned()));
    }
    Ok(())
}

/// Returns the rows of all other nodes.
async fn others(agents: &Agents, node: &FleetNode) -> Result<Vec<fleet::Row>, Error> {
    let nodes = agents.cluster.nodes(None).await.map_err(Error::into_failure)?;
    let others: Vec<FleetNode> = nodes.into_iter().filter(|other| other.name != node.name).collect();
    Ok(fleet::look(agents, &others).await)
}

impl Preflight {
    /// Returns a line for each balancer that the drain would wait for.
    pub(super) fn would_wait_for(&self, goal: Goal) -> Vec<String> {
        let status = &self.answer.said.status;
        let probers = status.probers.iter().filter(|prober| prober.is_waited_for());
        let mut lines: Vec<_> = probers
            .map(|prober| {
                let every =
                    prober.interval_ms.map_or(String::new(), |ms| format!(", probes every {}", Age(ms)));
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
