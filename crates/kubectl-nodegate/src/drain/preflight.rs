//! Checks that a node may be taken out, before `drain` changes anything.

use crate::cluster::{Cluster, FleetNode};
use crate::error::Error;
use crate::fleet::{Row, look};
use nodegate_agent_api::{DrainStatus, Goal, Status};
use nodegate_agent_client::acknowledgement::sessions_not_known;
use nodegate_readiness::Age;

/// Rejects drains that can't succeed. An answer of another Node's agent does not count, so the node's
/// agent is identified before anything is changed. Returns its status, and a warning.
pub(super) async fn check(
    cluster: &Cluster,
    goal: Goal,
    min_ready: usize,
    node: &FleetNode,
) -> Result<(Status, Option<&'static str>), Error> {
    let answer = cluster.ask(node).await.map_err(|error| {
        let what = "its agent does not answer, so it is unknown which balancers have acknowledged the drain";
        Error::from(format!("{what}: {error}"))
    })?;
    can_be_known(&answer.said.drain, goal)?;
    let others = enough_others(cluster, min_ready, node).await?;
    let is_last = !others.iter().any(Row::is_surely_ready);
    let alone = "no other node is Ready: it is the last one that gets new traffic";
    let by_label = "all nodes that are left are out by the label node.kubernetes.io/exclude-from-external-load-balancers: \
                    where balancers have a pool of last resort, it alone gets new traffic";
    let are_by_label = !others.is_empty() && others.iter().all(Row::is_out_by_label);
    Ok((answer.said, is_last.then_some(if are_by_label { by_label } else { alone })))
}

/// Returns the rows of all other nodes; fails if too few of them are Ready.
pub(super) async fn enough_others(
    cluster: &Cluster,
    min_ready: usize,
    node: &FleetNode,
) -> Result<Vec<Row>, Error> {
    let nodes = cluster.nodes(&[], None).await.map_err(Error::into_failure)?;
    let others: Vec<FleetNode> = nodes.into_iter().filter(|other| other.name != node.name).collect();
    let others = look(cluster, &others).await;
    let ready = others.iter().filter(|row| row.is_surely_ready()).count();
    if ready >= min_ready {
        return Ok(others);
    }
    let are = if ready == 1 { "node is" } else { "nodes are" };
    Err(Error::failed(format!("refused: {ready} other {are} Ready, --min-ready={min_ready}")))
}

/// Rejects a drain whose acknowledgement can never be known; waiting for it would leave the node cordoned
/// without a result.
fn can_be_known(drain: &DrainStatus, goal: Goal) -> Result<(), Error> {
    // An overflow may pass, but the clients that fill the table continue.
    if let Some("overflown" | "misconfigured" | "no_probers") = drain.not_known_code.as_deref() {
        let why = drain.not_known.as_deref().unwrap_or_default();
        return Err(format!("not known whether balancers would acknowledge: {why}").into());
    }
    if goal == Goal::Released && drain.traffic.is_none() {
        return Err(sessions_not_known(None).into());
    }
    Ok(())
}

/// Returns a line for each balancer that the drain would wait for.
pub(super) fn would_wait_for(status: &Status, goal: Goal) -> Vec<String> {
    let probers = status.probers.iter().filter(|prober| prober.is_waited_for());
    let lines = probers.map(|prober| {
        let every = prober.interval_ms.map_or(String::new(), |ms| format!(", probes every {}", Age(ms)));
        format!("would wait for {} {}{every}", prober.who(), prober.request)
    });
    let left = status.sessions().map_or("not known how many".to_owned(), |left| format!("{left} now"));
    let session = (goal == Goal::Released).then(|| format!("would wait for the last session: {left}"));
    lines.chain(session).collect()
}
