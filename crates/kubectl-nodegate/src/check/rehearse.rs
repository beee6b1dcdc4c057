//! `check NODE --rehearse`: a drain without its evictions. The node goes out, every balancer acknowledges, and it comes
//! back.

use crate::args::CheckArgs;
use crate::cluster::{Cluster, FleetNode};
use crate::drain::preflight;
use crate::error::Error;
use crate::platform;
use crate::wait_for_nodes::{Steps, wait_for_one};
use nodegate_agent_api::Goal;
use nodegate_agent_client::{Console, WaitEnd};

/// Rehearses a drain of the nodes, one after the other; returns the exit code.
pub(super) async fn run(cluster: &Cluster, args: &CheckArgs, nodes: &[FleetNode]) -> Result<u8, Error> {
    Console::line(&format!("cluster: {}", cluster.name));
    let mut worst = WaitEnd::Reached;
    for node in nodes {
        worst = worst.max(rehearse(cluster, args, node).await?);
    }
    Ok(worst.exit_code())
}

/// Takes the node out and brings it back, whatever happens between.
async fn rehearse(cluster: &Cluster, args: &CheckArgs, node: &FleetNode) -> Result<WaitEnd, Error> {
    let name = &node.name;
    let refused =
        |error: Error| Error { why: format!("{name}: {}; nothing was done to it", error.why), ..error };
    if node.unschedulable {
        return Err(refused(Error::failed("is cordoned already")));
    }
    let (_, warning) = preflight::check(cluster, Goal::Acknowledged, 0, node).await.map_err(refused)?;
    // The traffic of the only node that gets any would have nowhere to go.
    if let Some(warning) = warning {
        return Err(refused(Error::failed(warning)));
    }
    let steps = Steps::begin(name);
    // After an answer that is no refusal, the node may be cordoned.
    match cluster.set_unschedulable(name, true).await {
        Err(error) if error.rejected.is_some() => return Err(error.into_failure()),
        _ => steps.line("cordoned; no pod will be evicted"),
    }
    let out = tokio::select! {
        ended = wait_for_one(cluster, Goal::Acknowledged, args.timeout, node, &steps) => Ok(ended),
        signal = platform::termination_signal() => Err(Error::interrupted(signal)),
    };
    let steps = Steps::begin(name);
    let undone = cluster.set_unschedulable(name, false).await;
    undone.map_err(|error| {
        Error::failed(format!("{}; it may still be cordoned: kubectl uncordon {name}", error.why))
    })?;
    steps.line("uncordoned");
    let out = out?;
    let back = wait_for_one(cluster, Goal::Ready, args.timeout, node, &steps).await;
    Ok(out.max(back))
}
